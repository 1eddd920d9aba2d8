//! Programs to link: a small one whose modules import from each other, and Lua. It does not know
//! how they are linked.

use std::fs;
use std::path::Path;

use super::{Folder, Run, clangxx, target_dir};

/// Three C++ modules that need no library. ThinLTO imports across all of them: `main` calls into
/// `b` and `c`, and a static constructor of `c` calls into `b`. A static local and a static
/// function are promoted on the way, and a loop looks different at each level of optimisation.
pub(crate) struct Modules;

impl Modules {
    pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

    /// What the linked program exits with.
    pub(crate) const EXIT: i32 = 42;

    const SOURCES: [&str; 3] = [
        "int tripled(int);
         int early_value();
         int squares(int);
         int main(int argc, char **) {
             return tripled(1) + early_value() - 2 + squares(argc - 1);
         }",
        "int ticks() { static int calls = 40; return ++calls; }
         __attribute__((noinline)) static int hidden(int x) { return x * 3; }
         int tripled(int x) { return hidden(x); }",
        "int ticks();
         struct Early { int value; Early() : value(ticks()) {} };
         static Early early;
         int early_value() { return early.value; }
         int values[64] = {3, 1, 4, 1, 5, 9, 2, 6};
         int squares(int n) {
             int sum = 0;
             for (int i = 0; i < n; ++i) sum += values[i] * values[i];
             return sum;
         }",
    ];

    /// Compiles the three to `into/a.o` and so on, with `flags` besides `-O2 -flto=thin`.
    #[track_caller]
    pub(crate) fn compile(folder: &Folder, into: &str, flags: &[&str]) {
        folder.mkdir(into);
        for (name, source) in Self::NAMES.iter().zip(Self::SOURCES) {
            folder.write(format!("src/{name}.cpp"), source);
            clangxx()
                .args(["-O2", "-flto=thin", "-fno-rtti", "-c"])
                .args(flags)
                .arg(format!("src/{name}.cpp"))
                .arg("-o")
                .arg(folder.path(into).join(format!("{name}.o")))
                .cwd(folder.path(""))
                .go()
                .ok();
        }
    }
}

/// Copies Lua's 33 modules of ThinLTO bitcode into `o/` and names them. The first test that asks
/// has them fetched and compiled; without a network that may fail, and the error tells why.
pub(crate) fn lua(folder: &Folder) -> Result<Vec<String>, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/program");
    let run = Run::new(script).arg("lua").env("CARGO_TARGET_DIR", target_dir()).limit(300).go();
    if !run.status.success() {
        return Err(format!("no Lua: {run}"));
    }
    folder.mkdir("o");
    let modules = fs::read_dir(Path::new(run.stdout.trim_end()).join("o")).unwrap();
    let copy = |module: fs::DirEntry| {
        let name = format!("o/{}", module.file_name().to_str().unwrap());
        fs::copy(module.path(), folder.path(&name)).unwrap();
        name
    };
    let mut names: Vec<_> = modules.map(Result::unwrap).map(copy).collect();
    names.sort();
    Ok(names)
}
