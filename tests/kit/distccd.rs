//! Hosts of distcc on this machine's loopback: real daemons, each with a worker, lists and logs of its own.
//! Whatever they started ends with them. They do not know what is linked.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Folder, LinkJobs, MARK, Marked, Modules, Output, Run};
use super::{assert_bridged, bridge, bridge_path, long_module, tool, until};

/// A daemon that is being prepared. What a field says is what an administrator would have done.
pub(crate) struct Plan {
    pub(crate) folder: Folder,
    /// In the file of `DISTCC_CMDLIST`.
    pub(crate) commands: Vec<String>,
    /// In the worker's settings.
    pub(crate) compilers: Vec<String>,
    /// What else stands in the worker's settings.
    pub(crate) settings: Value,
    /// Words before distccd's own command line.
    pub(crate) before: Vec<String>,
    /// Where it listens, and whom it serves.
    pub(crate) address: String,
    pub(crate) allow: String,
    /// Jobs at once, by its own limit.
    pub(crate) jobs: usize,
}

impl Plan {
    /// The program that stands for the worker is the shell script `script`, in which `$HOST` is a folder that
    /// everybody may write to, and `work "$@"` does what the worker does.
    pub(crate) fn worker(&mut self, script: &str) {
        let real = self.folder.path("real");
        fs::create_dir(&real).unwrap();
        let [worker, real] = [self.folder.path("dtlto-worker"), real.join("dtlto-worker")];
        fs::rename(&worker, &real).unwrap();
        let host = self.folder.path("tmp").display().to_string();
        let script = format!("HOST='{host}'\nwork() {{ '{}' \"$@\"; }}\n{script}", real.display());
        self.folder.script("dtlto-worker", &script);
    }

    /// The same, but the first two requests, which are the [doctor's](Client::doctor), are answered as they should
    /// be.
    pub(crate) fn worker_after_doctor(&mut self, script: &str) {
        let once = |n| format!("mkdir \"$HOST/asked{n}\" 2>/dev/null");
        let first = format!("if {} || {}; then work \"$@\"; exit; fi\n", once(1), once(2));
        self.worker(&format!("{first}{script}"));
    }
}

/// A daemon that runs.
pub(crate) struct Host {
    pub(crate) folder: Folder,
    /// As distcc's list and the statistics name it.
    pub(crate) name: String,
    pub(crate) port: u16,
    marked: Marked,
    daemon: Child,
}

/// Jobs at once, on each host.
pub(crate) const SLOTS: usize = 2;

impl Host {
    /// All is well there.
    pub(crate) fn new() -> Host {
        Host::with(|_| ())
    }

    /// One whose administrator has done as `edit` says.
    #[track_caller]
    pub(crate) fn with(edit: impl FnOnce(&mut Plan)) -> Host {
        let folder = Folder::new();
        fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
        // The build's own folder may be closed to others.
        fs::copy(bridge_path(), folder.path("dtlto-worker")).unwrap();
        for name in ["tmp", "scratch", "store", "log"] {
            folder.mkdir(name);
        }
        let mut plan = Plan {
            commands: vec![folder.path("dtlto-worker").display().to_string()],
            compilers: vec![tool("clang-22").display().to_string()],
            settings: json!({}),
            before: Vec::new(),
            address: "127.0.0.1".into(),
            allow: "127.0.0.1".into(),
            jobs: SLOTS,
            folder,
        };
        edit(&mut plan);
        plan.write();
        let port = free_port();
        plan.start(port)
    }

    /// What distccd wrote.
    pub(crate) fn log(&self) -> String {
        self.folder.text("log/distccd")
    }

    /// Jobs that distccd says it has done, probes too.
    pub(crate) fn served(&self) -> usize {
        self.log().matches("COMPILE_OK").count()
    }

