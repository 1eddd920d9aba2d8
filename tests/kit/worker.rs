//! LinkJobs of a real link, packed for a worker, and a worker to run them. It does not know what is tested.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use dtlto_bridge::bundle::{
    About, Answer, Expected, Library, Limits, Names, Prepared, Received, prepare, receive,
};
use dtlto_bridge::jobfile::JobFile;
use dtlto_bridge::toolchain::{Identity, Options, identify};
use dtlto_bridge::worker::compiler::identity_by_bytes;
use serde_json::Value;

use super::{Folder, Output, Run, bridge_path, link, lld_link, tool};

/// The jobs of a link that was given up, in a folder of their own.
pub(crate) struct LinkJobs {
    pub(crate) folder: Folder,
    pub(crate) file: JobFile,
}

impl LinkJobs {
    /// Links `objects`, absolute paths in `folder`, as far as to the job file. Its arguments get `more`.
    #[track_caller]
    pub(crate) fn of(folder: Folder, objects: &[&str], more: &[&str]) -> LinkJobs {
        // The distributor makes nothing, so that the link fails and all is left as it was before the jobs.
        let output = link()
            .args(objects.iter().map(|object| folder.path(object)))
            .args(["-fthinlto-distributor=/bin/true", "-Wl,--save-temps", "-o"])
            .arg(folder.path("app"))
            .args(more)
            .cwd(folder.path(""))
            .go()
            .code(1);
        LinkJobs::given_up(folder, &output)
    }

    /// The same for Windows. Objects get no time stamp.
    #[track_caller]
    pub(crate) fn of_windows(folder: Folder, objects: &[&str]) -> LinkJobs {
        let output = lld_link()
            .args(["/nodefaultlib", "/entry:main", "/subsystem:console", "/lldsavetemps"])
            .arg("/thinlto-distributor:/bin/true")
            .arg(format!("/out:{}", folder.path("app.exe").display()))
            .arg(format!("/thinlto-remote-compiler:{}", tool("clang-22").display()))
            .arg("/thinlto-remote-compiler-arg:-mno-incremental-linker-compatible")
            .args(objects.iter().map(|object| folder.path(object)))
            .cwd(folder.path(""))
            .go()
            .code(1);
        LinkJobs::given_up(folder, &output)
    }

    #[track_caller]
    fn given_up(folder: Folder, output: &Output) -> LinkJobs {
        let name = folder.list("").into_iter().find(|name| name.ends_with(".dist-file.json"));
        let name = name.unwrap_or_else(|| panic!("no job file: {output}"));
        let file = JobFile::read(&folder.path(name)).unwrap();
        LinkJobs { folder, file }
    }

    /// A job, packed but for what a test changes in it. It wants the compiler that `clang-22` is.
    pub(crate) fn prepare(&self, number: usize) -> Prepared {
        let about = About {
            link: "7f3a".into(),
            user: "me".into(),
            host: "here".into(),
            compiler: identity(&tool("clang-22")),
            environment: Vec::new(),
            time_limit_s: 60,
        };
        let names = Names::new(&self.file.jobs);
        let job = &self.file.jobs[number];
        prepare(job, (number, 1), (&names, &Library::default()), &about).unwrap()
    }

    /// What `--stats=stats.json` said.
    pub(crate) fn stats(&self) -> Value {
        serde_json::from_slice(&self.folder.read("stats.json")).unwrap()
    }

    /// So many objects were made on the farm, and the others here.
    #[track_caller]
    pub(crate) fn assert_places(&self, farm: usize, output: &Output) {
        let (stats, count) = (self.stats(), self.file.jobs.len());
        assert_eq!(stats["places"]["farm"], farm, "{stats:#}{output}");
        assert_eq!(stats["places"]["local"], count - farm, "{stats:#}{output}");
    }

    /// All objects are there and right, and so many were made on the farm; nothing else is there.
    #[track_caller]
    pub(crate) fn assert_made(&self, farm: usize, output: &Output) {
        self.assert_places(farm, output);
        let found: Vec<_> =
            self.file.jobs.iter().map(|job| self.folder.read(&*job.object)).collect();
        for (number, object) in found.iter().enumerate() {
            assert!(*object == self.made_here(number), "jobs[{number}]");
        }
        self.assert_nothing_left();
    }

    /// No object, no bundle, no pipe, no folder of ours.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        let left = self.folder.list("").into_iter().filter(|name| {
            let ours = ["/", ".i", ".out", ".native.o"].iter().any(|end| name.ends_with(end));
            ours || name.contains("dtlto-bridge")
        });
        assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
    }

    /// The bytes of the object that the job's own command makes here.
    #[track_caller]
    pub(crate) fn made_here(&self, number: usize) -> Vec<u8> {
        let job = &self.file.jobs[number];
        Run::new(&*self.file.compiler)
            .args(job.args.iter().map(|arg| &**arg))
            .cwd(self.folder.path(""))
            .go()
            .ok();
        let object = self.folder.path(&*job.object);
        let bytes = fs::read(&object).unwrap();
        fs::remove_file(&object).unwrap();
        bytes
    }
}

/// What `compiler` is, in the environment that a worker gives it.
pub(crate) fn identity(compiler: &Path) -> Identity {
    identified(compiler, false)
}

/// The same for jobs that have it start `ld.lld`.
pub(crate) fn identity_with_linker(compiler: &Path) -> Identity {
    identified(compiler, true)
}

fn identities() -> PathBuf {
    super::target_dir().join("tmp/identities")
}

