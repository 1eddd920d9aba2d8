//! By its name, what a program does when it is run: clang looks at the name that it was called by. It does not
//! look at files.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// How a program is clang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// `clang` or `clang++`: the driver's mode, by which config files are named.
    pub(super) mode: &'static str,
    /// Its first argument names the tool: the multicall binary `llvm`.
    pub(super) prepended: bool,
}

/// What runs when a program is `called` so, is `real`ly this file, and gets `first_arg`.
///
/// # Errors
/// It is not clang's driver in one of the two modes.
pub(super) fn call(called: &Path, real: &Path, first_arg: Option<&str>) -> Result<Call> {
    let (called, real) = (file_name(called)?, file_name(real)?);
    let multicall = is_multicall(Path::new(real));
    ensure!(
        multicall || mode(real).is_some(),
        "it is really {real:?}, which is not looked through; name clang itself"
    );
    if multicall && is_multicall(Path::new(called)) {
        let tool = first_arg.unwrap_or_default();
        let mode = mode(tool).with_context(|| format!("{called} {tool:?} is not clang"))?;
        return Ok(Call { mode, prepended: true });
    }
    // The driver for another target is often called `TARGET-clang`.
    let tool = called.rsplit_once("-clang").map(|(_, rest)| format!("clang{rest}"));
    match mode(tool.as_deref().unwrap_or(called)) {
        Some(mode) => Ok(Call { mode, prepended: false }),
        None => bail!("called {called:?} it is not clang's usual driver; name clang itself"),
    }
}

/// Whether the program at `path` wants its tool's name as the first argument.
pub fn is_multicall(path: &Path) -> bool {
    file_name(path).is_ok_and(|name| unversioned(name) == "llvm")
}

fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).context("its name is not UTF-8")
}

fn mode(name: &str) -> Option<&'static str> {
    match unversioned(name) {
        "clang" => Some("clang"),
        "clang++" => Some("clang++"),
        _ => None,
    }
}

/// A name without what follows its last hyphen, if that is a version.
fn unversioned(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((start, version))
            if version.starts_with(|c: char| c.is_ascii_digit())
                && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') =>
        {
            start
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(called: &str, real: &str, first_arg: Option<&str>) -> Option<(&'static str, bool)> {
        let call = call(&Path::new("/a").join(called), &Path::new("/b").join(real), first_arg);
        call.ok().map(|call| (call.mode, call.prepended))
    }

    #[test]
    fn clang_is_known_by_its_names() {
        for name in ["clang", "clang-22", "clang-22.1", "x86_64-linux-gnu-clang", "arm-clang-22"] {
            assert_eq!(called(name, "clang", None), Some(("clang", false)), "{name}");
        }
        for name in ["clang++", "clang++-22", "x86_64-linux-gnu-clang++-22"] {
            assert_eq!(called(name, "clang-22", Some("-c")), Some(("clang++", false)), "{name}");
        }
    }

    #[test]
    fn the_multicall_binary_is_clang_by_its_first_argument_or_its_name() {
        for name in ["llvm", "llvm-22"] {
            assert_eq!(called(name, name, Some("clang")), Some(("clang", true)), "{name}");
            assert_eq!(called(name, name, Some("clang++")), Some(("clang++", true)), "{name}");
            assert_eq!(called(name, name, Some("lld")), None, "{name}");
            assert_eq!(called(name, name, None), None, "{name}");
            assert_eq!(called("clang", name, None), Some(("clang", false)), "{name}");
        }
        assert_eq!(called("llvm", "clang", Some("clang")), None);
    }

    #[test]
    fn other_programs_and_other_drivers_are_not() {
        for real in
            ["ccache", "distcc", "ccache-clang", "clang-wrapper", "clang-cl", "gcc", "llvm-ar"]
        {
            assert_eq!(called("clang", real, None), None, "{real}");
        }
        for name in ["clang-cl", "clang-cpp", "cc", "flang", "x86-clang-cl", "clang-wrapper"] {
            assert_eq!(called(name, "clang-22", None), None, "{name}");
        }
    }
}