    /// The link's jobs in the worker's log: lines of a compiler that ran.
    pub(crate) fn worked(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.folder.path("log/worker")).unwrap_or_default();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["result"] == "ran" && line["module"] != "").collect()
    }

    /// As `DISTCC_HOSTS` has it.
    pub(crate) fn entry(&self) -> String {
        format!("{}/{SLOTS}", self.name)
    }

    /// The compiler of a job on this host, as soon as there is one.
    #[track_caller]
    pub(crate) fn compiler(&self) -> Pid {
        self.marked.compiler()
    }

    /// Ends the daemon and all that it has started, as a power cut does.
    pub(crate) fn kill(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        until("the end of a host", || {
            let alive = self.marked.alive();
            for process in &alive {
                let _ = kill_process(process.pid, Signal::KILL);
            }
            alive.is_empty()
        });
    }

    /// Stops the daemon's processes where they are: it takes connections and says nothing.
    pub(crate) fn freeze(&self) {
        for process in self.marked.alive() {
            let _ = kill_process(process.pid, Signal::STOP);
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A port on which nobody listens.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The user of the daemons where the tests run as root; its name and number.
pub(crate) fn daemons_user() -> Option<(String, u32)> {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let number = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        Some((name.to_owned(), line.split(':').nth(2)?.parse().ok()?))
    };
    let root = rustix::process::geteuid().is_root();
    root.then(|| number("distccd").or_else(|| number("nobody")).unwrap())
}

impl Plan {
    fn write(&self) {
        let place = |name: &str| self.folder.path(name).display().to_string();
        let mut settings = json!({
            "compilers": self.compilers, "scratch": place("scratch"), "store": place("store"),
            "log": place("log/worker"),
        });
        let more = self.settings.as_object().unwrap().clone();
        settings.as_object_mut().unwrap().extend(more);
        self.folder.write("worker.json", settings.to_string());
        self.folder.write("commands", self.commands.join("\n") + "\n");
        self.folder.write("log/distccd", "");
        if let Some((_, uid)) = daemons_user() {
            for name in ["tmp", "scratch", "store", "log", "log/distccd"] {
                chown(self.folder.path(name), Some(uid), None).unwrap();
            }
        }
    }

    #[track_caller]
    fn start(self, port: u16) -> Host {
        let (port_text, marked) = (port.to_string(), Marked::new());
        let user = daemons_user().map(|(name, _)| name);
        let [log, commands, settings, tmp] = ["log/distccd", "commands", "worker.json", "tmp"]
            .map(|name| self.folder.path(name).display().to_string());
        let mut words = self.before.clone();
        words.extend(["distccd", "--daemon", "--no-detach", "--log-level=info"].map(str::to_owned));
        words.extend(user.iter().flat_map(|user| ["--user".to_owned(), user.clone()]));
        words.extend(["--listen", &self.address, "--allow", &self.allow].map(str::to_owned));
        words.extend(["--port", &port_text, "--log-file", &log].map(str::to_owned));
        words.extend(["--jobs".to_owned(), self.jobs.to_string()]);
        let environment: BTreeMap<&str, &str> = [
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("TMPDIR", &tmp),
            ("DISTCC_CMDLIST", &commands),
            ("DTLTO_WORKER_CONFIG", &settings),
            (MARK, &marked.mark),
        ]
        .into();
        let daemon = Command::new(tool(&words[0]))
            .args(&words[1..])
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let name = format!("{}:{port}", self.address);
        let host = Host { folder: self.folder, name, port, marked, daemon };
        until("a daemon", || host.log().contains("daemon started"));
        host
    }
}

/// Tells what a fault has cost; `cargo test -- --nocapture` shows it.
pub(crate) fn note(what: &str, output: &Output) {
    eprintln!("{what}: {:.2} s", output.took.as_secs_f64());
}

/// What turns a link of clang into one on distcc's hosts, and nowhere else; its statistics go into the folder `stats`.
pub(crate) fn through_distcc(stats: &Folder) -> Vec<String> {
    let stats = format!("--stats={}", stats.path("stats.json").display());
    let options = ["--adapter=distcc", "--fallback=never", &stats];
    let given = options.iter().map(|option| format!("-Xthinlto-distributor={option}"));
    [format!("-fthinlto-distributor={}", bridge_path())].into_iter().chain(given).collect()
}

/// All `jobs` of the last link were made by `hosts`: the bridge, the daemons and the workers agree on how many
/// each one made.
#[track_caller]
pub(crate) fn assert_all_agree(stats: &Value, hosts: &[&Host], jobs: usize, output: &Output) {
    assert_bridged(output, jobs);
    assert_eq!(stats["places"]["farm"], jobs, "{stats:#}{output}");
    assert_eq!((&stats["places"]["local"], &stats["tool_local"]), (&0.into(), &0.into()));
    let mut sum = 0;
    for host in hosts {
        let made = stats["hosts"][&host.name].as_u64().unwrap_or(0) as usize;
        // The daemon has answered one probe, too.
        assert_eq!(host.served(), made + 1, "{}: {}{stats:#}", host.name, host.log());
        assert_eq!(host.worked().len(), made, "{:#?}", host.worked());
        sum += made;
    }
    assert_eq!(sum, jobs, "{stats:#}");
}

/// A user's machine: three jobs as LLD left them, and a home of its own, since links remember hosts there.
pub(crate) struct Client {
    pub(crate) home: Folder,
    pub(crate) jobs: LinkJobs,
    file: PathBuf,
}

impl Client {
    pub(crate) fn new() -> Client {
        Client::linking(&[])
    }

    /// The link has `more` arguments.
    #[track_caller]
    pub(crate) fn linking(more: &[&str]) -> Client {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        Client::of(folder, &["a.o", "b.o", "c.o"], more)
    }

    /// The jobs of a link of `objects`.
    #[track_caller]
    pub(crate) fn of(folder: Folder, objects: &[&str], more: &[&str]) -> Client {
        let jobs = LinkJobs::of(folder, objects, more);
        let mut names = jobs.folder.list("").into_iter();
        let name = names.find(|name| name.ends_with(".dist-file.json")).unwrap();
        let file = jobs.folder.path(name);
        Client { home: Folder::new(), jobs, file }
    }

    /// One job, for which clang takes some seconds.
    #[track_caller]
    pub(crate) fn with_long_job() -> Client {
        let folder = Folder::new();
        long_module(&folder, "main.o");
        Client::of(folder, &["main.o"], &[])
    }

    /// `run` as this user would run it, without `DISTCC_HOSTS`.
    pub(crate) fn user(home: &Folder, run: Run) -> Run {
        ["DISTCC_HOSTS", "DISTCC_DIR", "DISTCC_SSH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"]
            .into_iter()
            .fold(run, Run::env_remove)
            .env("HOME", home.path(""))
    }

    /// Forgets what it knows of hosts.
    pub(crate) fn forget(&mut self) {
        self.home = Folder::new();
    }

    /// `doctor` for these hosts; links after it know what it has found.
    pub(crate) fn doctor(&self, hosts: &[&str]) -> Run {
        let run = bridge().args(["doctor", "--adapter=distcc", "--compiler=clang-22"]);
        Client::user(&self.home, run).env("DISTCC_HOSTS", hosts.join(" "))
    }

    /// The bridge on these jobs.
    pub(crate) fn run(&self, hosts: &[&str], options: &[&str]) -> Run {
        let run = bridge()
            .args(["--local-jobs=64", "--stats=stats.json", "--adapter=distcc"])
            .args(options)
            .arg(&self.file)
            .cwd(self.jobs.folder.path(""));
        Client::user(&self.home, run).env("DISTCC_HOSTS", hosts.join(" "))
    }

    pub(crate) fn stats(&self) -> Value {
        self.jobs.stats()
    }

    /// All objects are there and right, and so many were made on the farm; nothing else is there.
    #[track_caller]
    pub(crate) fn assert_made(&self, farm: usize, output: &Output) {
        self.jobs.assert_made(farm, output);
    }

    /// No object, no bundle, no folder of ours.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        self.jobs.assert_nothing_left();
    }
}
