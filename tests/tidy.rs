//! The order of the house: which module uses which, how long files are, what they begin with, and
//! words that no file may hold. It reads sources as text and does not know what they do.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::path::{Path, PathBuf};

use kit::{Run, skip};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Longer files hold more than one thing.
const LINES: usize = 500;

/// The Rust files below `folder`, by their paths relative to the crate.
fn rust_files(folder: &str) -> Vec<String> {
    fn walk(at: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|ending| ending == "rs") {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(ROOT).join(folder), &mut found);
    let relative = |path: &PathBuf| path.strip_prefix(ROOT).unwrap().display().to_string();
    let mut names: Vec<_> = found.iter().map(relative).collect();
    names.sort();
    names
}

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap()
}

/// A source file without its tests; those in files of their own have none of this left.
fn without_tests(name: &str) -> String {
    let tests = ["/tests.rs", "/tests/", "_test.rs", "/testing.rs"];
    if tests.iter().any(|part| name.contains(part)) {
        return String::new();
    }
    let text = text(name);
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].to_owned()
}

/// The modules of the crate, in the order in which `src/lib.rs` lists them.
fn listed() -> Vec<String> {
    let lines = text("src/lib.rs");
    let name = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    lines.lines().filter_map(name).collect()
}

/// The top modules that `source` names by `crate::`, alone or in braces.
fn used(source: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = Vec::new();
    for after in source.split("crate::").skip(1) {
        let Some(braced) = after.strip_prefix('{') else {
            found.push(word(after));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, character) in braced.char_indices() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    found.push(word(&braced[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn what_a_file_uses_is_seen() {
    let source = "use crate::a::{x, y};\nuse crate::{b, c::{d, e}, f_1};\n crate::g::h() crate::i;";
    assert_eq!(used(source), ["a", "b", "c", "f_1", "g", "i"]);
}

#[test]
fn a_module_uses_only_those_above_it() {
    let order = listed();
    assert!(order.len() > 10, "{order:?}");
    let place = |name: &str| order.iter().position(|known| known == name);
    let mut wrong = Vec::new();
    for file in rust_files("src") {
        let module =
            file.strip_prefix("src/").unwrap().split(['/', '.']).next().unwrap().to_owned();
        if ["lib", "main"].contains(&&*module) {
            continue;
        }
        let own =
            place(&module).unwrap_or_else(|| panic!("{file}: src/lib.rs does not list {module}"));
        for name in used(&without_tests(&file)) {
            if place(&name).is_none_or(|used| used > own) {
                wrong.push(format!("{file} uses {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "not above them in src/lib.rs: {wrong:#?}");
}

/// Conditions on the system all over the code can neither be read nor tested.
#[test]
fn what_differs_between_systems_is_in_one_place() {
    let conditions = [
        "cfg(unix",
        "cfg(windows",
        "cfg(not(unix",
        "cfg(not(windows",
        "target_os",
        "target_family",
    ];
    let crates =
        ["std::os::", "rustix::", "libc::", "signal_hook::", "windows_sys::", "landlock::"];
    let mut wrong = Vec::new();
    for file in rust_files("src") {
        let source = without_tests(&file);
        let conditional = conditions.iter().find(|word| source.contains(*word));
        let of_a_system = crates.iter().find(|word| source.contains(*word));
        let may = ["src/os/", "src/lib.rs", "src/main.rs"].iter().any(|at| file.starts_with(at));
        let worker = file.starts_with("src/worker/");
        if conditional.is_some() && !may || of_a_system.is_some() && !may && !worker {
            wrong.push(format!("{file}: {conditional:?} {of_a_system:?}"));
        }
    }
    assert!(wrong.is_empty(), "belongs into src/os/: {wrong:#?}");
}

#[test]
fn each_file_begins_with_what_it_is_for() {
    let mut files = rust_files("src");
    files.extend(rust_files("tests"));
    let silent: Vec<_> = files.iter().filter(|file| !text(file).starts_with("//! ")).collect();
    assert!(silent.is_empty(), "no //! at the head of {silent:?}");
}

#[test]
fn files_stay_short() {
    let long = |file: &String| without_tests(file).lines().count() >= LINES;
    let long: Vec<_> = rust_files("src").into_iter().filter(long).collect();
    assert!(long.is_empty(), "{LINES} lines or more: {long:?}");
}

#[test]
fn every_adapter_of_the_repository_is_built_in() {
    let listed =
        kit::bridge().arg("adapters").env("XDG_CONFIG_HOME", "/nonexistent").go().ok().stdout;
    let folder = fs::read_dir(Path::new(ROOT).join("adapters")).unwrap();
    let files = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> =
        files.filter_map(|file| Some(file.strip_suffix(".json")?.to_owned())).collect();
    assert!(names.contains(&"local".to_owned()), "{names:?}");
    for name in names {
        let line = listed.lines().find(|line| line.split(' ').next() == Some(&name));
        assert!(line.is_some_and(|line| line.ends_with("(built-in)")), "{name}: {listed}");
    }
}

/// Words for what is left to do, and paths that only the machine of whoever wrote them has.
#[test]
fn no_file_holds_what_does_not_belong_there() {
    let tracked = Run::new("git").args(["ls-files", "-z"]).cwd(ROOT).go();
    if !tracked.status.success() {
        skip!("not a git repository: {tracked}");
    }
    // In halves, so that this file does not hold them itself.
    let words = [["to", "do"], ["fix", "me"], ["xx", "x"]].map(|halves| halves.concat());
    let paths = [["/wo", "rk/"], ["/ro", "ot/"], ["/tmp/", "wt"], ["../sha", "red"]]
        .map(|halves| halves.concat());
    let mut wrong = Vec::new();
    // What a fuzzer made says nothing.
    let written = |name: &&str| !name.is_empty() && !name.starts_with("fuzz/corpus/");
    for name in tracked.stdout.split('\0').filter(written) {
        // Deleted but still tracked, or not text.
        let Ok(text) = fs::read_to_string(Path::new(ROOT).join(name)) else { continue };
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let lint = name == "Cargo.toml" && lower.ends_with("= \"deny\"");
            let word = lower
                .split(|c: char| !c.is_alphanumeric())
                .find(|word| words.iter().any(|w| w == word));
            let path = paths.iter().find(|path| begins_in(line, path));
            if (word.is_some() && !lint) || path.is_some() {
                wrong.push(format!("{name}:{}: {line}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `path` stands in `line`, and not as the end of a longer one.
fn begins_in(line: &str, path: &str) -> bool {
    line.match_indices(path)
        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "}_-./".contains(c)))
}
