//! The config files that clang reads unasked: they change objects, and no argument of a job tells of them. The
//! names and their order are those that clang 22 was seen to look for (by its system calls): the first of
//! `<target>-clang.cfg`; else both of `clang.cfg` and `<target>.cfg`; each in the first folder that has it. It does
//! not know the folders: clang tells them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What names a file that the objects depend on and that nothing here looks at.
const NAMES_FILES: [&str; 4] = ["@", "plugin", "-load", "profile"];
/// Real ones have a few hundred bytes.
const LIMIT: u64 = 1 << 20;

/// The config files for `target` and the driver's mode (`clang` or `clang++`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    /// Those that are read, in their order.
    pub(super) files: Vec<PathBuf>,
    /// Those that would be read if they were there.
    pub(super) absent: Vec<PathBuf>,
}

impl Config {
    pub(super) fn find(folders: &[PathBuf], target: &str, mode: &str) -> Self {
        let mut config = Config::default();
        if !config.take(folders, &format!("{target}-{mode}.cfg")) {
            config.take(folders, &format!("{mode}.cfg"));
            config.take(folders, &format!("{target}.cfg"));
        }
        config
    }

    fn take(&mut self, folders: &[PathBuf], name: &str) -> bool {
        for path in folders.iter().map(|folder| folder.join(name)) {
            if path.exists() {
                self.files.push(path);
                return true;
            }
            self.absent.push(path);
        }
        false
    }
}

/// Refuses a config file whose effect depends on other files.
///
/// # Errors
/// It cannot be read, or is such a file.
pub(super) fn check(path: &Path) -> Result<()> {
    let shown = path.display();
    let size = path.metadata().with_context(|| format!("its config file {shown}"))?;
    anyhow::ensure!(size.is_file() && size.len() <= LIMIT, "its config file {shown} is no text");
    let text = std::fs::read(path).with_context(|| format!("its config file {shown}"))?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    for word in lines.flat_map(str::split_whitespace) {
        if NAMES_FILES.iter().any(|part| word.contains(part)) {
            bail!("its config file {shown} depends on other files ({word}), which nobody compares");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_first_folder_wins_and_the_fullest_name_stands_alone() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["user", "system"].map(|name| root.path().join(name));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let touch = |name: &str| fs::write(root.path().join(name), "-O1").unwrap();
        let found = || {
            let files = Config::find(&folders, "t", "clang").files;
            let names = files.iter().map(|file| file.strip_prefix(root.path()).unwrap());
            names.map(|name| name.display().to_string()).collect::<Vec<_>>()
        };
        assert!(found().is_empty());
        assert_eq!(Config::find(&folders, "t", "clang").absent.len(), 6);
        touch("system/clang.cfg");
        touch("system/clang++.cfg");
        touch("user/t.cfg");
        touch("system/t.cfg");
        assert_eq!(found(), ["system/clang.cfg", "user/t.cfg"]);
        touch("system/t-clang.cfg");
        assert_eq!(found(), ["system/t-clang.cfg"]);
    }

    #[test]
    fn a_file_that_depends_on_others_is_refused_by_its_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clang.cfg");
        let checked = |text: &str| {
            fs::write(&path, text).unwrap();
            check(&path).map_err(|error| error.to_string())
        };
        assert_eq!(checked("# see @more\n-O1 --sysroot=/x\n"), Ok(()));
        for word in ["@more", "-fplugin=/p.so", "-fprofile-use=/p", "-load"] {
            assert!(checked(&format!("-O1\n{word}")).unwrap_err().contains(word));
        }
        assert!(check(folder.path()).unwrap_err().to_string().contains("no text"));
        assert!(check(&folder.path().join("none")).is_err());
    }
}
