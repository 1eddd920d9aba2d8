//! A farm of icecream whose daemons are hosts of their own: each has a network, a name and a view of this machine of its
//! own, in which there is no compiler. All are unmodified and end with the test. It does not know what is linked.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use dtlto_bridge::jobfile::Job;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Folder, LinkJobs, MARK, Marked, Modules, Output, Run, Running, static_bridge, until};

/// The hub: the network, the scheduler, and the daemon of the machine that links, with `$HUB_OPTIONS`. `$0` is the
/// farm's folder, `$@` are nodes, each as `NAME MEMORY OPTIONS...`; their scripts are in that folder.
const HUB: &str = r#"
cd "$0"
mount --make-rprivate /
mount -t tmpfs tmpfs /run; install -d -o icecc -g icecc /run/icecc
# To the daemons this machine is idle, whatever tests do to it.
cp /proc/stat /run/stat; mount --bind /run/stat /proc/stat
hostname hub
ip link set lo up
ip link add br0 type bridge; ip addr add 10.77.0.1/24 dev br0; ip link set br0 up
install -d -o icecc -g icecc logs bases
icecc-scheduler -n grid -vvv -l "$0/logs/scheduler" &
number=1
for node in "$@"; do
    number=$((number + 1))
    unshare --net --mount --uts bash node "$0" $number $node &
    until [ -e "joined.$number" ]; do sleep 0.01; done
    ip link add v$number type veth peer name eth0 netns $!
    ip link set v$number master br0 up
    : >"linked.$number"
done
until grep -q 'scheduler ready' logs/scheduler; do sleep 0.01; done
: >ready
export ICECC_TESTS=1 # to look for the scheduler again after 3 s
exec iceccd -n grid -s 10.77.0.1 $HUB_OPTIONS -N hub -b "$0/bases/hub" -l "$0/logs/hub" -vvv
"#;

/// A node: the farm's folder, its number, name, megabytes of free memory or `-`, and options of its daemon.
const NODE: &str = r#"
farm=$1 number=$2 name=$3 memory=$4; shift 4
mount --make-rprivate /
: >"joined.$number"
for tree in /usr/lib/llvm-*; do mount -t tmpfs tmpfs "$tree"; done
for program in /usr/bin/clang* /usr/bin/gcc /usr/bin/g++ /usr/bin/cc /usr/bin/c++; do
    if [ -e "$program" ]; then mount --bind /dev/null "$(readlink -f "$program")"; fi
done
mount -t tmpfs tmpfs /run; install -d -o icecc -g icecc /run/icecc
cp /proc/stat /run/stat; mount --bind /run/stat /proc/stat
if [ "$memory" != - ]; then
    printf 'MemTotal: %d kB\nMemFree: %d kB\nBuffers: 0 kB\nCached: 0 kB\n' $((memory * 2048 + 1048576)) $((memory * 1024)) >/run/meminfo
    mount --bind /run/meminfo /proc/meminfo
fi
hostname "$name"
until [ -e "linked.$number" ]; do sleep 0.01; done
ip link set lo up; ip addr add 10.77.0.$number/24 dev eth0; ip link set eth0 up
until [ -e ready ]; do sleep 0.01; done
export ICECC_TESTS=1
exec iceccd -n grid -s 10.77.0.1 -N "$name" -b "$farm/bases/$name" -l "$farm/logs/$name" -vvv "$@"
"#;

/// What a daemon logs when it has got an environment; then it waits until that is unpacked, and tries it out.
const RECEIVED: &str = "received end of environment";

/// A node as all should be.
pub(crate) const GOOD: &str = "- -m 2 --cache-limit 2000";

/// The farm.
pub(crate) struct Grid {
    pub(crate) folder: Folder,
    marked: Marked,
    hub: Pid,
    nodes: Vec<String>,
    _daemons: Running,
}

impl Grid {
    /// What is missing for it.
    pub(crate) fn missing() -> Option<String> {
        let tools = ["icecc", "iceccd", "icecc-scheduler", "unshare", "nsenter", "ip", "hostname"];
        let root = || {
            let root = rustix::process::geteuid().is_root();
            (!root).then(|| "only root can make the namespaces of a farm".to_owned())
        };
        let worker = || static_bridge().as_ref().err().cloned();
        super::missing(&tools).or_else(root).or_else(worker)
    }

    /// Starts nodes, each `NAME MEMORY OPTIONS...`, and waits until the scheduler gives jobs to them, but for those
    /// called `full`.
    #[track_caller]
    pub(crate) fn start(nodes: &[&str]) -> Grid {
        Grid::start_where("--no-remote -m 0", nodes)
    }

