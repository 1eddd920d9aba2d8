//! Job files without a linker, for compilers that are scripts: modules and indexes of no meaning,
//! and an object that such a compiler can copy. It does not know what the compilers do.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{Folder, Output, Run, bridge, clang};

/// A link of `count` jobs in a folder: `m0.o` and `m0.bc` to `m0.native.o`, and so on, in `jobs.json`.
pub(crate) struct Jobs {
    pub(crate) folder: Folder,
    count: usize,
}

/// Puts a good object where the job wants it: the name is the last argument.
pub(crate) const MAKE: &str = r#"for object; do :; done; cp "$SEED" "$object""#;

impl Jobs {
    /// Jobs whose compiler is the shell script `compiler`, in which `$SEED` is a good object.
    pub(crate) fn new(count: usize, compiler: &str) -> Self {
        let folder = Folder::new();
        folder.write("seed", seed());
        let seed = folder.path("seed").display().to_string();
        let path = folder.script("compiler", &format!("SEED='{seed}'\n{compiler}"));
        for n in 0..count {
            folder.write(format!("m{n}.o"), format!("module {n}"));
            folder.write(format!("m{n}.bc"), format!("index {n}"));
        }
        let jobs = Jobs { folder, count };
        jobs.write(&path, |_| Vec::new());
        jobs
    }

    /// Writes the job file anew, for the program `compiler`, with more arguments for each job.
    pub(crate) fn write(&self, compiler: &Path, more: impl Fn(usize) -> Vec<String>) {
        let job = |n: usize| {
            let (module, index) = (format!("m{n}.o"), format!("m{n}.bc"));
            let object = format!("m{n}.native.o");
            let mut args = more(n);
            args.extend([module.clone(), format!("-fthinlto-index={index}")]);
            args.extend(["-o".into(), object.clone()]);
            json!({"args": args, "inputs": [module, index], "outputs": [object]})
        };
        let jobs: Vec<_> = (0..self.count).map(job).collect();
        let common = json!({"linker_output": "app", "args": [compiler], "inputs": []});
        self.folder.write("jobs.json", json!({"common": common, "jobs": jobs}).to_string());
    }

    /// A compiler that is no script and copies `seed`, for very many jobs.
    pub(crate) fn fast_compiler(&self) -> PathBuf {
        const SOURCE: &str = r#"
            #include <stdio.h>
            int main(int argc, char **argv) {
                char bytes[1 << 16];
                FILE *seed = fopen("seed", "r"), *object = fopen(argv[argc - 1], "w");
                size_t size = fread(bytes, 1, sizeof bytes, seed);
                return fwrite(bytes, 1, size, object) != size || fclose(object);
            }"#;
        self.folder.write("fast.c", SOURCE);
        let folder = self.folder.path("");
        clang().args(["-O1", "fast.c", "-o", "fast"]).cwd(&folder).go().ok();
        std::fs::remove_file(folder.join("fast.c")).unwrap();
        folder.join("fast")
    }

    /// The bridge on these jobs; more jobs at once than any other test could hold up.
    pub(crate) fn run(&self, options: &[&str]) -> Run {
        bridge()
            .args(["--local-jobs=64", "--stats=stats.json"])
            .args(options)
            .arg("jobs.json")
            .cwd(self.folder.path(""))
    }

    #[track_caller]
    pub(crate) fn go(&self, options: &[&str]) -> Output {
        self.run(options).go()
    }

    /// What `--stats` said.
    pub(crate) fn stats(&self) -> Value {
        serde_json::from_slice(&self.folder.read("stats.json")).unwrap()
    }

    /// The files there, but for those that a test starts with.
    pub(crate) fn made(&self) -> Vec<String> {
        let ours = |name: &String| {
            let inputs = name.ends_with(".o") && !name.ends_with(".native.o");
            let fixed =
                ["compiler", "fast", "jobs.json", "seed", "stats.json"].contains(&name.as_str());
            inputs || fixed || name.ends_with(".bc")
        };
        self.folder.list("").into_iter().filter(|name| !ours(name)).collect()
    }

    /// The names of all objects.
    pub(crate) fn objects(&self) -> Vec<String> {
        let mut names: Vec<_> = (0..self.count).map(|n| format!("m{n}.native.o")).collect();
        names.sort();
        names
    }
}

/// A small native object, compiled once.
pub(crate) fn seed() -> &'static [u8] {
    static SEED: OnceLock<Vec<u8>> = OnceLock::new();
    SEED.get_or_init(|| {
        let folder = Folder::new();
        folder.write("seed.c", "int seed;");
        clang().args(["-c", "seed.c", "-o", "seed.o"]).cwd(folder.path("")).go().ok();
        folder.read("seed.o")
    })
}
