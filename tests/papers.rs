//! The papers say what is so: options, exit codes, fields, files, tests, crates and links in them
//! are those of the tree. Prose is not looked at.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use dtlto_bridge::cli::CommandLine;
use kit::{Folder, Run};

const PAPERS: [&str; 5] =
    ["README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "adapters/README.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: impl AsRef<Path>) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the table whose first heading is `heading`, cell by cell.
fn table(paper: &str, heading: &str) -> Vec<Vec<String>> {
    let text = read(paper).replace("\\|", "\0");
    let start = format!("| {heading} |");
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip_while(|line| !line.starts_with(&start))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|row| {
            row.trim_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
        })
        .collect();
    assert!(!rows.is_empty(), "{paper} has no table that begins with {heading:?}");
    rows
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// All files below `folder`, relative to the root.
fn files(folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&name)),
            false => drop(found.insert(name)),
        }
    }
    found
}

#[test]
fn the_readme_lists_exactly_the_options() {
    let listed: BTreeSet<(String, String)> = table("README.md", "option")
        .into_iter()
        .map(|row| (quoted(&row[0]).collect::<Vec<_>>().join(", "), row[1].replace('`', "")))
        .collect();
    let command = CommandLine::command();
    let known = command.get_arguments().filter_map(|option| {
        let long = option.get_long().filter(|long| !["help", "version"].contains(long))?;
        let words = option.get_possible_values();
        let words: Vec<_> = words.iter().map(|word| word.get_name()).collect();
        let value = match option.get_action().takes_values() {
            false => String::new(),
            true if !words.is_empty() => format!(" {}", words.join("|")),
            true => format!(" {}", option.get_value_names().unwrap()[0]),
        };
        let short = option.get_short().map_or(String::new(), |short| format!(", -{short}"));
        let default = option.get_default_values().iter().map(|value| value.to_str().unwrap());
        let default = if value.is_empty() { String::new() } else { default.collect() };
        Some((format!("--{long}{value}{short}"), default))
    });
    assert_eq!(listed, known.collect());
}

#[test]
fn the_readme_lists_exactly_the_exit_codes() {
    let listed: BTreeSet<String> =
        table("README.md", "exit code").into_iter().map(|row| row[0].clone()).collect();
    let source = read("src/exit.rs");
    let variants = source.lines().filter_map(|line| line.strip_suffix(',')?.split_once(" = "));
    assert_eq!(listed, variants.map(|(_, code)| code.to_owned()).collect());
}

#[test]
fn the_readme_explains_every_field_of_the_statistics() {
    let text = read("README.md");
    let section = text.split("\n## Reading the output\n").nth(1).unwrap();
    let explained: BTreeSet<&str> = quoted(section.split("\n## ").next().unwrap()).collect();
    let source = read("src/report/stats.rs");
    for field in source.lines().filter_map(|line| line.trim().strip_prefix("pub ")) {
        let Some((name, _)) = field.split_once(": ").filter(|(name, _)| !name.contains(' ')) else {
            continue;
        };
        assert!(explained.contains(name), "README.md does not explain the field {name}");
    }
}

#[test]
fn code_blocks_for_the_shell_can_be_parsed() {
    let folder = Folder::new();
    for paper in PAPERS {
        let text = read(paper);
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap();
            folder.write("block.sh", block);
            Run::new("/bin/sh").args(["-n", "block.sh"]).cwd(folder.path("")).go().ok();
        }
    }
    assert!(read("README.md").contains("```sh\n"));
}

#[test]
fn the_design_names_every_file_and_every_named_file_exists() {
    let text = read("DESIGN.md");
    let list = text.split("\n## Files\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let named: BTreeSet<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("- "))
        .flat_map(|line| quoted(line.split(": ").next().unwrap()))
        .collect();
    for name in quoted(&text).filter(|name| name.contains('/') && !name.contains(' ')) {
        let exists = root().join(name).exists();
        assert!(exists || name == "doc/picture.svg", "DESIGN.md names {name}, which is not there");
    }
    for file in ["src", "scripts", "adapters", "tests"].into_iter().flat_map(files) {
        let in_folder = |name: &&str| name.ends_with('/') && file.starts_with(*name);
        let found = named.contains(&*file) || named.iter().any(in_folder);
        assert!(found, "DESIGN.md has no sentence for {file}");
    }
}

#[test]
fn every_test_that_the_design_names_exists() {
    let sources: String = files("src")
        .into_iter()
        .chain(files("tests"))
        .filter(|file| file.ends_with(".rs"))
        .map(read)
        .collect();
    for row in table("DESIGN.md", "promise") {
        let tests: Vec<_> = quoted(&row[1]).filter(|name| !name.contains('/')).collect();
        assert!(!tests.is_empty(), "no test holds this promise: {}", row[0]);
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}");
        }
    }
}

/// What of a source file is not a test.
fn program_part(file: &str) -> String {
    let text = read(file);
    let tests = ["tests", "testing.rs", "_test.rs"].iter().any(|part| file.contains(part));
    if tests {
        String::new()
    } else {
        text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()
    }
}

#[test]
fn every_crate_stays_where_the_design_says() {
    let manifest = read("Cargo.toml");
    let listed = table("DESIGN.md", "crate");
    let names = |row: &Vec<String>| row[0].split(", ").map(String::from).collect::<Vec<_>>();
    let named: BTreeSet<String> = listed.iter().flat_map(names).collect();
    let dependencies = manifest
        .lines()
        .scan("", |section, line| {
            *section = if line.starts_with('[') { line } else { section };
            Some((*section, line))
        })
        .filter(|(section, _)| section.ends_with("dependencies]"))
        .filter_map(|(_, line)| Some(line.split_once(" = ")?.0.to_owned()));
    assert_eq!(named, dependencies.collect());
    for row in &listed {
        let places: Vec<_> = quoted(&row[1]).collect();
        if places.is_empty() && row[1] != "nowhere yet" {
            continue;
        }
        for file in files("src") {
            let used = names(row).into_iter().find(|name| {
                let path = format!("{}::", name.replace('-', "_"));
                program_part(&file).contains(&path)
            });
            let allowed = places.iter().any(|place| file.starts_with(place));
            assert!(used.is_none() || allowed, "{file} uses {used:?}; DESIGN.md says: {places:?}");
        }
    }
}

#[test]
fn the_changelog_begins_with_this_version() {
    let text = read("CHANGELOG.md");
    let first = text.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(first.split([',', ' ']).next().unwrap(), env!("CARGO_PKG_VERSION"));
    for entry in text.lines().filter_map(|line| line.strip_prefix("- ")) {
        let led = ["New: ", "Changed: ", "Fixed: "].iter().any(|word| entry.starts_with(word));
        assert!(led, "not led by New, Changed or Fixed: {entry}");
    }
}

/// As GitHub makes them from headings.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading.to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere() {
    for paper in PAPERS {
        let text = read(paper);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let beside = PathBuf::from(paper).parent().unwrap().join(file);
            let target = if file.is_empty() { PathBuf::from(paper) } else { beside };
            assert!(root().join(&target).exists(), "{paper}: a link to {link}");
            if !heading.is_empty() {
                let text = read(&target);
                let mut headings = text.lines().filter_map(|line| line.strip_prefix('#'));
                let found = headings.any(|line| anchor(line.trim_matches(['#', ' '])) == heading);
                assert!(found, "{paper}: a link to {link}");
            }
        }
    }
}
