//! `scripts/install-worker`: what it puts onto a host and takes away again, under real daemons of distcc. Where root
//! runs the test, the host is this machine with overlays on /usr, /etc and /var that go with the test; else it is a
//! folder.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use kit::{
    Client, Folder, MARK, Marked, Output, Run, Running, bridge_path, daemons_user, free_port, skip,
    skip_without, tool, until,
};
use serde_json::json;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/install-worker");

fn version() -> String {
    format!("dtlto-bridge {}", env!("CARGO_PKG_VERSION"))
}

#[test]
fn a_worker_below_a_prefix_is_installed_and_removed_without_a_trace() {
    let root = Folder::new();
    root.mkdir("usr/lib/distcc");
    root.write("usr/lib/distcc/cc", "");
    let before = root.list("");
    let user = Run::new("id").arg("-un").go().ok().stdout;
    let prefix = root.path("").display().to_string();
    let run = |options: &[&str]| {
        let options = [&["--prefix", &prefix, "--user", user.trim()], options].concat();
        Run::new(SCRIPT).args(options).go()
    };
    let install = ["--worker", bridge_path(), "--compiler", "/opt/llvm/bin/clang"];
    run(&[&install[..], &["--dry-run"]].concat()).ok();
    assert_eq!(root.list(""), before);
    assert!(run(&["--status"]).code(1).stdout.starts_with("not installed"));
    // The second time it upgrades.
    for _ in 0..2 {
        let said = run(&install).ok().stdout;
        assert!(said.ends_with(&format!("for the user {} {}\n", user.trim(), version())), "{said}");
    }
    let worker = root.path("usr/bin/dtlto-worker");
    assert_eq!(Run::new(&worker).arg("--version").go().ok().stdout.trim(), version());
    let link = fs::read_link(root.path("usr/lib/distcc/dtlto-worker")).unwrap();
    assert_eq!(link.to_str(), Some("/usr/bin/dtlto-worker"));
    let settings: serde_json::Value =
        serde_json::from_slice(&root.read("etc/dtlto-worker.json")).unwrap();
    assert_eq!(settings["compilers"], json!(["/opt/llvm/bin/clang"]));
    for private in
        ["var/lib/dtlto-worker/store", "var/lib/dtlto-worker/scratch", "var/log/dtlto-worker"]
    {
        let mode = fs::metadata(root.path(private)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{private}");
    }
    let status = run(&["--status"]).ok().stdout;
    assert!(status.contains(&format!("dtlto-worker: {}\n", version())), "{status}");
    root.write("var/lib/dtlto-worker/store/piece", "what a job brought");
    run(&["--uninstall"]).ok();
    let left = root.list("").into_iter().filter(|name| !name.ends_with('/'));
    assert_eq!(left.collect::<Vec<_>>(), ["usr/lib/distcc/cc"]);
}

/// This machine's file system, as an administrator of a host may change it.
struct Machine {
    holder: Running,
    marked: Marked,
    folder: Folder,
}

impl Machine {
    /// None if it cannot be made here.
    fn new() -> Option<Machine> {
        let script = r#"
            mount --make-rprivate /
            mount -t tmpfs -o mode=755 tmpfs "$1"
            for folder in usr etc var; do
                mkdir "$1/$folder" "$1/$folder.work"
                mount -t overlay -o "lowerdir=/$folder,upperdir=$1/$folder,workdir=$1/$folder.work" overlay "/$folder"
            done
            echo ready
            exec sleep 600"#;
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let (folder, marked) = (Folder::new(), Marked::new());
        fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
        let place = folder.mkdir("machine");
        let run = Run::new("unshare").args(["--mount", "sh", "-ec", script, "-"]).arg(place);
        let mut holder = run.limit(600).start();
        let mut said = String::new();
        until("a machine, or why there is none", || {
            said = holder.stdout() + &holder.stderr();
            !said.is_empty()
        });
        (said.trim() == "ready").then_some(Machine { holder, marked, folder })
    }

    /// `run` on that machine.
    fn on(&self, run: Run) -> Run {
        let holder = self.holder.pid().as_raw_nonzero().to_string();
        run.within(&["nsenter", "--mount", "--target", &holder])
    }

    fn script(&self, options: &[&str]) -> Output {
        self.on(Run::new(SCRIPT).args(options)).go()
    }

    /// All that the administrator can have changed.
    fn files(&self) -> String {
        let places = ["/usr/bin", "/usr/lib/distcc", "/etc", "/var/lib", "/var/log"];
        self.on(Run::new("find").args(places).args(["-printf", "%p %m %u %l\\n"])).go().ok().stdout
    }

    /// A daemon with the variables `environment`; its entry in a list of hosts.
    fn daemon(&self, name: &str, environment: &[(&str, &str)]) -> (Running, String) {
        let (port, log) = (free_port().to_string(), self.folder.write(name, ""));
        let (user, uid) = daemons_user().unwrap();
        chown(&log, Some(uid), None).unwrap();
        let run = Run::new(tool("distccd"))
            .args(["--daemon", "--no-detach", "--log-level=info", "--listen", "127.0.0.1"])
            .args(["--allow", "127.0.0.1", "--jobs=2", "--port", &port, "--user", &user])
            .arg(format!("--log-file={}", log.display()))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env(MARK, &self.marked.mark);
        let run = environment.iter().fold(run, |run, (name, value)| run.env(name, value));
        let daemon = self.on(run).limit(600).start();
        until("a daemon", || self.folder.text(name).contains("daemon started"));
        (daemon, format!("127.0.0.1:{port}/2"))
    }
}

/// The link in /usr/lib/distcc lets distccd run the worker; so does a line in the file of `DISTCC_CMDLIST`.
#[test]
fn an_installed_worker_does_jobs_and_is_upgraded_while_it_does() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "unshare", "nsenter");
    let Some(machine) = Machine::new() else {
        skip!("only root can put overlays on /usr, /etc and /var")
    };
    let before = machine.files();
    let clang = tool("clang-22").display().to_string();
    let install = ["--worker", bridge_path(), "--compiler", &clang];
    machine.script(&install).ok();
    let worker = || machine.on(Run::new("/usr/bin/dtlto-worker").arg("--version")).go().ok();
    assert_eq!(worker().stdout.trim(), version());

    let list = machine.folder.write("commands", "/usr/bin/dtlto-worker\n");
    let list = list.to_str().unwrap();
    for (name, environment) in [("by a link", &[][..]), ("by a list", &[("DISTCC_CMDLIST", list)])]
    {
        let (daemon, entry) = machine.daemon(name, environment);
        let status = machine.script(&["--status"]).ok();
        let warned = format!("distccd {}", daemon.pid().as_raw_nonzero());
        assert!(!status.stdout.contains(&warned), "{warned}: {status}");
        let client = Client::with_long_job();
        let running = client.run(&[&entry], &["--fallback=never"]).start();
        let compiler = machine.marked.compiler();
        machine.script(&install).ok().stdout_lacks("error");
        assert_eq!(machine.marked.compiler(), compiler, "the job was over before the upgrade");
        client.assert_made(1, &running.wait().ok());
        assert_eq!(worker().stdout.trim(), version());
        let client = Client::new();
        client.assert_made(3, &client.run(&[&entry], &["--fallback=never"]).go().ok());
        drop(daemon);
    }
    // What distccd is not told it does not run, and the administrator is told.
    let other = machine.folder.write("others", "/usr/bin/cc\n");
    let (daemon, entry) =
        machine.daemon("not listed", &[("DISTCC_CMDLIST", other.to_str().unwrap())]);
    let said = machine.script(&install).ok().stdout;
    let step = format!(
        "distccd {}: add the line /usr/bin/dtlto-worker to ",
        daemon.pid().as_raw_nonzero()
    );
    assert!(said.contains(&step), "{said}");
    let client = Client::new();
    client.doctor(&[&entry]).go().code(4);
    drop(daemon);

    let log = machine.on(Run::new("cat").arg("/var/log/dtlto-worker/log")).go().ok().stdout;
    assert_eq!(log.matches("\"detail\":\"exited with 0\"").count(), 8, "{log}");
    machine.script(&["--uninstall"]).ok();
    assert!(machine.files() == before, "{}", machine.files());
    machine.script(&["--status"]).code(1);
}