fn identified(compiler: &Path, with_ld_lld: bool) -> Identity {
    let cache = identities();
    let options = Options { cache_folder: Some(&cache), with_ld_lld, ..Options::default() };
    identify(compiler, None, &options).unwrap().identity
}

/// A worker with settings of its own.
pub(crate) struct Worker {
    pub(crate) folder: Folder,
    compiler: Option<Folder>,
}

impl Worker {
    /// Allows `clang-22`; `more` are further keys with their values, or nothing.
    pub(crate) fn new(more: &str) -> Worker {
        Worker::with(&format!("{:?}", tool("clang-22")), more)
    }

    /// Allows `compilers`, the elements of a JSON list.
    pub(crate) fn with(compilers: &str, more: &str) -> Worker {
        let folder = Folder::new();
        let scratch = folder.mkdir("scratch");
        let comma = if more.is_empty() { "" } else { ", " };
        let settings =
            format!(r#"{{"compilers": [{compilers}], "scratch": {scratch:?}{comma}{more}}}"#);
        folder.write("worker.json", settings);
        // It need not read the whole compiler anew in each test.
        let own = format!("scratch/dtlto-worker-{}", rustix::process::geteuid().as_raw());
        fs::DirBuilder::new().mode(0o700).create(folder.path(&own)).unwrap();
        for known in fs::read_dir(identities()).into_iter().flatten().flatten() {
            fs::copy(known.path(), folder.path(&own).join(known.file_name())).unwrap();
        }
        Worker { folder, compiler: None }
    }

    /// The worker, with `args`.
    pub(crate) fn run<A: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Run {
        let settings = self.folder.path("worker.json");
        Run::new(bridge_path()).arg("worker").args(args).env("DTLTO_WORKER_CONFIG", settings)
    }

    /// Packs a job for it.
    pub(crate) fn pack(&self, prepared: &mut Prepared) -> PathBuf {
        let path = self.folder.path("request");
        prepared.pack(File::create(&path).unwrap(), &Limits::default()).unwrap();
        path
    }

    /// Lets it do a job, and reads its response.
    #[track_caller]
    pub(crate) fn answer(&self, prepared: &mut Prepared) -> Answered {
        let request = self.pack(prepared);
        let output = self.run([request, self.folder.path("response")]).go().ok();
        self.read(prepared, output)
    }

    /// Reads its response; it never prints.
    #[track_caller]
    pub(crate) fn read(&self, prepared: &Prepared, output: Output) -> Answered {
        let place = |name: &String| (name.clone(), self.folder.path(format!("got-{name}")));
        self.received(prepared, prepared.request.outputs.iter().map(place).collect(), output)
    }

    /// Reads a response to a request whose outputs have names that no file can have.
    #[track_caller]
    pub(crate) fn read_without_outputs(&self, prepared: &Prepared, output: Output) -> Answered {
        self.received(prepared, vec![("out.o".into(), self.folder.path("got-out.o"))], output)
    }

    #[track_caller]
    fn received(
        &self,
        prepared: &Prepared,
        outputs: Vec<(String, PathBuf)>,
        output: Output,
    ) -> Answered {
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output}");
        for (_, path) in &outputs {
            let _ = fs::remove_file(path);
        }
        let expected = Expected { nonce: prepared.request.nonce, link: "7f3a", outputs: &outputs };
        let file = File::open(self.folder.path("response")).unwrap();
        let received = receive(file, &expected, &Limits::default());
        let received = received.unwrap_or_else(|fault| panic!("{fault}: {output}"));
        let object = fs::read(&outputs[0].1).unwrap_or_default();
        Answered { received, object }
    }

    /// What it left in its scratch folder, but for its log and what it remembers.
    pub(crate) fn left(&self) -> Vec<String> {
        let left = self.folder.list("scratch").into_iter();
        left.filter(|name| name.contains("/job-")).collect()
    }

    /// The last line of its log.
    pub(crate) fn logged(&self) -> serde_json::Value {
        let uid = rustix::process::geteuid().as_raw();
        let log = self.folder.text(format!("scratch/dtlto-worker-{uid}/log"));
        serde_json::from_str(log.lines().next_back().unwrap()).unwrap()
    }
}

/// A response and the object in it.
pub(crate) struct Answered {
    pub(crate) received: Received,
    pub(crate) object: Vec<u8>,
}

impl Answered {
    pub(crate) fn answer(&self) -> &Answer {
        &self.received.response.answer
    }

    /// The compiler ran and succeeded.
    #[track_caller]
    pub(crate) fn done(self) -> Vec<u8> {
        let stderr = String::from_utf8_lossy(&self.received.stderr);
        assert_eq!(*self.answer(), Answer::Ran { code: Some(0), signal: None }, "{stderr}");
        self.object
    }
}

impl Worker {
    /// Allows a shell script, by its bytes, instead of a compiler; `prepared` is made to ask for it.
    pub(crate) fn scripted(script: &str, more: &str, prepared: &mut Prepared) -> Worker {
        let folder = Folder::new();
        let path = folder.script("cc", script);
        prepared.request.compiler = identity_by_bytes(&path).unwrap();
        let blake3 = &prepared.request.compiler.code;
        let allowed = format!(r#"{{"path": {path:?}, "blake3": "{blake3}"}}"#);
        let worker = Worker::with(&allowed, more);
        // The script stays as long as its worker.
        Worker { compiler: Some(folder), ..worker }
    }
}
