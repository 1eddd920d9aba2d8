//! What the fuzzer calls: one function for each kind of input that others write. Each must return whatever
//! the bytes are, and tells whether they were good; asserts hold what must be true of good ones.
//! `tests/fuzzed.rs` includes this file and runs the same functions on a stable compiler.

mod forge;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::str;
use std::time::Instant;

use dtlto_bridge::adapter::{List, Manifest, Scalar, Source, Values};
use dtlto_bridge::bitcode::{
    self, Agreement, BLOCKINFO, Block, BlockInfo, Change, Item, Refusal, Shard,
};
use dtlto_bridge::bundle::{self, Digest, Expected, Limits, Names, Request};
use dtlto_bridge::cache::entry::{self, Unread};
use dtlto_bridge::jobfile::JobFile;
use dtlto_bridge::policy::{self, Named};
use dtlto_bridge::worker::settings;

/// A target: what is done with an input.
pub type Target = fn(&[u8]) -> bool;

/// All targets, by the names that they have in `fuzz_targets/` and `corpus/`.
pub const TARGETS: [(&str, Target); 8] = [
    ("bitcode", bitcode),
    ("cache_entry", cache_entry),
    ("job_file", job_file),
    ("manifest", manifest),
    ("policy", policy),
    ("request", request),
    ("response", response),
    ("worker_settings", worker_settings),
];

/// So little that a bundle which holds more than it may does not slow the fuzzer down.
const LIMITS: Limits = Limits { total: 1 << 22, ratio: 1000 };

/// LLD's job file, and what is done with jobs before anything of theirs is touched.
pub fn job_file(bytes: &[u8]) -> bool {
    let file = match JobFile::parse(bytes) {
        Ok(file) => file,
        Err(error) => {
            printable(&format!("{error:#}"));
            return false;
        }
    };
    file.notices.iter().for_each(|notice| printable(notice));
    let names = Names::new(&file.jobs);
    let mut outputs = BTreeSet::new();
    for job in &file.jobs {
        assert!(job.outputs().all(|output| !output.is_empty() && outputs.insert(output)));
        assert!(job.imports.iter().chain([&job.primary]).all(|name| names.get(name).is_some()));
        if let Err(refusal) = policy::check(&job.args, &Named::from(job)) {
            one_line(&refusal.to_string());
        }
    }
    let jobs = &file.jobs;
    assert!(jobs.iter().flat_map(|job| job.inputs()).all(|input| !outputs.contains(input)));
    true
}

/// A file of bitcode: an index shard is read and renamed, any other walked through.
pub fn bitcode(bytes: &[u8]) -> bool {
    let _ = walk(bytes);
    let _ = bitcode::module_hash(bytes);
    let Ok(shard) = Shard::read(bytes) else {
        assert!(bitcode::rename(bytes, &[]).is_err());
        return false;
    };
    let own: Vec<_> = shard.modules.iter().map_while(|m| str::from_utf8(&m.name).ok()).collect();
    if own.len() == shard.modules.len() {
        assert_eq!(bitcode::names_agree(&shard, &own), Agreement::Same);
    }
    let new: Vec<_> = (0..shard.modules.len()).map(|k| format!("m{k:09}")).collect();
    let change = |name| Change { name: str::as_bytes(name), hash: Some([7; 5]) };
    let changes: Vec<_> = new.iter().map(|name| change(name)).collect();
    let Ok(rewritten) = bitcode::rewrite(bytes, &changes) else { return false };
    let again = Shard::read(&rewritten).expect("a rewritten shard can be read");
    assert_eq!(again.modules.len(), shard.modules.len());
    for ((before, after), name) in shard.modules.iter().zip(&again.modules).zip(&new) {
        assert_eq!((before.id, name.as_bytes()), (after.id, &after.name[..]));
        assert_eq!(after.hash, before.hash.map(|_| [7; 5]));
    }
    let changes: Vec<_> =
        shard.modules.iter().map(|m| Change { name: &m.name, hash: m.hash }).collect();
    if changes.is_sorted_by(|one, next| one.name < next.name) {
        let back = bitcode::rewrite(&rewritten, &changes).expect("the old names are good");
        assert_eq!(Shard::read(&back).as_ref(), Ok(&shard));
    }
    true
}

