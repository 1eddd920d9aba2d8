//! Asks the compiler and its loader what only they know: the libraries that are really loaded, the version, and
//! where config files are looked for. It does not know which program may be asked.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Library;
use crate::os::Signal;
use crate::process::{Command, Ended, Groups};

/// A compiler on a sleeping network drive may take seconds to start; never this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// A name that no config file has: clang then says in which folders it looked for it.
const NO_CONFIG: &str = "--config=dtlto-bridge-asks-for-the-folders.cfg";

/// Runs `program` in an environment of `variables` alone.
pub(super) fn run(program: &Path, args: &[&str], variables: &[(String, String)]) -> Result<Ended> {
    let command = Command {
        program: program.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        clear: true,
        set: variables.to_vec(),
        ..Command::default()
    };
    let groups = Groups::new(None);
    let (done, wait) = channel::<()>();
    let ended = thread::scope(|scope| {
        let groups = &groups;
        scope.spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                groups.end_all(Signal::KILL);
            }
        });
        let ended = groups.run(&command, &|_| ());
        drop(done);
        ended
    });
    ended.with_context(|| format!("{} {}", program.display(), args.join(" ")))
}

/// The libraries that `loader` loads for `binary`, without `loader` itself.
pub(super) fn libraries(
    loader: &Path,
    binary: &Path,
    variables: &[(String, String)],
) -> Result<Vec<Library>> {
    let binary = binary.to_str().context("its path is not UTF-8")?;
    let ended = run(loader, &["--list", binary], variables)?;
    let text = String::from_utf8_lossy(&ended.output);
    let said = text.lines().next().unwrap_or_default();
    ensure!(ended.status.success(), "{} --list {binary}: {said}", loader.display());
    parse_libraries(&text, loader)
}

fn parse_libraries(text: &str, loader: &Path) -> Result<Vec<Library>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        // `name => path (address)`, `path (address)`, and `linux-vdso.so.1 (address)` without a file.
        let line = line.trim();
        let found = line.rsplit_once(" (0x").map_or(line, |(found, _)| found);
        let (name, path) = match found.split_once(" => ") {
            Some((_, "not found")) => bail!("its library {found}"),
            Some((name, path)) => (name, path),
            None => (found, found),
        };
        if Path::new(path).is_absolute() && (name != path || Path::new(path) != loader) {
            let name = name.rsplit('/').next().unwrap_or(name);
            libraries.push(Library { name: name.to_owned(), path: path.into() });
        }
    }
    Ok(libraries)
}

/// What a compiler says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Banner {
    /// The line that holds `clang version`.
    pub(super) version: String,
    /// The target that it will compile for, in clang's own spelling.
    pub(super) target: String,
    /// The folders where it looks for config files, in their order.
    pub(super) config_folders: Vec<PathBuf>,
}

/// Asks a compiler for its banner; `words` come before all other arguments.
pub(super) fn banner(
    compiler: &Path,
    words: &[&str],
    target: Option<&str>,
    variables: &[(String, String)],
) -> Result<Banner> {
    let target = target.map(|target| format!("--target={target}"));
    let mut args = words.to_vec();
    args.extend(target.as_deref());
    args.extend(["--no-default-config", NO_CONFIG, "--version"]);
    // It complains of the config file, so it exits with 1.
    let ended = run(compiler, &args, variables)?;
    parse_banner(&String::from_utf8_lossy(&ended.output))
}

fn parse_banner(text: &str) -> Result<Banner> {
    let after = |words: &str| {
        text.lines().find_map(|line| Some(line.split_once(words)?.1.trim().to_owned()))
    };
    let version = text.lines().find(|line| line.contains("clang version "));
    let first = text.lines().next().unwrap_or_default();
    let version = version.with_context(|| format!("it does not call itself clang: {first:?}"))?;
    let config_folders: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| Some(line.split_once("was searched for in the directory: ")?.1.into()))
        .collect();
    ensure!(!config_folders.is_empty(), "it does not say where it looks for config files");
    let target = after("Target: ").context("it does not name its target")?;
    Ok(Banner { version: version.trim().to_owned(), target, config_folders })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, path: &str) -> Library {
        Library { name: name.into(), path: path.into() }
    }

    #[test]
    fn the_lists_of_glibc_and_musl_are_understood() {
        let glibc = "\tlinux-vdso.so.1 (0x00007f67)\n\
            \tlibLLVM.so.22.1 => /opt/my tools/lib/libLLVM.so.22.1 (0x00007f6775a00000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f6782819000)\n\
            \t/opt/preloaded.so (0x00007f6782819000)\n";
        assert_eq!(
            parse_libraries(glibc, Path::new("/lib64/ld-linux-x86-64.so.2")).unwrap(),
            [
                library("libLLVM.so.22.1", "/opt/my tools/lib/libLLVM.so.22.1"),
                library("preloaded.so", "/opt/preloaded.so"),
            ]
        );
        let loader = "/lib/ld-musl-x86_64.so.1";
        let musl = format!("\t{loader} (0x7f)\n\tlibc.musl-x86_64.so.1 => {loader} (0x7f)\n");
        let expected = [library("libc.musl-x86_64.so.1", loader)];
        assert_eq!(parse_libraries(&musl, Path::new(loader)).unwrap(), expected);
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let list = "\tlibLLVM.so.22.1 => not found\n";
        let error = parse_libraries(list, Path::new("/lib/ld.so")).unwrap_err();
        assert_eq!(error.to_string(), "its library libLLVM.so.22.1 => not found");
    }

    #[test]
    fn a_banner_needs_version_target_and_folders() {
        let lines = [
            "clang: note: was searched for in the directory: /home/me/.config",
            "clang: note: was searched for in the directory: /opt/bin",
            "Debian clang version 22.1.8 (1~deb12u1)",
            "Target: x86_64-pc-linux-gnu",
        ];
        let banner = parse_banner(&lines.join("\n")).unwrap();
        assert_eq!(banner.version, lines[2]);
        assert_eq!(banner.target, "x86_64-pc-linux-gnu");
        assert_eq!(banner.config_folders, [Path::new("/home/me/.config"), Path::new("/opt/bin")]);
        for rest in [&lines[..3], &lines[2..], &[lines[0], lines[3]]] {
            parse_banner(&rest.join("\n")).unwrap_err();
        }
    }
}
