//! A farm of sccache-dist on this machine's loopback: scheduler and one host, real ones, and a user whose settings name
//! them. Whatever they started ends with them. They do not know what is linked.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::stores::User;
use super::{
    Folder, MARK, Marked, Modules, Output, Run, bridge_path, free_port, link, missing, target_dir,
    tool, until,
};

/// The scheduler, and its only host.
pub(crate) struct DistFarm {
    folder: Folder,
    marked: Marked,
    scheduler: u16,
    children: Vec<Child>,
    _turn: MutexGuard<'static, ()>,
}

/// A farm and what is linked on it keep a small machine busy: one at a time.
static TURN: Mutex<()> = Mutex::new(());

const TOKEN: &str = "the client's token";

impl DistFarm {
    /// The reason why there can be none here.
    pub(crate) fn impossible() -> Option<String> {
        let tools = ["sccache", "sccache-dist", "bwrap", "clang-22", "ld.lld-22"];
        missing(&tools).or_else(|| {
            let root = rustix::process::geteuid().is_root();
            (!root).then(|| "a host of sccache-dist needs root".to_owned())
        })
    }

    pub(crate) fn new() -> Self {
        let (scheduler, host) = (free_port(), free_port());
        let (folder, marked) = (Folder::new(), Marked::new());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut farm = DistFarm { folder, marked, scheduler, children: Vec::new(), _turn };
        farm.folder.write(
            "scheduler.toml",
            format!(
                "public_addr = \"127.0.0.1:{scheduler}\"\n[client_auth]\ntype = \"token\"\ntoken = \"{TOKEN}\"\n\
                 [server_auth]\ntype = \"DANGEROUSLY_INSECURE\"\n"
            ),
        );
        let place = |name: &str| farm.folder.path(name).display().to_string();
        let host = format!(
            "cache_dir = \"{}\"\npublic_addr = \"127.0.0.1:{host}\"\nscheduler_url = \"http://127.0.0.1:{scheduler}\"\n\
             [builder]\ntype = \"overlay\"\nbuild_dir = \"{}\"\nbwrap_path = \"{}\"\n\
             [scheduler_auth]\ntype = \"DANGEROUSLY_INSECURE\"\n",
            place("toolchains"),
            place("build"),
            tool("bwrap").display()
        );
        farm.folder.write("server.toml", host);
        farm.start("scheduler");
        farm.start("server");
        until("a host at the scheduler", || farm.log("server").contains("connected to scheduler"));
        farm
    }

    fn start(&mut self, role: &str) {
        let log = fs::File::create(self.folder.path(format!("{role}.log"))).unwrap();
        let child = Command::new(tool("sccache-dist"))
            .args([role, "--config"])
            .arg(self.folder.path(format!("{role}.toml")))
            .envs([("SCCACHE_NO_DAEMON", "1"), ("SCCACHE_LOG", "debug"), (MARK, &self.marked.mark)])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.children.push(child);
        if role == "scheduler" {
            let port = self.scheduler;
            until("a scheduler", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
    }

    /// What `scheduler` or `server` wrote.
    pub(crate) fn log(&self, role: &str) -> String {
        fs::read_to_string(self.folder.path(format!("{role}.log"))).unwrap_or_default()
    }

    /// The host is gone; the scheduler does not know it yet.
    pub(crate) fn kill_host(&mut self) {
        let _ = self.children[1].kill();
        let _ = self.children[1].wait();
    }

    /// A user whose settings name this farm, and nothing else, and who has never used it.
    pub(crate) fn cold_user(&self) -> User {
        let user = User::new();
        let packed = user.folder.path("client");
        self.settle(user, &packed)
    }

    /// Another one, with a compiler that was packed and sent before: that takes half a minute.
    pub(crate) fn user(&self) -> User {
        let packed = target_dir().join("packed-for-sccache-dist");
        let (earlier, folder) = (self.settle(User::new(), &packed), Folder::new());
        Modules::compile(&folder, "", &[]);
        let objects = ["a.o", "b.o", "c.o"].map(str::to_owned);
        dist_link(&earlier, &folder, &objects, "found", &["--retries=0"]).go().ok();
        self.settle(User::new(), &packed)
    }

    fn settle(&self, user: User, packed: &Path) -> User {
        let settings = format!(
            "[dist]\nscheduler_url = \"http://127.0.0.1:{}\"\ncache_dir = \"{}\"\n\
             [dist.auth]\ntype = \"token\"\ntoken = \"{TOKEN}\"\n",
            self.scheduler,
            packed.display()
        );
        user.folder.write("home/.config/sccache/config", settings);
        user
    }
}

impl Drop for DistFarm {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = kill_process(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

/// A link of `objects` to `output` by this user, with these options of the bridge.
pub(crate) fn dist_link(
    user: &User,
    folder: &Folder,
    objects: &[String],
    output: &str,
    options: &[&str],
) -> Run {
    let stats = format!("--stats={}", folder.path("stats.json").display());
    let given = ["--adapter=sccache", &stats].into_iter().chain(options.iter().copied());
    let run = link()
        .args(objects)
        .args(["-lstdc++", "-o", output])
        .arg(format!("-fthinlto-distributor={}", bridge_path()))
        .args(given.map(|option| format!("-Xthinlto-distributor={option}")))
        .cwd(folder.path(""))
        .limit(180);
    as_user(user, run)
}

/// `run` in the environment of this user.
pub(crate) fn as_user(user: &User, run: Run) -> Run {
    let run = ["CCC_OVERRIDE_OPTIONS", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"]
        .into_iter()
        .fold(run, Run::env_remove);
    user.environment.iter().fold(run, |run, (name, value)| run.env(name, value))
}

/// What `--stats` said last.
pub(crate) fn dist_stats(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("stats.json")).unwrap()
}

/// The statistics of this user's only server.
pub(crate) fn server_stats(user: &User) -> Value {
    let servers = user.servers();
    assert_eq!(servers.len(), 1, "{servers:?}");
    let environment = fs::read(format!("/proc/{}/environ", servers[0].pid)).unwrap();
    let text = String::from_utf8(environment).unwrap();
    let address = text.split('\0').find_map(|entry| entry.strip_prefix("SCCACHE_SERVER_UDS="));
    assert!(Path::new(address.unwrap()).exists());
    let run = Run::new("sccache").args(["--show-stats", "--stats-format=json"]);
    let output: Output = run.env("SCCACHE_SERVER_UDS", address.unwrap()).go().ok();
    serde_json::from_str(&output.stdout).unwrap()
}
