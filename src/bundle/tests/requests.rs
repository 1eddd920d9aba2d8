//! Requests that are packed and unpacked.

use std::fs;

use super::*;

fn packed(prepared: &mut Prepared) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    let length = prepared.pack(&mut out, &Limits::default()).unwrap();
    assert_eq!(length, out.get_ref().len() as u64);
    out.into_inner()
}

#[test]
fn a_request_comes_out_as_it_went_in() {
    let mut sent = prepared(&manifest(), &[b"INDEX", b"module"]);
    let (got, folder) = unpacked(&packed(&mut sent)).unwrap();
    assert_eq!(got, sent.request);
    assert_ne!(got.nonce, NONCE, "each try has a new one");
    let read = |name: &str| fs::read(folder.path().join("inner").join(name)).unwrap();
    assert_eq!((read("index"), read("m0000")), (b"INDEX".to_vec(), b"module".to_vec()));
    assert_eq!(fs::read_dir(folder.path().join("inner")).unwrap().count(), 2);
}

#[test]
fn equal_content_makes_equal_bytes() {
    let pack = || {
        let sent = prepared(&manifest(), &[b"INDEX", b"module"]);
        let mut out = Cursor::new(Vec::new());
        super::super::prepare::write(&sent.request, &sent.sources, &mut out).ok().unwrap();
        out.into_inner()
    };
    assert_eq!(pack(), pack());
}

#[test]
fn a_file_may_have_many_pieces_and_files_may_share_them() {
    let piece = |text: &str| json!({"blake3": Digest::of(text.as_bytes()), "length": text.len()});
    let mut manifest = manifest();
    manifest["files"] = json!([
        {"name": "index", "pieces": [piece("INDEX")]},
        {"name": "other/0", "pieces": [piece("one"), piece("two"), piece("one")]},
        {"name": "other/1", "pieces": [piece("two"), piece("INDEX")]},
        {"name": "empty", "pieces": []},
    ]);
    manifest["outputs"] = json!(["deep/er/out.o"]);
    let entries = ["INDEX", "one", "two"].map(super::piece).into_iter().collect();
    let (_, folder) = unpacked(&forged(Kind::Request, &manifest, entries)).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join("inner").join(name)).unwrap();
    assert_eq!(["other/0", "other/1", "empty"].map(read), ["onetwoone", "twoINDEX", ""]);
    assert!(folder.path().join("inner/deep/er").is_dir());
}

#[test]
fn held_pieces_are_asked_for_and_looked_at() {
    let mut sent = prepared(&manifest(), &[b"INDEX", b"module"]);
    let held = Digest::of(b"module");
    sent.hold(|digest| *digest == held);
    let bundle = packed(&mut sent);
    match unpacked(&bundle) {
        Err(Fault::MissingPieces(pieces)) => assert_eq!(pieces, [held]),
        other => panic!("{other:?}"),
    }
    let with = |content: &'static str| {
        let folder = tempfile::tempdir().unwrap();
        let store = &mut |digest: &Digest, to: &Path| {
            assert_eq!(*digest, held);
            fs::write(to, content).map(|()| true)
        };
        let opened = open(Cursor::new(&bundle), &Limits::default()).unwrap();
        opened.unpack(folder.path(), store).map(|_| {
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
            fs::read_to_string(folder.path().join("m0000")).unwrap()
        })
    };
    assert_eq!(with("module").unwrap(), "module");
    for bad in ["Module", "modul", "modules", ""] {
        assert!(matches!(with(bad), Err(Fault::Content { .. })), "{bad}");
    }
}

#[test]
fn a_link_from_the_store_is_not_followed() {
    let mut sent = prepared(&manifest(), &[b"INDEX", b"module"]);
    sent.hold(|digest| *digest == Digest::of(b"module"));
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "module").unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let opened = open(Cursor::new(packed(&mut sent)), &Limits::default()).unwrap();
    let store = &mut |_: &Digest, to: &Path| std::os::unix::fs::symlink(&secret, to).map(|()| true);
    assert!(matches!(opened.unpack(&inner, store), Err(Fault::Here { .. })));
}

#[test]
fn what_lies_in_the_folder_already_is_not_touched() {
    for name in ["m0000", "index"] {
        let folder = tempfile::tempdir().unwrap();
        let planted = folder.path().join(name);
        std::os::unix::fs::symlink("/dev/null", &planted).unwrap();
        let bundle = packed(&mut prepared(&manifest(), &[b"INDEX", b"module"]));
        let opened = open(Cursor::new(&bundle), &Limits::default()).unwrap();
        let found = opened.unpack(folder.path(), &mut |_, _| Ok(false));
        assert!(matches!(found, Err(Fault::Here { .. })), "{found:?}");
        assert!(planted.is_symlink());
    }
}

#[test]
fn an_input_that_changed_is_not_packed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.o");
    for changed in ["Module", "modul", "module2", ""] {
        let mut sent = prepared(&manifest(), &[b"INDEX", b"module"]);
        sent.sources[1] = Source::Path(path.to_str().unwrap().into());
        fs::write(&path, "module").unwrap();
        packed(&mut sent);
        fs::write(&path, changed).unwrap();
        match sent.pack(Cursor::new(Vec::new()), &Limits::default()) {
            Err(NotPacked::Changed(why)) => assert!(why.contains("a.o: this input changed")),
            other => panic!("{changed:?}: {other:?}"),
        }
    }
}

#[test]
fn what_is_too_large_stays_here() {
    let mut sent = prepared(&manifest(), &[b"INDEX", b"module"]);
    let limits = Limits { total: 10, ratio: 1000 };
    match sent.pack(Cursor::new(Vec::new()), &limits) {
        Err(NotPacked::StaysHere(why)) => assert!(why.contains("11 bytes"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_held_does_not_count_as_compressed() {
    let content = vec![0; 65 << 20];
    let mut manifest = manifest();
    let piece = json!({"blake3": Digest::of(&content), "length": content.len()});
    manifest["files"] = json!([{"name": "m0000", "pieces": [piece]}]);
    let mut sent = prepared(&manifest, &[&content]);
    let found = sent.pack(Cursor::new(Vec::new()), &Limits::default());
    assert!(matches!(found, Err(NotPacked::StaysHere(why)) if why.contains("an attack")));
    sent.hold(|_| true);
    packed(&mut sent);
}

#[test]
fn a_full_disk_is_told_apart() {
    let mut sent = prepared(&manifest(), &[b"INDEX", b"module"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let found = sent.pack(full, &Limits::default());
    assert!(matches!(found, Err(NotPacked::NoSpace(_))), "{found:?}");
}

#[test]
fn content_of_64_mib_goes_round() {
    let mut content = vec![0; 64 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut content[40 << 20..]);
    let mut manifest = manifest();
    let piece = json!({"blake3": Digest::of(&content), "length": content.len()});
    manifest["files"] = json!([{"name": "m0000", "pieces": [piece]}]);
    let (_, folder) = unpacked(&packed(&mut prepared(&manifest, &[&content]))).unwrap();
    assert!(fs::read(folder.path().join("inner/m0000")).unwrap() == content);
}

#[test]
fn fields_of_later_versions_are_passed_over() {
    let mut manifest = manifest();
    manifest["later"] = json!({"x": [1]});
    manifest["files"][0]["later"] = json!(1);
    manifest["files"][0]["pieces"][0]["later"] = json!(null);
    let entries = vec![piece("INDEX"), piece("module")];
    unpacked(&forged(Kind::Request, &manifest, entries)).unwrap();
}
