//! Links by clang and LLD, and what they leave behind. It does not know which program is linked.

use std::path::Path;

use serde_json::Value;

use super::{Folder, Run, bridge_path, clang};

/// A link command of clang for ELF, in one process.
pub(crate) fn link() -> Run {
    clang().args(["-O2", "-flto=thin", "-fuse-ld=lld-22"])
}

/// What turns a link of clang for ELF into one through the bridge.
pub(crate) fn through_bridge() -> [String; 2] {
    let distributor = format!("-fthinlto-distributor={}", bridge_path());
    [distributor, "-Xthinlto-distributor=--adapter=local".to_owned()]
}

/// The job file that LLD kept next to its output in `place`.
pub(crate) fn kept_jobs(folder: &Folder, place: &str) -> Value {
    let mut names = folder.list(place).into_iter();
    let name = names.find(|name| name.ends_with(".dist-file.json")).expect("a kept job file");
    serde_json::from_slice(&folder.read(Path::new(place).join(name))).unwrap()
}

pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}