/// Opens every block of a file of bitcode.
fn walk(bytes: &[u8]) -> Result<(), Refusal> {
    let mut info = BlockInfo::default();
    let mut top = Block::file(bytes)?;
    let mut found = Vec::new();
    while let Some(Item::Block(header)) = top.next_item()? {
        found.push(header);
    }
    while let Some(outer) = found.pop() {
        assert!(outer.body.end <= bytes.len());
        if outer.id == BLOCKINFO {
            info.read(bytes, &outer)?;
            continue;
        }
        let mut block = Block::open(bytes, &outer, &info)?;
        while let Some(item) = block.next_item()? {
            let within = |part: &std::ops::Range<usize>| {
                outer.body.start <= part.start && part.end <= outer.body.end
            };
            match item {
                Item::Block(inner) => {
                    assert!(within(&inner.body));
                    found.push(inner);
                }
                Item::Record(record) => {
                    assert!(record.blob.as_ref().is_none_or(within));
                    // Literals of an abbreviation take no room, but it has no more than 64.
                    assert!(record.operands.len() <= outer.body.len() * 8 + 64);
                }
            }
        }
    }
    Ok(())
}

/// A request, wrapped as its first byte says, unpacked into a folder of its own.
pub fn request(bytes: &[u8]) -> bool {
    let forged = forge::request(bytes);
    let opened = match bundle::open(Cursor::new(&forged.bundle), &LIMITS) {
        Ok(opened) => opened,
        Err(fault) => {
            printable(&fault.to_string());
            return false;
        }
    };
    let outer = tempfile::tempdir().expect("a folder for temporary files");
    let folder = outer.path().join("inner");
    fs::create_dir(&folder).expect("the folder is new");
    let mut store = |digest: &Digest, place: &Path| {
        let known = forged.contents.iter().find(|content| Digest::of(content) == *digest);
        known.map_or(Ok(false), |content| fs::write(place, content).map(|()| true))
    };
    let unpacked = opened.unpack(&folder, &mut store);
    assert_eq!(fs::read_dir(outer.path()).expect("it is there").count(), 1, "out of the folder");
    match unpacked {
        Ok(request) => as_announced(&request, &folder),
        Err(fault) => {
            printable(&fault.to_string());
            return false;
        }
    }
    true
}

/// The folder holds the files of the request and no others, and each has its content.
fn as_announced(request: &Request, folder: &Path) {
    let mut total = 0;
    for file in &request.files {
        let content = fs::read(folder.join(&file.name)).expect("a file of the request");
        let mut rest = &content[..];
        for piece in &file.pieces {
            let (part, behind) = rest.split_at(piece.length as usize);
            assert_eq!(Digest::of(part), piece.blake3);
            rest = behind;
        }
        assert!(rest.is_empty());
        total += content.len() as u64;
    }
    assert!(total <= LIMITS.total);
    assert_eq!(count_files(folder), request.files.len());
    let json = serde_json::to_vec(request).expect("it came from JSON");
    assert_eq!(&serde_json::from_slice::<Request>(&json).expect("it was just written"), request);
}

fn count_files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder");
    let count = |path: PathBuf| if path.is_dir() { count_files(&path) } else { 1 };
    entries.map(|entry| count(entry.expect("an entry").path())).sum()
}

/// A response, wrapped as its first byte says. The request asked for an object, and for a `.dwo` file if the
/// bytes speak of one.
pub fn response(bytes: &[u8]) -> bool {
    let forged = forge::response(bytes);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let asked = if bytes.windows(4).any(|part| part == b".dwo") { 2 } else { 1 };
    let outputs = ["out.o", "out.dwo"].map(|name| (name.to_owned(), folder.path().join(name)));
    let outputs = &outputs[..asked];
    let expected = Expected { nonce: forge::NONCE, link: "7f", outputs };
    let received = bundle::receive(Cursor::new(&forged.bundle), &expected, &LIMITS);
    let made = count_files(folder.path());
    let there = outputs.iter().filter(|(_, place)| place.exists()).count();
    assert_eq!(made, there, "something else was made");
    let received = match received {
        Ok(received) => received,
        Err(fault) => {
            printable(&fault.to_string());
            return false;
        }
    };
    assert_eq!(received.response.nonce, forge::NONCE);
    assert_eq!(made, received.response.outputs.len());
    for output in &received.response.outputs {
        let (_, place) = outputs.iter().find(|(name, _)| *name == output.name).expect("asked for");
        let content = fs::read(place).expect("an output");
        assert_eq!((content.len() as u64, Digest::of(&content)), (output.length, output.blake3));
    }
    true
}

