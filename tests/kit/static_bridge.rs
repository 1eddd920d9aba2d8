//! The bridge, linked statically as it is released: it is also the worker where nothing else is installed. It does
//! not know what is tested with it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dtlto_bridge::environment::{self, Environment};
use dtlto_bridge::toolchain::{Options, Toolchain, identify};

use super::{Run, target_dir, tool};

/// The static program, built once; an error says what is missing for it. Later builds take what is there.
pub(crate) fn static_bridge() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let sysroot = Run::new("rustc").args(["--print", "sysroot"]).go().ok().stdout;
        let library = Path::new(sysroot.trim_end()).join("lib/rustlib").join(&target);
        if !library.join("lib").exists() || which::which("musl-gcc").is_err() {
            return Err(format!("the target {target} or musl-gcc is missing: scripts/release"));
        }
        // Cargo's own lock makes a second test program wait for the first.
        Run::new("cargo")
            .args(["build", "--quiet", "--offline", "--target", &target])
            .arg("--target-dir")
            .arg(target_dir())
            // Environments hold it: five times as large it would have to be packed and unpacked each time.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .cwd(env!("CARGO_MANIFEST_DIR"))
            .limit(300)
            .go()
            .ok();
        Ok(target_dir().join(target).join("debug/dtlto-bridge"))
    })
}

/// The environment of `clang-22`, made once for all tests; an error says what is missing for it.
pub(crate) fn environment() -> Result<Environment, String> {
    let worker = static_bridge().as_ref().map_err(String::clone)?;
    Ok(environment::make(&clang_22(), worker, "", &environments()).unwrap())
}

/// `clang-22`, looked through.
pub(crate) fn clang_22() -> Toolchain {
    let cache = environments();
    let options = Options { cache_folder: Some(&cache), ..Options::default() };
    identify(&tool("clang-22"), None, &options).unwrap()
}

/// The cache folder of tests.
pub(crate) fn environments() -> PathBuf {
    target_dir().join("tmp/environments")
}
