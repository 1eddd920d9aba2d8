//! Holds `adapters/README.md` to what the code knows. Looks at tables and the example only, not at prose.

use std::collections::BTreeSet;

use serde_json::json;

use super::{
    Chroot, Delivery, HandOver, HostList, List, Manifest, Meaning, Place, Scalar, Scheduler,
    Shipping, Source, TaskFile,
};

const README: &str = include_str!("../../adapters/README.md");

/// The first cells of the table under `heading`, each without its backticks.
fn table(heading: &str) -> Vec<&'static str> {
    let (_, section) = README.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(cell, _)| cell)
        .collect()
}

/// The keys that may stand where `manifest` has one that cannot be, in serde's own words.
fn keys(manifest: &serde_json::Value) -> Vec<String> {
    let error = Manifest::parse(&manifest.to_string(), Source::BuiltIn).unwrap_err().to_string();
    let (_, known) = error.split_once("expected ").unwrap();
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_readme_lists_exactly_the_keys_that_are_read() {
    let wrong = json!({"?": 0});
    let mut known = BTreeSet::new();
    for object in ["env", "tripwire", "batch"] {
        let inner = keys(&json!({ object: wrong }));
        known.extend(inner.iter().map(|key| format!("{object}.{key}")));
    }
    for list in ["exit", "probes"] {
        known.extend(keys(&json!({ list: [wrong] })).iter().map(|key| format!("{list}[].{key}")));
    }
    known.extend(keys(&wrong));
    let listed: Vec<_> = table("Keys").into_iter().map(str::to_owned).collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), known);
    assert_eq!(listed.len(), known.len());
}

#[test]
fn the_readme_lists_exactly_the_placeholders() {
    let scalars = Scalar::ALL.iter().map(|scalar| format!("{{{scalar}}}"));
    let lists = List::ALL.iter().map(|list| format!("{{{list}...}}"));
    assert_eq!(table("Placeholders"), scalars.chain(lists).collect::<Vec<_>>());
}

#[test]
fn the_readme_lists_exactly_the_meanings() {
    let known: Vec<_> = Meaning::ALL.iter().map(|meaning| meaning.word()).collect();
    assert_eq!(table("Meanings"), known);
}

#[test]
fn the_readme_names_every_word_of_a_closed_key() {
    let words = |key| {
        let row = README.lines().find(|line| line.starts_with(&format!("| `{key}` |"))).unwrap();
        row.split('`').skip(3).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words("place"), Place::ALL.iter().map(|w| w.to_string()).collect::<Vec<_>>());
    assert_eq!(words("hand_over"), HandOver::ALL.iter().map(|w| w.to_string()).collect::<Vec<_>>());
    assert_eq!(
        words("scheduler"),
        Scheduler::ALL.iter().map(|w| w.to_string()).collect::<Vec<_>>()
    );
    assert_eq!(words("shipping"), Shipping::ALL.iter().map(|w| w.to_string()).collect::<Vec<_>>());
    let named = |key, word: String| assert!(words(key).contains(&word), "{key}: {word}");
    Delivery::ALL.iter().for_each(|word| named("request", word.to_string()));
    Chroot::ALL.iter().for_each(|word| named("environment", word.to_string()));
    Scheduler::ALL.iter().for_each(|word| named("scheduler", word.to_string()));
    HostList::ALL.iter().for_each(|word| named("hosts", word.to_string()));
    TaskFile::ALL.iter().for_each(|word| named("batch.task_file", word.to_string()));
}

#[test]
fn the_example_of_the_readme_is_a_manifest() {
    let (_, rest) = README.split_once("```json\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let manifest = Manifest::parse(example, Source::File("farmrun.json".into())).unwrap();
    assert_eq!(manifest.failure(205).unwrap().0, Meaning::Unreachable);
}
