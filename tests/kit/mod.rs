//! What all integration tests share: temporary folders, programs run under a time limit, asserts
//! that show everything, the tools of this machine, and a few programs to link. It knows the
//! bridge's path, but not what the bridge does.

// Each test binary compiles this module and uses its own part of it; and tests start programs and
// read the environment.
#![allow(dead_code, unused_macros, unused_imports)]
#![allow(clippy::disallowed_methods, clippy::print_stderr, clippy::unwrap_used)]

mod cargo;
pub(crate) mod dist;
mod distccd;
mod farm;
mod folder;
mod grid;
mod icecream;
mod incredibuild;
mod jobs;
mod link;
mod lld;
mod network;
mod node;
mod processes;
mod programs;
mod run;
mod same;
mod static_bridge;
pub(crate) mod stores;
pub(crate) mod windows_link;
mod wine;
mod worker;

use std::path::{Path, PathBuf};

pub(crate) use cargo::assert_cargo_project;
pub(crate) use distccd::{
    Client, Host, SLOTS, assert_all_agree, daemons_user, free_port, note, through_distcc,
};
pub(crate) use farm::Farm;
pub(crate) use folder::Folder;
pub(crate) use grid::{GOOD, Grid, Submitter};
pub(crate) use icecream::Icecream;
pub(crate) use incredibuild::Incredibuild;
pub(crate) use jobs::{Jobs, MAKE, seed};
pub(crate) use link::{kept_jobs, link, strings, through_bridge};
pub(crate) use lld::Lld;
pub(crate) use network::{Network, Way};
pub(crate) use node::Node;
pub(crate) use processes::{MARK, Marked, Process, until};
pub(crate) use programs::{Family, Modules, long_module, lua};
pub(crate) use run::{Output, Run, Running};
pub(crate) use same::{assert_bridged, assert_identical, assert_identical_as, assert_own_commands};
pub(crate) use static_bridge::{clang_22, environment, environments, static_bridge};
pub(crate) use wine::{Wine, built, on_windows};
pub(crate) use worker::{Answered, LinkJobs, Worker, identity, identity_with_linker};

/// The bridge under test, ready to be run. Settings of the user who runs the tests do not reach it.
pub(crate) fn bridge() -> Run {
    Run::new(bridge_path())
}

/// The absolute path of the bridge under test, for a linker's command line.
pub(crate) fn bridge_path() -> &'static str {
    env!("CARGO_BIN_EXE_dtlto-bridge")
}

/// The folder of the build that runs these tests.
pub(crate) fn target_dir() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// A program found in `PATH`; `skip_without!` says beforehand that it is there.
pub(crate) fn tool(name: &str) -> PathBuf {
    which::which(name).unwrap_or_else(|_| panic!("{name} is not installed: scripts/setup --all"))
}

/// The C driver, which also links.
pub(crate) fn clang() -> Run {
    Run::new(tool("clang-22"))
}

/// The C++ driver, used to compile: the programs of these tests need no C++ library.
pub(crate) fn clangxx() -> Run {
    Run::new(tool("clang++-22"))
}

/// LLD for Windows.
pub(crate) fn lld_link() -> Run {
    Run::new(tool("lld-link-22"))
}

/// Stands in for `ar`.
pub(crate) fn llvm_ar() -> Run {
    Run::new(tool("llvm-ar-22"))
}

/// Whatever of `names` is not installed.
pub(crate) fn missing(names: &[&str]) -> Option<String> {
    let absent: Vec<_> = names.iter().filter(|name| which::which(name).is_err()).copied().collect();
    (!absent.is_empty())
        .then(|| format!("not installed: {} (scripts/setup --all)", absent.join(", ")))
}

/// Says on a line of its own that the running test was skipped. On a build server (`CI` is set)
/// that is a failure.
pub(crate) fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped here: {why}");
    // Past the harness, which would swallow the line of a test that passes.
    let line = format!("SKIPPED: {test}: {why}\n");
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
}

/// Leaves the test, as skipped, for the reason given.
macro_rules! skip {
    ($($why:tt)+) => {{
        $crate::kit::skipped(&format!($($why)+));
        return;
    }};
}

/// Leaves the test, as skipped, unless all the named programs are installed.
macro_rules! skip_without {
    ($($tool:literal),+) => {
        if let Some(why) = $crate::kit::missing(&[$($tool),+]) {
            $crate::kit::skip!("{why}");
        }
    };
}

/// Leaves the test, as skipped, unless a farm of icecream can be had.
macro_rules! skip_without_grid {
    () => {
        $crate::kit::skip_without!("clang-22", "ld.lld-22");
        if let Some(why) = $crate::kit::Grid::missing() {
            $crate::kit::skip!("{why}");
        }
    };
}
pub(crate) use {skip, skip_without, skip_without_grid};
