//! Links as lld-link hands them over on Windows, run by the bridge there with a stand-in for the compiler. It does
//! not know what is tested with them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Folder, MARK, Marked, Output, Run, Wine, on_windows, until};

/// What must be gone is gone by then; Wine is slower than Windows, and the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(8);
/// The link's folder: blanks, quotes, a percent sign and letters beyond ASCII.
pub(crate) const PLACE: &str = "the 'link' 100% große Straße ляля";

/// A link of `count` jobs as lld-link writes it on Windows: modules by relative names with backslashes, outputs
/// and indexes by absolute ones.
pub(crate) struct WindowsLink {
    pub(crate) folder: Folder,
    pub(crate) wine: Arc<Wine>,
    count: usize,
    pub(crate) marked: Marked,
}

impl WindowsLink {
    /// `more(n)` are further arguments of job `n`.
    pub(crate) fn new(wine: Arc<Wine>, count: usize, more: impl Fn(usize) -> Vec<String>) -> Self {
        WindowsLink::at(wine, PLACE, count, more)
    }

    pub(crate) fn at(
        wine: Arc<Wine>,
        at: &str,
        count: usize,
        more: impl Fn(usize) -> Vec<String>,
    ) -> Self {
        let folder = Folder::new();
        folder.mkdir(format!("{at}/out"));
        folder.mkdir("log");
        std::os::unix::fs::symlink(folder.path(at), folder.path("link")).unwrap();
        for n in 0..count {
            folder.write(format!("link/o/m{n}.obj"), format!("module {n}"));
            folder.write(index(n), format!("index {n}\no\\m0.obj\n"));
        }
        let place = on_windows(&folder.path(at));
        let job = |n: usize| {
            let (module, object) = (format!("o\\m{n}.obj"), format!("{place}\\{}", object(n)));
            let index = format!("{object}.thinlto.bc");
            let mut args = vec![module.clone(), format!("-fthinlto-index={index}")];
            args.extend(["-o".into(), object.clone()]);
            args.extend(more(n));
            let mut inputs = vec![module, index];
            inputs.extend((n > 0).then(|| "o\\m0.obj".into()));
            json!({"args": args, "inputs": inputs, "outputs": [object]})
        };
        let jobs: Vec<_> = (0..count).map(job).collect();
        let compiler = on_windows(&wine.compiler());
        let args = [&*compiler, "-c", "--target=x86_64-pc-windows-msvc19.33.0", "-O2"];
        let output = format!("{place}\\out\\app.exe");
        let common = json!({"linker_output": output, "args": args, "inputs": []});
        folder.write("link/jobs.json", json!({"common": common, "jobs": jobs}).to_string());
        WindowsLink { folder, wine, count, marked: Marked::new() }
    }

    pub(crate) fn run(&self, options: &[&str]) -> Run {
        self.in_place(self.wine.bridge()).args(options).arg("jobs.json")
    }

    pub(crate) fn in_place(&self, run: Run) -> Run {
        run.cwd(self.folder.path("link"))
            .env(MARK, &self.marked.mark)
            .env("STAND_IN_LOG", on_windows(&self.folder.path("log")))
            .env("DTLTO_BRIDGE_STATS", "stats.json")
    }

    #[track_caller]
    pub(crate) fn go(&self, options: &[&str]) -> Output {
        let output = self.run(options).go();
        self.marked.gone_within(SOON);
        output
    }

    pub(crate) fn stats(&self) -> Value {
        serde_json::from_slice(&self.folder.read("link/stats.json")).unwrap()
    }

    /// The objects are there, and they are those of the jobs.
    #[track_caller]
    pub(crate) fn made_all(&self) {
        for n in 0..self.count {
            let read = |name: String| digest(&self.folder.read(format!("link/{name}")));
            let index = format!("{}.thinlto.bc", object(n).replace('\\', "/"));
            let digests =
                [read(format!("o/m{n}.obj")), read(index), read("o/m0.obj".into())].concat();
            let found = self.folder.read(format!("link/{}", object(n).replace('\\', "/")));
            assert_eq!(
                (&found[..2], &found[20..found.len() - 4]),
                (&[0x64, 0x86][..], &digests[..]),
                "job {n}"
            );
        }
        assert_eq!(self.left(), self.count, "{:#?}", self.folder.list("link/out"));
    }

    /// How many files lie beside the indexes.
    pub(crate) fn left(&self) -> usize {
        self.folder.list("link/out").iter().filter(|name| !name.ends_with(".bc")).count()
    }

    /// Waits until an object is there, and two further compilers run.
    pub(crate) fn await_middle(&self) {
        until("three compilers", || self.folder.list("log").len() == 3);
        let first = self.folder.path(format!("link/{}", object(0).replace('\\', "/")));
        until("an object", || first.exists());
    }

    /// The arguments of all compilers that ran, in no order.
    pub(crate) fn argvs(&self) -> Vec<String> {
        let names = self.folder.list("log");
        names.iter().map(|name| self.folder.text(format!("log/{name}"))).collect()
    }
}

pub(crate) fn object(n: usize) -> String {
    format!("out\\m{n}.{}.4536.native.o", n + 1)
}

pub(crate) fn index(n: usize) -> String {
    format!("link/out/m{n}.{}.4536.native.o.thinlto.bc", n + 1)
}

/// FNV-1a, as the stand-in has it.
fn digest(bytes: &[u8]) -> [u8; 8] {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes()
}
