//! A farm of icecream on one machine: a scheduler, a submitter that compiles nothing, and nodes, all unmodified, in
//! namespaces of their own that die with the test. Needs root. It does not know what is sent there.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Folder, Output, Run, Running, until};

/// As the daemons are asked to start: each in the foreground, found by files in the folder `$0`.
const START: &str = r#"
set -u
ip link set lo up
# To the daemons this machine is idle, whatever tests do to it.
cp /proc/stat "$0/stat"; mount --bind "$0/stat" /proc/stat
chown icecc:icecc "$0"; chmod 755 "$0"
icecc-scheduler -n test -p 18765 -l "$0/scheduler.log" -vvv &
for node in submitter "$@"; do
    case $node in submitter) more='--no-remote -m 0' ;; *) more=${node#*:} node=${node%%:*} ;; esac
    install -d -o icecc -g icecc "$0/base.$node"
    ( ICECC_TESTS=1 ICECC_TEST_SOCKET=$0/$node.sock exec iceccd -n test -s 127.0.0.1:18765 -N "$node" \
        -b "$0/base.$node" -l "$0/$node.log" -vvv $more ) &
done
wait
"#;

/// The farm; it ends with this value.
pub(crate) struct Icecream {
    pub(crate) folder: Folder,
    pid: u32,
    _daemons: Running,
}

impl Icecream {
    /// The programs that it needs.
    pub(crate) fn missing() -> Option<String> {
        let tools = ["icecc", "iceccd", "icecc-scheduler", "unshare", "nsenter", "ip"];
        super::missing(&tools).or_else(|| {
            let root = rustix::process::geteuid().is_root();
            (!root).then(|| "only root can make the namespaces of a farm".to_owned())
        })
    }

    /// Starts it; `nodes` are names, each with options of its daemon behind a colon.
    #[track_caller]
    pub(crate) fn start(nodes: &[&str]) -> Icecream {
        let folder = Folder::new();
        let daemons = Run::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", START])
            .arg(folder.path(""))
            .args(nodes)
            .limit(600)
            .start();
        let stub = folder.script("stub/clang", "exit 77");
        assert!(stub.exists());
        let log = folder.path("scheduler.log");
        let ready = || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.matches("login ").count() == nodes.len() + 1
        };
        until("the farm is up", ready);
        let outside = daemons.pid().as_raw_nonzero();
        let children = format!("/proc/{outside}/task/{outside}/children");
        let pid = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        Icecream { folder, pid, _daemons: daemons }
    }

    /// A program among the daemons, in `folder`.
    pub(crate) fn run(&self, folder: &Path, program: &str) -> Run {
        Run::new("nsenter")
            .args(["--target", &self.pid.to_string(), "--net", "--mount"])
            .arg(format!("--wd={}", folder.display()))
            .arg(program)
    }

    /// Has `request`, an `.i` file, compiled into `response` with the environment in `archive`.
    #[track_caller]
    pub(crate) fn compile(&self, archive: &Path, request: &Path, response: &Path) -> Output {
        self.client(archive, request, response).go()
    }

    /// The client that does so.
    pub(crate) fn client(&self, archive: &Path, request: &Path, response: &Path) -> Run {
        self.run(request.parent().unwrap(), "icecc")
            .arg(self.folder.path("stub/clang"))
            .args(["-target", "x86_64-pc-linux-gnu", "-c"])
            .arg(request)
            .arg("-o")
            .arg(response)
            .env("ICECC_TEST_SOCKET", self.folder.path("submitter.sock"))
            .env("ICECC_TEST_REMOTEBUILD", "1")
            .env("ICECC_VERSION", archive)
            .env("ICECC_ENV_COMPRESSION", "zstd")
            .env("ICECC_DEBUG", "debug")
            .env("ICECC_LOGFILE", self.folder.path("client.log"))
    }

    /// Where a node has unpacked the environment of this name.
    pub(crate) fn unpacked(&self, node: &str, name: &str) -> PathBuf {
        self.folder.path(format!("base.{node}/target=x86_64/{name}"))
    }

    /// What a daemon has logged.
    pub(crate) fn log(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.folder.read(format!("{name}.log"))).into_owned()
    }
}
