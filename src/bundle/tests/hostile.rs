//! Requests that were made to do harm. Whole and undamaged as files, each is refused with a text of its
//! own, and nothing is made outside of the folder.

use super::*;

#[track_caller]
fn refused(what: &str, bundle: &[u8], expected: &str) {
    match unpacked(bundle) {
        Ok(_) => panic!("{what}: it was taken"),
        Err(fault) => {
            let found = fault.to_string();
            assert!(found.contains(expected), "{what}: {found}");
            assert!(found.len() < 1000, "{what}: a message of {} bytes", found.len());
        }
    }
}

fn good() -> Vec<Entry> {
    vec![piece("INDEX"), piece("module")]
}

#[test]
fn the_forge_makes_what_is_taken() {
    unpacked(&forged(Kind::Request, &manifest(), good())).unwrap();
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let long = "a/".repeat(200) + "b";
    for (name, why) in [
        ("/etc/passwd", "absolute"),
        ("../outside", "leads upward"),
        ("a/../../outside", "leads upward"),
        ("a//b", "part of it is empty"),
        ("a/", "part of it is empty"),
        ("./a", "part of it is empty"),
        ("", "it is empty"),
        ("a\0b", "NUL"),
        ("a\nb", "other characters"),
        ("a\\b", "other characters"),
        ("-o", "begins with -"),
        (".held", "begins with - or ."),
        ("index", "there twice"),
        ("index/x", "another name is its folder"),
        ("out.o", "there twice"),
        ("out.o/x", "another name is its folder"),
        (&long, "too long"),
    ] {
        let mut manifest = manifest();
        manifest["files"][1]["name"] = json!(name);
        refused(name, &forged(Kind::Request, &manifest, good()), why);
    }
    for (name, why) in [
        ("/etc/crontab", "absolute"),
        ("../x.o", "leads upward"),
        ("m0000", "there twice"),
        ("m0000/x", "another name is its folder"),
    ] {
        let mut manifest = manifest();
        manifest["outputs"][0] = json!(name);
        refused(name, &forged(Kind::Request, &manifest, good()), why);
    }
}

