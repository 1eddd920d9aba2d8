//! What the fuzzer knows, on a stable compiler: the stored corpus, and inputs made from it, through the
//! functions that `scripts/fuzz` fuzzes. It does not look for new ways through the code, the fuzzer does.

#![allow(clippy::print_stdout, clippy::unwrap_used)] // tests may panic, and say on what

#[allow(unreachable_pub)] // it is a crate of its own elsewhere
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestError, TestRunner};

/// Inputs of each kind of test, for each target.
const CASES: u32 = 300;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The stored inputs of a target by name, in a fixed order.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(fuzz_folder().join("corpus").join(target)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

/// Runs `target` on what `inputs` makes.
fn try_all(target: Target, inputs: impl Strategy<Value = Vec<u8>>) {
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(config);
    let run = runner.run(&inputs, |bytes| {
        target(&bytes);
        Ok(())
    });
    match run {
        Ok(()) => {}
        Err(TestError::Fail(why, bytes)) => panic!("{why}\n{}", bytes.escape_ascii()),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
    Join(Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        2 => (at(), prop::collection::vec(any::<u8>(), 1..5)).prop_map(|(at, new)| Edit::Insert(at, new)),
        2 => (at(), 1..20usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => (at(), 1..80usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
        1 => at().prop_map(Edit::Cut),
        1 => (at(), at()).prop_map(|(seed, at)| Edit::Join(seed, at)),
    ]
}

fn edited(mut bytes: Vec<u8>, edit: &Edit, seeds: &[Vec<u8>]) -> Vec<u8> {
    let place = |at: &Index| at.index(bytes.len() + 1);
    match edit {
        Edit::Flip(at, bit) => {
            let at = place(at);
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
        }
        Edit::Insert(at, new) => drop(bytes.splice(place(at)..place(at), new.iter().copied())),
        Edit::Remove(at, count) => drop(bytes.drain(place(at)..bytes.len().min(place(at) + count))),
        Edit::Repeat(at, count) => {
            let part = place(at)..bytes.len().min(place(at) + count);
            bytes.extend_from_within(part);
        }
        Edit::Cut(at) => bytes.truncate(place(at)),
        Edit::Join(seed, at) => {
            let other = seed.get(seeds);
            bytes.truncate(place(at));
            bytes.extend_from_slice(&other[at.index(other.len() + 1)..]);
        }
    }
    bytes
}

#[test]
fn each_target_has_its_program_and_its_corpus() {
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    for folder in ["fuzz_targets", "corpus"] {
        let entries = fs::read_dir(fuzz_folder().join(folder)).unwrap();
        let found: BTreeSet<_> = entries
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(found, names, "{folder}");
    }
}

#[test]
fn the_stored_corpus_does_no_harm_and_some_of_it_is_good() {
    for (name, target) in TARGETS {
        let mut good = 0;
        for (path, bytes) in corpus(name) {
            println!("{path}"); // shown if it is the one that panics
            good += usize::from(target(&bytes));
        }
        assert!(good > 0, "{name}: nothing gets to the end");
    }
}

#[test]
fn a_bundle_is_read_from_each_depth_of_its_wrapping() {
    for (kind, target) in [("request", fuzz::request as Target), ("response", fuzz::response)] {
        for name in ["whole", "compressed", "archive", "plain"] {
            let bytes = fs::read(fuzz_folder().join("corpus").join(kind).join(name)).unwrap();
            assert!(target(&bytes), "{kind}/{name}");
        }
    }
}

#[test]
fn arbitrary_bytes_do_no_harm() {
    for (_, target) in TARGETS {
        try_all(target, prop::collection::vec(any::<u8>(), 0..600));
    }
}

#[test]
fn edited_inputs_of_the_corpus_do_no_harm() {
    for (name, target) in TARGETS {
        let seeds: Vec<_> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
        let inputs =
            (any::<Index>(), prop::collection::vec(edit(), 1..6)).prop_map(|(seed, edits)| {
                let first = seed.get(&seeds).clone();
                edits.iter().fold(first, |bytes, edit| edited(bytes, edit, &seeds))
            });
        try_all(target, inputs);
    }
}
