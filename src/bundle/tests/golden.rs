//! Bundles of every format that was ever released: today's code still reads them. Bridge and worker are
//! never upgraded on the same day.

use std::fs;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/bundles");

fn golden(kind: &str, format: u16) -> String {
    format!("{FOLDER}/{kind}-{format}.dtlto")
}

fn sent() -> Request {
    let mut request: Request = serde_json::from_value(manifest()).unwrap();
    request.compiler.parts.insert("clang".to_owned(), Digest::of(b"clang").to_string());
    request.files[1].name = "other/0".to_owned();
    let blake3 = Digest::of(b"on its way");
    let pieces = vec![Piece { blake3, length: 10, held: true }];
    request.files.push(File { name: "other/1".to_owned(), pieces });
    request.in_flight = vec![blake3];
    request.environment = vec![Shipped {
        path: "opt/llvm/bin/clang".to_owned(),
        length: 8,
        build_id: Some("d830".to_owned()),
        blake3: Digest::of(b"compiler"),
    }];
    request
}

fn answered() -> Response {
    let mut response: Response = serde_json::from_value(response_manifest()).unwrap();
    response.holds = vec![Digest::of(b"module")];
    (response.ms, response.peak_kb) = (1234, 65_536);
    response
}

#[test]
fn requests_of_all_formats_are_read() {
    for format in OLDEST_READ..=FORMAT {
        let bundle = fs::read(golden("request", format)).unwrap();
        let (request, folder) = unpacked_from(&bundle, &["on its way"]).unwrap();
        assert_eq!(request, sent());
        let read = |name: &str| fs::read(folder.path().join("inner").join(name)).unwrap();
        assert_eq!((read("index"), read("other/0")), (b"INDEX".to_vec(), b"module".to_vec()));
        assert_eq!(read("other/1"), b"on its way");
    }
}

#[test]
fn responses_of_all_formats_are_read() {
    for format in OLDEST_READ..=FORMAT {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("1.o");
        let got = received(&fs::read(golden("response", format)).unwrap(), &place).unwrap();
        assert_eq!(got.response, answered());
        assert_eq!((&got.stdout[..], &got.stderr[..]), (&b"out"[..], &b"warning\n"[..]));
        assert_eq!(fs::read(place).unwrap(), b"object");
    }
}

/// Remakes the two of today's format, once it has changed and before it is released:
/// `REMAKE_GOLDEN=1 cargo test golden`. Those of older formats stay as they are for ever.
#[test]
#[allow(clippy::disallowed_methods, reason = "a switch for those who work on the format")]
fn todays_golden_files_are_remade_if_asked_for() {
    if std::env::var_os("REMAKE_GOLDEN").is_none() {
        return;
    }
    let sources = ["INDEX", "module", ""].map(|content| Source::Bytes(content.into()));
    let out = fs::File::create(golden("request", FORMAT)).unwrap();
    super::super::prepare::write(&sent(), &sources, out).ok().unwrap();

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("out.o"), "object").unwrap();
    let out = fs::File::create(golden("response", FORMAT)).unwrap();
    let outputs = ["out.o".to_owned()];
    let streams = [&b"out"[..], b"warning\n"];
    answer(out, &mut answered(), streams, (folder.path(), &outputs)).unwrap();
}
