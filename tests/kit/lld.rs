//! Links by LLD itself, without a driver, of the three modules, with a script as their compiler. It
//! does not know what the script does.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Folder, Modules, Run, bridge, bridge_path, tool};

/// The folder `link` with three modules, and beside it the script that compiles them.
pub(crate) struct Lld {
    pub(crate) folder: Folder,
    /// What `link` held before anything was linked.
    pub(crate) before: Vec<String>,
}

impl Lld {
    /// `compiler` is a shell script, run in the folder `link`; `$ROOT` is the folder above.
    pub(crate) fn new(compiler: &str) -> Self {
        let folder = Folder::new();
        Modules::compile(&folder, "link", &[]);
        let before = folder.list("link");
        let lld = Lld { folder, before };
        lld.compiler(compiler);
        lld
    }

    /// Replaces the compiler.
    pub(crate) fn compiler(&self, script: &str) -> PathBuf {
        let root = self.folder.path("").display().to_string();
        self.folder.script("compiler", &format!("ROOT='{root}'\n{script}"))
    }

    /// The linker's command behind the words of `before`, with this distributor.
    pub(crate) fn command(&self, before: &[&str], distributor: &str) -> Run {
        let lld = tool("ld.lld-22").display().to_string();
        let mut words = before.iter().map(|word| (*word).to_owned()).chain([lld]);
        Run::new(words.next().unwrap())
            .args(words)
            .args(["a.o", "b.o", "c.o", "-e", "main", "-o", "app"])
            .arg(format!("--thinlto-distributor={distributor}"))
            .arg("--thinlto-distributor-arg=--local-jobs=64")
            .arg(format!("--thinlto-remote-compiler={}", self.folder.path("compiler").display()))
            .cwd(self.folder.path("link"))
    }

    /// A link through the bridge, with more options of LLD.
    pub(crate) fn link(&self, options: &[&str]) -> Run {
        self.command(&[], bridge_path()).args(options)
    }

    /// What `link` holds beside the modules.
    pub(crate) fn made(&self) -> Vec<String> {
        self.folder.list("link").into_iter().filter(|name| !self.before.contains(name)).collect()
    }

    /// Links, keeps LLD's own files in `link`, and takes the objects away: ready for a link by hand.
    #[track_caller]
    pub(crate) fn kept(compiler: &str) -> Self {
        let lld = Lld::new("exec clang-22 \"$@\"");
        lld.link(&["--save-temps"]).go().ok();
        for name in lld.made() {
            if !name.ends_with(".dist-file.json") && !name.ends_with(".native.o.thinlto.bc") {
                fs::remove_file(lld.folder.path("link").join(name)).unwrap();
            }
        }
        lld.compiler(compiler);
        lld
    }

    /// The job file that was kept.
    pub(crate) fn job_file(&self) -> PathBuf {
        let json = |name: &String| name.ends_with(".dist-file.json");
        self.folder.path("link").join(self.made().into_iter().find(json).expect("a kept job file"))
    }

    /// Leaves only the job of one module in the job file.
    pub(crate) fn only(&self, module: &str) {
        let path = self.job_file();
        let mut jobs: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        jobs["jobs"].as_array_mut().unwrap().retain(|job| job["inputs"][0] == *module);
        fs::write(path, jobs.to_string()).unwrap();
    }

    /// The index that was kept for a module, `a` to `c`.
    pub(crate) fn index(&self, module: &str) -> PathBuf {
        let is = |name: &String| name.starts_with(module) && name.ends_with(".thinlto.bc");
        self.folder.path("link").join(self.made().into_iter().find(is).expect("an index"))
    }

    /// The bridge on the kept job file.
    pub(crate) fn by_hand(&self, options: &[&str]) -> Run {
        bridge()
            .arg("--local-jobs=64")
            .args(options)
            .arg(self.job_file().file_name().map(Path::new).unwrap())
            .cwd(self.folder.path("link"))
    }

    /// The objects that lie in `link`.
    pub(crate) fn objects(&self) -> Vec<String> {
        self.made().into_iter().filter(|name| name.ends_with(".native.o")).collect()
    }
}
