//! Bundles that go round, bundles that were made to do harm, and what both need: a forge.

mod damage;
mod golden;
mod hostile;
mod requests;
mod responses;

use std::io::{Cursor, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::header::LENGTH;
use super::prepare::Source;
use super::*;
use crate::jobfile::{Job, Text};

/// A job as LLD 22 writes it.
pub(super) fn job(primary: &str, imports: &[&str]) -> Job {
    let text = |text: &str| Text::from(text);
    let object = format!("{}.native.o", primary.trim_end_matches(".o"));
    let index = format!("{object}.thinlto.bc");
    let args = ["-c", "-O2", primary, &format!("-fthinlto-index={index}"), "-o", &object];
    Job {
        args: args.map(text).to_vec(),
        primary: text(primary),
        index: text(&index),
        imports: imports.iter().copied().map(text).collect(),
        other_inputs: vec![],
        object: text(&object),
        other_outputs: vec![],
    }
}

/// A request as a manifest: the files `index` ("INDEX") and `m0000` ("module"), the output `out.o`.
fn manifest() -> Value {
    let file = |name: &str, content: &str| {
        let piece = json!({"blake3": Digest::of(content.as_bytes()), "length": content.len()});
        json!({"name": name, "pieces": [piece]})
    };
    json!({
        "nonce": NONCE, "bridge": "0.1.0", "link": "7f", "user": "u", "host": "h", "job": 3,
        "module": "a.o", "args": ["-c", "m0000", "-fthinlto-index=index", "-o", "out.o"],
        "files": [file("index", "INDEX"), file("m0000", "module")], "outputs": ["out.o"],
        "compiler": {"version": "clang version 22.1.8", "parts": {}, "code": "c", "full": "f"},
        "time_limit_s": 60, "weight": 1,
    })
}

/// A response as a manifest: the output `out.o` ("object").
fn response_manifest() -> Value {
    json!({
        "nonce": NONCE, "worker": "0.1.0", "host": "h", "link": "7f", "job": 3,
        "answer": {"is": "ran", "code": 0, "signal": null},
        "outputs": [{"name": "out.o", "length": 6, "blake3": Digest::of(b"object")}],
    })
}

const NONCE: Nonce = Hex([7; 16]);

/// A request with the given contents instead of files.
fn prepared(manifest: &Value, contents: &[&[u8]]) -> Prepared {
    let sources = contents.iter().map(|bytes| Source::Bytes(bytes.to_vec())).collect();
    Prepared { request: serde_json::from_value(manifest.clone()).unwrap(), sources }
}

/// An archive entry of the author's choice.
struct Entry {
    head: tar::Header,
    content: Vec<u8>,
}

fn entry(name: &str, content: impl AsRef<[u8]>) -> Entry {
    let mut head = tar::Header::new_ustar();
    // Not by `set_path`, which refuses what is tested here.
    head.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    head.set_size(content.as_ref().len() as u64);
    head.set_entry_type(tar::EntryType::Regular);
    head.set_cksum();
    Entry { head, content: content.as_ref().to_vec() }
}

impl Entry {
    fn with(mut self, change: impl FnOnce(&mut tar::Header)) -> Self {
        change(&mut self.head);
        self.head.set_cksum();
        self
    }
}

fn piece(content: &str) -> Entry {
    entry(&format!("piece/{}", Digest::of(content.as_bytes())), content)
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Entry { head, content } in entries {
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn compressed(archive: &[u8]) -> Vec<u8> {
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    zstd.include_checksum(true).unwrap();
    zstd.write_all(archive).unwrap();
    zstd.finish().unwrap()
}

/// A bundle whose header fits whatever `body` is.
fn bundle_of(kind: Kind, body: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        format: FORMAT,
        oldest: OLDEST_READER,
        length: body.len() as u64,
        blake3: Digest::of(body),
        nonce: NONCE,
        version: "0.1.0".to_owned(),
    };
    [&header.bytes()[..], body].concat()
}

fn forged(kind: Kind, manifest: &Value, entries: Vec<Entry>) -> Vec<u8> {
    let first = entry(MANIFEST, manifest.to_string());
    let entries: Vec<_> = std::iter::once(first).chain(entries).collect();
    bundle_of(kind, &compressed(&archive(&entries)))
}

/// Reads a request into a folder of its own. Nothing of it is held here.
fn unpacked(bundle: &[u8]) -> Result<(Request, tempfile::TempDir), Fault> {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let opened = open(Cursor::new(bundle), &Limits::default());
    let request = opened.and_then(|opened| opened.unpack(&inner, &mut |_, _| Ok(false)));
    let beside = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(beside, 1, "something was made outside of the folder");
    Ok((request?, folder))
}

fn received(bundle: &[u8], place: &Path) -> Result<Received, Fault> {
    let outputs = [("out.o".to_owned(), place.to_owned())];
    let expected = Expected { nonce: NONCE, link: "7f", outputs: &outputs };
    receive(Cursor::new(bundle), &expected, &Limits::default())
}