#[test]
fn manifests_that_cannot_be_are_refused() {
    let digest = || json!(Digest::of(b"module"));
    let upper = || json!(Digest::of(b"module").to_string().to_uppercase());
    let module = |manifest: &mut Value| manifest["files"][1]["pieces"][0].take();
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: [(&str, Change<'_>, &str); 14] = [
        ("no files", &|m| m["files"].take().as_null().unwrap_or_default(), "invalid type: null"),
        ("a long word", &|m| m["job"] = json!("\x1b]0;".repeat(100_000)), "\\u{1b}]0;"),
        ("no outputs", &|m| m["outputs"] = json!([]), "there is no output"),
        ("another nonce", &|m| m["nonce"] = json!(Nonce::fresh()), "nonce is not that"),
        (
            "a short digest",
            &|m| m["files"][1]["pieces"][0]["blake3"] = json!("00"),
            "64 lower-case",
        ),
        ("capitals", &|m| m["files"][1]["pieces"][0]["blake3"] = upper(), "64 lower-case"),
        ("a path", &|m| m["files"][1]["pieces"][0]["blake3"] = json!("../x"), "64 lower-case"),
        (
            "less than nothing",
            &|m| m["files"][1]["pieces"][0]["length"] = json!(-1),
            "invalid value",
        ),
        ("a fraction", &|m| m["files"][1]["pieces"][0]["length"] = json!(1.5), "invalid type"),
        ("too much", &|m| m["files"][1]["pieces"][0]["length"] = json!(1u64 << 31), "too large"),
        ("most", &|m| m["files"][1]["pieces"][0]["length"] = json!(u64::MAX), "too large"),
        (
            "more than a number can say",
            &|m| {
                let piece = json!({"blake3": digest(), "length": u64::MAX});
                m["files"][1]["pieces"] = json!([piece, piece, piece]);
            },
            "too large",
        ),
        (
            "one piece of two lengths",
            &|m| {
                let piece = module(m);
                m["files"][1]["pieces"] = json!([piece, {"blake3": digest(), "length": 5}]);
            },
            "two entries for piece",
        ),
        (
            "a piece both here and there",
            &|m| {
                let piece = module(m);
                let held = json!({"blake3": digest(), "length": 6, "held": true});
                m["files"][1]["pieces"] = json!([piece, held]);
            },
            "two entries for piece",
        ),
    ];
    for (what, change, why) in cases {
        let mut manifest = manifest();
        change(&mut manifest);
        refused(what, &forged(Kind::Request, &manifest, good()), why);
    }
}

#[test]
fn files_without_number_are_refused() {
    let names = || (0..=FILES_LIMIT).map(|n| format!("f/{n}"));
    let mut many = manifest();
    many["files"] = names().map(|name| json!({"name": name, "pieces": []})).collect();
    refused("files", &forged(Kind::Request, &many, vec![]), "50001 files, 50000 allowed");
    let mut many = manifest();
    many["outputs"] = names().collect();
    refused("outputs", &forged(Kind::Request, &many, good()), "50001 files, 50000 allowed");
}

#[test]
fn what_stands_in_the_manifests_place_is_refused() {
    let alone = |first: Entry| bundle_of(Kind::Request, &compressed(&archive(&[first])));
    let long = vec![b' '; MANIFEST_LIMIT as usize + 1];
    let nested = "{\"later\":".to_owned() + &"[".repeat(100_000);
    refused("a long one", &alone(entry(MANIFEST, long)), "are too long");
    refused("a deep one", &alone(entry(MANIFEST, nested)), "EOF while parsing");
    refused("no JSON", &alone(entry(MANIFEST, "\0\0")), "manifest of the bundle: expected value");
    refused("an empty one", &alone(entry(MANIFEST, "")), "EOF while parsing");
    refused("a piece", &alone(piece("INDEX")), "\"manifest.json\" is due");
    let nothing = bundle_of(Kind::Request, &compressed(&archive(&[])));
    refused("an empty archive", &nothing, "holds the end where \"manifest.json\" is due");
}

#[test]
fn entries_that_are_no_plain_files_are_refused() {
    for (kind, why) in [
        (b'1', "a hard link"),
        (b'2', "a symbolic link"),
        (b'3', "a device"),
        (b'4', "a device"),
        (b'5', "a folder"),
        (b'6', "a pipe"),
        (b'L', "an extended head"),
        (b'K', "an extended head"),
        (b'x', "an extended head"),
        (b'g', "an extended head"),
        (b'S', "a sparse file"),
        (b'7', "of an unknown kind"),
        (0, "a plain file of an old archive"),
    ] {
        let special = piece("INDEX").with(|head| {
            head.as_old_mut().linkflag = [kind];
            head.as_old_mut().linkname[..11].copy_from_slice(b"/etc/passwd");
        });
        let bundle = forged(Kind::Request, &manifest(), vec![special, piece("module")]);
        refused(why, &bundle, why);
    }
    let old = piece("INDEX").with(|head| head.as_ustar_mut().unwrap().magic = *b"nostar");
    refused("old", &forged(Kind::Request, &manifest(), vec![old]), "is due");
}

#[test]
fn a_damaged_head_cannot_write_to_a_terminal() {
    let mut colours = entry("\u{1b}[31m", "INDEX");
    colours.head.as_old_mut().cksum = *b"letters ";
    let fault = unpacked(&bundle_of(Kind::Request, &compressed(&archive(&[colours])))).unwrap_err();
    let text = fault.to_string();
    assert!(text.contains("u{1b}[31m") && !text.contains(char::is_control), "{text:?}");
}

#[test]
fn entries_that_the_manifest_does_not_announce_are_refused() {
    let absolute = entry("/etc/cron.d/x", "INDEX");
    let upward = entry("piece/../../x", "INDEX");
    let named = |name: &str, entries| (name.to_owned(), entries);
    for (what, entries) in [
        named("/etc/cron.d/x", vec![absolute]),
        named("piece/../../x", vec![upward]),
        named("the end", vec![piece("INDEX")]),
        named("\"piece/", vec![piece("module"), piece("INDEX")]),
        named("\"piece/", vec![piece("INDEX"), piece("INDEX"), piece("module")]),
        named("where the end is due", vec![piece("INDEX"), piece("module"), piece("module")]),
        named("where the end is due", vec![piece("INDEX"), piece("module"), entry("x", "")]),
    ] {
        refused(&what, &forged(Kind::Request, &manifest(), entries), &what);
    }
}

#[test]
fn entries_of_another_length_or_content_are_refused() {
    let name = format!("piece/{}", Digest::of(b"INDEX"));
    let size = |size: u64| piece("INDEX").with(|head| head.set_size(size));
    let binary = piece("INDEX").with(|head| head.as_old_mut().size = [0xff; 12]);
    let letters = piece("INDEX").with(|head| head.as_old_mut().size = *b"letters 1234");
    let mut sum = piece("INDEX");
    sum.head.as_old_mut().mode[0] ^= 1;
    for (what, first, why) in [
        ("longer", entry(&name, "INDEX!"), "not those announced"),
        ("shorter", entry(&name, "INDE"), "not those announced"),
        ("other", entry(&name, "index"), "differs from its digest"),
        ("size 0", size(0), "not those announced"),
        ("8 GiB", size((8 << 30) - 1), "not those announced"),
        ("2^63", size(1 << 63), "not those announced"),
        ("binary", binary, "malformed"),
        ("letters", letters, "malformed"),
        ("checksum", sum, "is damaged"),
    ] {
        let bundle = forged(Kind::Request, &manifest(), vec![first, piece("module")]);
        refused(what, &bundle, why);
    }
}

#[test]
fn bombs_stop_early() {
    let zeros = || vec![0; 80 << 20];
    let bomb = entry(&format!("piece/{}", Digest::of(b"INDEX")), zeros());
    refused("entry", &forged(Kind::Request, &manifest(), vec![bomb]), "not those announced");

    let mut archive = archive(&[entry(MANIFEST, manifest().to_string())]);
    archive.truncate(archive.len() - 1024);
    let good = super::archive(&good());
    let tail = [&archive[..], &good, &zeros()].concat();
    refused("tail", &bundle_of(Kind::Request, &compressed(&tail)), "more than its manifest");

    let mut announced = manifest();
    let piece = json!({"blake3": Digest::of(&zeros()), "length": zeros().len()});
    announced["files"][1]["pieces"][0] = piece;
    refused("ratio", &forged(Kind::Request, &announced, vec![]), "bytes of files from");

    let piece = json!({"blake3": Digest::of(b"x"), "length": 1 << 20});
    announced["files"][1]["pieces"] = vec![piece; 1025].into();
    refused("repeated", &forged(Kind::Request, &announced, vec![]), "too large");
}

#[test]
fn streams_that_are_not_one_plain_frame_are_refused() {
    let entries = || {
        let manifest = entry(MANIFEST, manifest().to_string());
        archive(&std::iter::once(manifest).chain(good()).collect::<Vec<_>>())
    };
    let frame = compressed(&entries());
    let skippable = [0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    let mut checksum = frame.clone();
    *checksum.last_mut().unwrap() ^= 1;
    let mut window = zstd::Encoder::new(Vec::new(), 1).unwrap();
    window.window_log(30).unwrap();
    window.write_all(&entries()).unwrap();
    let short = compressed(&entries()[..4000]);
    let trailing = compressed(&[&entries()[..], b"x"].concat());
    for (what, body, why) in [
        ("nothing", vec![], "malformed"),
        ("no frame", b"no frame at all".to_vec(), "malformed"),
        ("cut frame", frame[..frame.len() - 9].to_vec(), "malformed"),
        ("two frames", [&frame[..], &frame].concat(), "follows the compressed frame"),
        ("a skipped frame", [&frame[..], &skippable].concat(), "follows the compressed frame"),
        ("checksum", checksum, "checksum"),
        ("window", window.finish().unwrap(), "malformed"),
        ("cut archive", short, "the archive ends early"),
        ("trailing", trailing, "follows the end of the archive"),
    ] {
        refused(what, &bundle_of(Kind::Request, &body), why);
    }
}