    /// The same where the daemon of the machine that links has options of its own; [`Grid::start`] has it compile
    /// nothing.
    #[track_caller]
    pub(crate) fn start_where(hub: &str, nodes: &[&str]) -> Grid {
        let (folder, marked) = (Folder::new(), Marked::new());
        folder.write("node", NODE);
        // The daemons' user must come to its folders.
        super::folder::open_to_all(&folder.path(""));
        let run = Run::new("unshare").args(["--net", "--mount", "--uts", "bash", "-c", HUB]);
        let run =
            run.arg(folder.path("")).args(nodes).env("HUB_OPTIONS", hub).env(MARK, &marked.mark);
        let daemons = run.limit(600).start();
        let hub = daemons.pid();
        let nodes: Vec<String> =
            nodes.iter().map(|node| node.split(' ').next().unwrap().to_owned()).collect();
        let grid = Grid { folder, marked, hub, nodes, _daemons: daemons };
        until("the scheduler knows all daemons", || {
            let log = grid.try_log("scheduler");
            log.matches("login ").count() == grid.nodes.len() + 1
        });
        let full = grid.nodes.iter().filter(|node| node.starts_with("full")).count();
        until("the nodes take jobs", || {
            let listed = grid.ask("listcs");
            let loads = listed.lines().filter_map(|line| line.split_once(" load="));
            let idle = loads.filter(|(_, load)| load.trim() != "1000").count();
            idle == grid.nodes.len() + 1 - full
        });
        grid
    }