/// An entry of a cache; of a head and the contents of its outputs, with a NUL between them, one is made.
pub fn cache_entry(bytes: &[u8]) -> bool {
    let forged = forge::entry_of_cache(bytes);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let places = ["out.o", "out.dwo"].map(|name| folder.path().join(name));
    let asked = if bytes.windows(4).any(|part| part == b".dwo") { 2 } else { 1 };
    let places = &places[..asked];
    let read = entry::read(Cursor::new(&forged), &forge::KEY, places, LIMITS.total);
    match read {
        Ok((_, outputs)) => {
            for (place, output) in places.iter().zip(&outputs) {
                let content = fs::read(place).expect("an output");
                assert_eq!(
                    (content.len() as u64, Digest::of(&content)),
                    (output.length, output.blake3)
                );
            }
            assert_eq!((count_files(folder.path()), outputs.len()), (asked, asked));
            true
        }
        Err(Unread::Damaged(damage)) => {
            one_line(&damage.to_string());
            assert_eq!(count_files(folder.path()), 0, "something stays");
            false
        }
        Err(Unread::Failed(error)) => panic!("{error}"),
    }
}

/// An adapter's manifest.
pub fn manifest(bytes: &[u8]) -> bool {
    struct Words;
    impl Values for Words {
        fn scalar(&self, _: Scalar) -> &str {
            "{args...}"
        }
        fn list(&self, _: List) -> Vec<&str> {
            vec!["a", "{tool}"]
        }
    }
    let Ok(text) = str::from_utf8(bytes) else { return false };
    // A file's name and its manifest's must be the same, which only ever adds a problem.
    if let Err(error) = Manifest::parse(text, Source::File("adapter.json".into())) {
        printable(&format!("{error:#}"));
    }
    let Ok(manifest) = Manifest::parse(text, Source::BuiltIn) else { return false };
    assert!(!manifest.command.expand(&Words).is_empty());
    let _ = (-1..300).filter_map(|code| manifest.failure(code)).count();
    assert!(manifest.probes.iter().all(|probe| !probe.argv("tool", "clang").is_empty()));
    manifest.notes.iter().chain([&manifest.summary]).for_each(|line| one_line(line));
    true
}

/// The arguments of a job, each on a line.
pub fn policy(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let args: Vec<_> = text.split('\n').collect();
    let files = Named {
        primary: "m0000",
        index: "index",
        object: "out.o",
        other_inputs: vec!["other/0"],
        other_outputs: vec!["out.dwo"],
    };
    match policy::check(&args, &files) {
        Err(refusal) => {
            one_line(&refusal.to_string());
            false
        }
        Ok(weight) => {
            assert!((1..=16).contains(&weight.slots()));
            only_harmless(&args);
            true
        }
    }
}

/// Not a second list: what every list must keep out.
fn only_harmless(args: &[&str]) {
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match *arg {
            "-D" | "-U" => drop(rest.next()),
            text if text.starts_with("-D") || text.starts_with("-U") => {}
            text if text.contains("-prefix-map=") => {}
            text => {
                assert!(!text.starts_with(['@', '/']), "{text}");
                assert!(!text.contains('/') || text.ends_with("=other/0"), "{text}");
                for bad in ["-X", "-cc1", "-B", "-load", "-fplugin", "-fpass-plugin", "--config"] {
                    assert!(!text.starts_with(bad), "{text}");
                }
            }
        }
    }
    for one in ["-c", "m0000", "-fthinlto-index=index", "out.o"] {
        assert!(args.contains(&one), "{one}");
    }
}

/// The settings of a worker's owner, from a file.
pub fn worker_settings(bytes: &[u8]) -> bool {
    let mut file = tempfile::NamedTempFile::new().expect("a folder for temporary files");
    file.write_all(bytes).expect("space for it");
    // What is said of a bad file may quote it as it is: it is the reader's own.
    let Ok(found) = settings::find(Some(file.path()), None) else { return false };
    assert!(found.settings.compilers.iter().all(|allowed| allowed.path().is_absolute()));
    assert!(!found.time().is_zero());
    assert!(Instant::now().checked_add(found.time()).is_some());
    let _ = (found.landlock(), found.output(), found.request());
    true
}

/// Terminals and log files take it: no control characters.
fn printable(text: &str) {
    let bad = text.chars().find(|c| c.is_control() && *c != '\n');
    assert!(bad.is_none(), "{bad:?} in {text:?}");
}

fn one_line(text: &str) {
    printable(text);
    assert!(!text.contains('\n'), "{text:?}");
}
