//! Responses that are packed and read, and those that must not be believed.

use std::fs;

use super::*;

fn response() -> Response {
    serde_json::from_value(response_manifest()).unwrap()
}

fn streams() -> Vec<Entry> {
    vec![entry("stdout", ""), entry("stderr", "warning\n")]
}

fn entries() -> Vec<Entry> {
    streams().into_iter().chain([entry("out/0", "object")]).collect()
}

#[track_caller]
fn refused(what: &str, bundle: &[u8], expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let found = received(bundle, &folder.path().join("1.o")).expect_err(what).to_string();
    assert!(found.contains(expected), "{what}: {found}");
}

fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut manifest = response_manifest();
    change(&mut manifest);
    forged(Kind::Response, &manifest, entries())
}

#[test]
fn a_response_comes_back_as_it_was_given() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(there.path().join("out.o"), "object").unwrap();
    let mut sent = response();
    sent.outputs.clear();
    let mut out = Cursor::new(Vec::new());
    let outputs = ["out.o".to_owned()];
    answer(&mut out, &mut sent, [b"", b"warning\n"], (there.path(), &outputs)).unwrap();
    assert_eq!(sent, response());

    let place = here.path().join("1.o");
    let got = received(out.get_ref(), &place).unwrap();
    assert_eq!(got.response, sent);
    assert_eq!((&got.stdout[..], &got.stderr[..]), (&b""[..], &b"warning\n"[..]));
    assert_eq!(fs::read(place).unwrap(), b"object");
}

#[test]
fn what_the_compiler_did_not_make_is_not_missed_if_it_failed() {
    let there = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc/passwd", there.path().join("link.o")).unwrap();
    fs::create_dir(there.path().join("folder.o")).unwrap();
    let pack = |code: i32, outputs: &[&str]| {
        let mut sent = response();
        sent.answer = Answer::Ran { code: Some(code), signal: None };
        let outputs: Vec<_> = outputs.iter().map(|&name| name.to_owned()).collect();
        let mut out = Cursor::new(Vec::new());
        answer(&mut out, &mut sent, [b""; 2], (there.path(), &outputs)).map(|_| out.into_inner())
    };
    let got = received(&pack(1, &["out.o"]).unwrap(), Path::new("/nowhere")).unwrap();
    assert!(got.response.outputs.is_empty());
    refused("no object", &pack(0, &["out.o"]).unwrap(), "out.o is not in its answer");
    refused("a folder", &pack(0, &["folder.o"]).unwrap(), "out.o is not in its answer");
    assert!(pack(0, &["link.o"]).is_err(), "a link is not followed");
}

#[test]
fn all_answers_travel() {
    let reason = || "why".to_owned();
    for answer in [
        Answer::Ran { code: None, signal: Some(11) },
        Answer::Refused { reason: reason() },
        Answer::CannotRead { newest: 1, oldest: 1 },
        Answer::Altered { reason: reason() },
        Answer::OtherCompiler { reason: reason() },
        Answer::MissingPieces { pieces: vec![Digest::of(b"x")] },
        Answer::MissingCompiler { reason: reason() },
        Answer::Busy { reason: reason() },
        Answer::Unfit { reason: reason() },
        Answer::TimedOut,
        Answer::Failed { reason: reason() },
    ] {
        let mut sent = response();
        sent.answer = answer;
        let mut out = Cursor::new(Vec::new());
        super::answer(&mut out, &mut sent, [b""; 2], (Path::new("/"), &[])).unwrap();
        let got = received(out.get_ref(), Path::new("/nowhere")).unwrap();
        assert_eq!(got.response, sent);
    }
}

#[test]
fn an_answer_that_is_not_known_yet_is_read() {
    let mut manifest = response_manifest();
    manifest["answer"] = json!({"is": "later", "x": [1]});
    manifest["outputs"] = json!([]);
    let bundle = forged(Kind::Response, &manifest, streams());
    let got = received(&bundle, Path::new("/nowhere")).unwrap();
    assert_eq!(got.response.answer, Answer::Unknown);
}