    /// What a daemon has logged.
    pub(crate) fn log(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.folder.read(format!("logs/{name}"))).into_owned()
    }

    fn try_log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path(format!("logs/{name}"))).unwrap_or_default()
    }

    /// Jobs that a node says it has been given.
    pub(crate) fn given(&self, node: &str) -> usize {
        self.log(node).matches("remote compile for file").count()
    }

    /// The node that has got a job of this module, as soon as one has.
    #[track_caller]
    pub(crate) fn node_of(&self, module: &str, link: &Submitter) -> String {
        let folder = link.jobs.folder.path("").display().to_string();
        let has = |node: &&String| {
            let log = self.try_log(node);
            log.lines().any(|line| {
                line.contains("remote compile for file")
                    && line.contains(&folder)
                    && line.contains(module)
            })
        };
        let mut found = None;
        until("a node has the job", || {
            found = self.nodes.iter().find(has).cloned();
            found.is_some()
        });
        found.unwrap()
    }

    /// Environments that a node has got.
    pub(crate) fn installed(&self, node: &str) -> usize {
        self.log(node).matches("Verify environment done, success").count()
    }

    /// Asks the scheduler's text port.
    pub(crate) fn ask(&self, command: &str) -> String {
        let script = format!(
            "exec 3<>/dev/tcp/10.77.0.1/8766 && printf '{command}\\nquit\\n' >&3 && cat <&3"
        );
        self.among_daemons("bash").args(["-c", &script]).go().stdout
    }

    /// A program on the machine that links.
    pub(crate) fn among_daemons(&self, program: impl AsRef<Path>) -> Run {
        let here = std::env::current_dir().unwrap();
        self.among_daemons_in(&here, program)
    }

    /// The same in `folder`.
    pub(crate) fn among_daemons_in(&self, folder: &Path, program: impl AsRef<Path>) -> Run {
        Run::new("nsenter")
            .args(["--target", &self.hub.as_raw_nonzero().to_string(), "--net", "--mount"])
            // Its own --wd would lead into the namespace that it leaves.
            .args(["sh", "-c", "cd \"$0\" && exec \"$@\""])
            .arg(folder)
            .arg(program.as_ref())
    }

    /// A program as a node sees this machine.
    pub(crate) fn on_node(&self, node: &str, program: &str) -> Run {
        let target = self.daemon(node).as_raw_nonzero().to_string();
        Run::new("nsenter").args(["--target", &target, "--net", "--mount", "--uts", program])
    }

    /// The main process of a daemon: `hub`, `scheduler` or a node.
    #[track_caller]
    pub(crate) fn daemon(&self, name: &str) -> Pid {
        let log = self.folder.path(format!("logs/{name}")).display().to_string();
        let is = |argv: &[String]| argv.contains(&log);
        let mut found: Vec<Pid> =
            self.marked.alive().into_iter().filter(|p| is(&p.argv)).map(|p| p.pid).collect();
        // Its children have the same command line, and higher numbers.
        found.sort_by_key(|pid| pid.as_raw_nonzero());
        *found.first().unwrap_or_else(|| panic!("{name} does not run"))
    }

    /// Sends a signal to a daemon's main process.
    #[track_caller]
    pub(crate) fn signal(&self, name: &str, signal: Signal) {
        kill_process(self.daemon(name), signal).unwrap();
    }

    /// Halts a node as soon as it has got all of an environment, before it has tried that out.
    #[track_caller]
    pub(crate) fn halt_before_it_has_installed(&self, node: &str) {
        let daemon = self.daemon(node);
        until("the node has got the environment", || self.try_log(node).contains(RECEIVED));
        kill_process(daemon, Signal::STOP).unwrap();
        assert_eq!(self.installed(node), 0, "{node} was faster");
    }

    /// Cuts the cable of a node.
    pub(crate) fn cut(&self, node: &str) {
        let number = self.nodes.iter().position(|name| name == node).unwrap() + 2;
        let cable = format!("v{number}");
        self.among_daemons("ip").args(["link", "set", &cable, "down"]).go().ok();
    }

    /// Where a node keeps the environments that it has got.
    pub(crate) fn environments(&self, node: &str) -> Vec<std::path::PathBuf> {
        let place = self.folder.path(format!("bases/{node}/target=x86_64"));
        let found = fs::read_dir(place).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

/// Who links: three jobs as LLD left them, and a home of its own.
pub(crate) struct Submitter {
    pub(crate) home: Folder,
    pub(crate) jobs: LinkJobs,
    file: std::path::PathBuf,
    expected: OnceLock<Vec<Vec<u8>>>,
}

/// So many functions keep a compiler busy for seconds.
const SLOW: usize = 300;

impl Submitter {
    pub(crate) fn new() -> Submitter {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        Submitter::of(folder, &["a.o", "b.o", "c.o"])
    }

    /// Another job, which takes seconds; the linker names it last.
    pub(crate) fn slow() -> Submitter {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        let function = |n: usize| {
            format!(
                "__attribute__((used)) int slow{n}(int *p, int n) {{ int s = {n}; for (int i = 0; i < n; i++) \
                 for (int j = i; j < n; j++) s += p[i] * {} + p[j] / (i + {n} + 1); return s; }}\n",
                n % 7 + 2
            )
        };
        folder.write("src/slow.cpp", (0..SLOW).map(function).collect::<String>());
        let compile = super::clangxx().args(["-O1", "-flto=thin"]);
        compile.args(["-c", "src/slow.cpp", "-o", "slow.o"]).cwd(folder.path("")).go().ok();
        Submitter::of(folder, &["a.o", "b.o", "c.o", "slow.o"])
    }

    /// The jobs of a link of `objects`.
    #[track_caller]
    pub(crate) fn of(folder: Folder, objects: &[&str]) -> Submitter {
        let jobs = LinkJobs::of(folder, objects, &[]);
        let mut names = jobs.folder.list("").into_iter();
        let name = names.find(|name| name.ends_with(".dist-file.json")).unwrap();
        let file = jobs.folder.path(name);
        let submitter = Submitter { home: Folder::new(), jobs, file, expected: OnceLock::new() };
        submitter.forget();
        submitter
    }

    /// Forgets what it knows of farms, but not the environment, whose making takes long.
    pub(crate) fn forget(&self) {
        let cache = self.home.mkdir(".cache/dtlto-bridge");
        for name in ["hosts.json", "hosts.lock"] {
            let _ = fs::remove_file(cache.join(name));
        }
        let shared = super::environments();
        fs::create_dir_all(shared.join("icecc")).unwrap();
        let own = cache.join("icecc");
        if !own.exists() {
            std::os::unix::fs::symlink(shared.join("icecc"), own).unwrap();
        }
    }

    /// Has all jobs made by another compiler.
    pub(crate) fn compiler(&mut self, path: &Path) {
        let text = fs::read_to_string(&self.file).unwrap();
        let path = path.to_str().unwrap();
        fs::write(&self.file, text.replace(&*self.jobs.file.compiler, path)).unwrap();
        self.jobs.file.compiler = path.into();
    }

    /// The job file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The bridge on these jobs, on the machine that links.
    pub(crate) fn run(&self, grid: &Grid, options: &[&str]) -> Run {
        let bridge = static_bridge().as_ref().unwrap();
        let run = grid.among_daemons_in(&self.jobs.folder.path(""), bridge);
        self.user(run)
            .args(["--local-jobs=64", "--stats=stats.json", "--adapter=icecc"])
            .args(options)
            .arg(&self.file)
    }

    /// `run` as this user would run it.
    pub(crate) fn user(&self, run: Run) -> Run {
        let known = ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "ICECC_TEST_SOCKET", "ICECC_VERSION"];
        known.into_iter().fold(run, Run::env_remove).env("HOME", self.home.path(""))
    }

    pub(crate) fn stats(&self) -> Value {
        self.jobs.stats()
    }

    /// All objects are there and right, and so many were made on the farm; nothing else is there.
    #[track_caller]
    pub(crate) fn assert_made(&self, farm: usize, output: &Output) {
        self.jobs.assert_places(farm, output);
        let (folder, jobs) = (&self.jobs.folder, &self.jobs.file.jobs);
        let made = |job: &Job| {
            let object = folder.read(&*job.object);
            fs::remove_file(folder.path(&*job.object)).unwrap();
            object
        };
        let found: Vec<_> = jobs.iter().map(made).collect();
        let here = || (0..jobs.len()).map(|number| self.jobs.made_here(number)).collect();
        let expected = self.expected.get_or_init(here);
        for (number, object) in found.iter().enumerate() {
            assert!(*object == expected[number], "jobs[{number}]");
        }
        self.assert_nothing_left();
    }

    /// No object, no pipe, no folder of ours.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        self.jobs.assert_nothing_left();
    }
}