#[test]
fn answers_to_other_requests_are_told_apart() {
    let other = |link: &str| {
        let mut sent = response();
        (sent.nonce, sent.link, sent.job) = (Nonce::fresh(), link.to_owned(), 8);
        let mut out = Cursor::new(Vec::new());
        answer(&mut out, &mut sent, [b""; 2], (Path::new("/"), &[])).unwrap();
        out.into_inner()
    };
    refused("swapped", &other("7f"), "swapped: this is the answer for jobs[8] of link 7f");
    refused("stale", &other("5a"), "stale: this answers jobs[8] of another link, \"5a\"");
    let mut sent = response();
    (sent.nonce, sent.answer) = (Nonce::NONE, Answer::Failed { reason: "cut off".to_owned() });
    let mut out = Cursor::new(Vec::new());
    answer(&mut out, &mut sent, [b""; 2], (Path::new("/"), &[])).unwrap();
    refused("unread", out.get_ref(), "could not read what it was sent: the worker failed: cut off");
}

#[test]
fn damaged_responses_are_told_apart() {
    let good = forged(Kind::Response, &response_manifest(), entries());
    let mut flipped = good.clone();
    flipped[LENGTH + 9] ^= 1;
    refused("nothing", b"", "cut off within its header");
    refused("an object", b"\x7fELF", "no bundle");
    refused("a cut-off one", &good[..good.len() - 1], "is cut off: ");
    refused("a damaged one", &flipped, "its digest differs");
    refused("a request", &bundle_of(Kind::Request, b""), "expected a response, found a request");
}

#[test]
fn responses_that_do_not_fit_are_refused() {
    let outputs = |list: Value| changed(|m| m["outputs"] = list);
    let output = |name: &str, length: u64| json!({"name": name, "length": length, "blake3": Digest::of(b"object")});
    let twice = json!([output("out.o", 6), output("out.o", 6)]);
    refused("nonce", &changed(|m| m["nonce"] = json!(Nonce::fresh())), "not that of the header");
    refused("none", &outputs(json!([])), "out.o is not in its answer");
    refused("another", &outputs(json!([output("x.o", 6)])), "was not asked for");
    refused("upward", &outputs(json!([output("../x.o", 6)])), "leads upward");
    refused("twice", &outputs(twice), "there twice");
    refused("length", &outputs(json!([output("out.o", 5)])), "not those announced");
    refused("huge", &outputs(json!([output("out.o", u64::MAX)])), "too large");
    let answer = |answer: Value| changed(|m| m["answer"] = answer);
    refused("no run", &answer(json!({"is": "timed_out"})), "was not asked for");

    let forged = |entries| forged(Kind::Response, &response_manifest(), entries);
    let with = |last: Entry| forged(streams().into_iter().chain([last]).collect());
    let link = entry("out/0", "object").with(|head| head.set_entry_type(tar::EntryType::Symlink));
    refused("content", &with(entry("out/0", "Object")), "out.o: the content differs");
    refused("a link", &with(link), "a symbolic link");
    refused("a path", &with(entry("../../x", "object")), "\"out/0\" is due");
    refused("no streams", &forged(vec![entry("out/0", "object")]), "\"stdout\" is due");
    let long = vec![b'x'; STREAM_LIMIT + 101];
    refused("stderr", &forged(vec![entry("stdout", ""), entry("stderr", long)]), "too large");
}

#[test]
fn a_place_that_is_taken_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, place) = (folder.path().join("secret"), folder.path().join("1.o"));
    fs::write(&secret, "kept").unwrap();
    std::os::unix::fs::symlink(&secret, &place).unwrap();
    let good = forged(Kind::Response, &response_manifest(), entries());
    assert!(matches!(received(&good, &place), Err(Fault::Here { .. })));
    assert_eq!(fs::read(&secret).unwrap(), b"kept");
}

#[test]
fn a_stream_that_is_too_long_loses_its_middle() {
    let long: Vec<u8> = (0..STREAM_LIMIT + 3).map(|n| (n % 251) as u8).collect();
    let mut sent = response();
    sent.answer = Answer::TimedOut;
    let mut out = Cursor::new(Vec::new());
    answer(&mut out, &mut sent, [&long, &long[3..]], (Path::new("/"), &[])).unwrap();
    let got = received(out.get_ref(), Path::new("/nowhere")).unwrap();
    let half = STREAM_LIMIT / 2;
    let note = b"\n[dtlto-bridge: 3 bytes are left out here]\n";
    let expected = [&long[..half], note, &long[half + 3..]].concat();
    assert!(got.stdout == expected && got.stderr == long[3..]);
}
