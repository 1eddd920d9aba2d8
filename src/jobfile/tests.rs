//! Tests of the reader on job files that LLD wrote (tests/fixtures/jobfiles), on the draft, and on a huge one.
//! What is refused, and in which words, is in `errors`.

mod errors;

use super::*;
use proptest::prelude::*;
use std::fmt::Write;
use std::path::PathBuf;

/// Name, jobs, primary of the first job, linker output.
const FIXTURES: [(&str, usize, &str, &str); 25] = [
    ("absobj", 3, "a.o", "app"),
    ("ar", 3, "a.o", "app"),
    ("basic", 3, "a.o", "app"),
    ("big", 25, "main.o", "app"),
    ("cache3", 3, "a.o", "app"),
    ("coff-lib", 3, "a.obj", "sub_app.exe"),
    ("coff-obj", 3, "a.obj", "app.exe"),
    ("coff-thin", 3, "a.obj", "app.exe"),
    ("empty", 6, "a.o", "app"),
    ("misc-dotdot", 3, "../a.o", "../app"),
    ("misc-fat", 3, "fat_a.o.1.18DC.o", "app"),
    ("misc-space", 3, "a.o", "sp ace/app 1"),
    ("opt-remarg", 3, "a.o", "app"),
    ("opt-sample", 3, "a.o", "app"),
    ("outdir", 3, "a.o", "/home/dev/app/w/out/appx"),
    ("outrel", 3, "a.o", "out/appx"),
    (
        "rust",
        6,
        "/home/dev/app/rs/demo/target/release/deps/demo-0c1e9475c93d314a.demo.c3ef89ce5b87df92-cgu.0.rcgu.o",
        "/home/dev/app/rs/demo/target/release/deps/demo-0c1e9475c93d314a",
    ),
    ("subthin", 3, "a.o", "app"),
    ("thin", 3, "a.o", "app"),
    ("ver-1.93.0-ar", 3, "a.o", "out/v.so"),
    ("ver-1.93.0-obj", 3, "a.o", "out/v.so"),
    ("ver-1.95.0-ar", 3, "a.o", "out/v.so"),
    ("ver-nightly-2026-10-01-ar", 3, "a.o", "out/v.so"),
    ("ver-nightly-2026-10-01-obj", 3, "a.o", "out/v.so"),
    ("ver-nightly-2026-10-01-sample", 3, "a.o", "out/v.so"),
];

const LANDED: &str = r#"{"common":{"linker_output":"app","args":["clang","-c"],"inputs":[]},"jobs":[
 {"args":["a.o","-o","a.n"],"inputs":["a.o","a.bc","b.o"],"outputs":["a.n"]},
 {"args":["b.o","-o","b.n"],"inputs":["b.o","b.bc"],"outputs":["b.n"]}]}"#;

const GEN1: &str = r#"{"common":{"linker_output":"app","linker_version":"LLD 20","args":["clang","-c",
  ["primary_input",0],["summary_index","-fthinlto-index=",0],["primary_output","-o",0]]},"jobs":[
 {"primary_input":["a.o"],"summary_index":["a.bc"],"primary_output":["a.n"],"imports":["b.o"],
  "additional_inputs":["p.prof"],"additional_outputs":["a.dwo"],"args":["-g",["additional_inputs","-fp=",0]]},
 {"primary_input":["b.o"],"summary_index":["b.bc"],"primary_output":["b.n"]}]}"#;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jobfiles")
}

fn fixture(name: &str) -> JobFile {
    JobFile::read(&folder().join(format!("{name}.json"))).unwrap()
}

fn bytes_of(name: &str) -> Vec<u8> {
    fs::read(folder().join(format!("{name}.json"))).unwrap()
}

fn texts(list: &[Text]) -> Vec<&str> {
    list.iter().map(|text| &**text).collect()
}

/// `text` with `from` replaced by `to`, once.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn every_recorded_job_file_is_read_in_full() {
    assert_eq!(fs::read_dir(folder()).unwrap().count(), FIXTURES.len() + 1, "and its README");
    for (name, jobs, primary, linker_output) in FIXTURES {
        let path = folder().join(format!("{name}.json"));
        let file = JobFile::read(&path).unwrap();
        assert_eq!(file.jobs.len(), jobs, "{name}");
        assert_eq!(&*file.jobs[0].primary, primary, "{name}");
        assert_eq!(&*file.linker_output, linker_output, "{name}");
        assert!(file.compiler.starts_with('/') && file.compiler.ends_with("clang"), "{name}");
        assert_eq!(file.notices, [""; 0], "{name}");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for (i, job) in file.jobs.iter().enumerate() {
            let strings = |list: &serde_json::Value| -> Vec<String> {
                serde_json::from_value(list.clone()).unwrap()
            };
            let (common, raw) = (&json["common"], &json["jobs"][i]);
            let command = [
                &[(*file.compiler).to_owned()][..],
                &job.args.iter().map(|a| a.to_string()).collect::<Vec<_>>(),
            ]
            .concat();
            assert_eq!(command, [strings(&common["args"]), strings(&raw["args"])].concat());
            let inputs: Vec<_> = job.inputs().map(|text| text.to_string()).collect();
            assert_eq!(inputs, [strings(&raw["inputs"]), strings(&common["inputs"])].concat());
            let outputs: Vec<_> = job.outputs().map(|text| text.to_string()).collect();
            assert_eq!(outputs, strings(&raw["outputs"]));
        }
    }
}

#[test]
fn recorded_jobs_have_the_shape_that_lld_promises() {
    for (name, ..) in FIXTURES {
        for job in fixture(name).jobs {
            assert!(job.imports.is_sorted(), "{name}");
            let index = format!("-fthinlto-index={}", job.index);
            assert_eq!(
                texts(&job.args[job.args.len() - 4..]),
                [&*job.primary, &index, "-o", &job.object],
                "{name}"
            );
            assert!(texts(&job.args).contains(&"-c"), "{name}");
            assert_eq!(job.other_outputs, [] as [Text; 0], "{name}");
            let profile = name.ends_with("sample") || name == "coff-thin";
            assert_eq!(job.other_inputs.len(), usize::from(profile), "{name}");
        }
    }
}

#[test]
fn the_parts_of_a_recorded_job_stand_where_they_belong() {
    let file = fixture("basic");
    let job = &file.jobs[0];
    assert_eq!(&*file.compiler, "/usr/lib/llvm-22/bin/clang");
    assert_eq!(&*job.args[0], "-c");
    assert_eq!(job.args.len(), 8 + 4);
    assert_eq!(&*job.index, "a.1.7036.native.o.thinlto.bc");
    assert_eq!(texts(&job.imports), ["b.o", "c.o"]);
    assert_eq!(&*job.object, "a.1.7036.native.o");
    assert_eq!(texts(&fixture("opt-sample").jobs[2].other_inputs), ["prof.txt"]);
    assert_eq!(texts(&fixture("coff-thin").jobs[0].other_inputs), ["../w/prof.txt"]);
    assert_eq!(&*fixture("opt-remarg").jobs[0].args[0], "--no-default-config");
    assert_eq!(fixture("big").jobs.iter().map(|job| job.imports.len()).max(), Some(23));
}

#[test]
fn blanks_quotes_and_other_letters_survive() {
    assert_eq!(&*fixture("misc-space").jobs[1].primary, "sp ace/ünï/b \"q\".o");
    let escaped = with(LANDED, r#""a.o","a.bc""#, r#""\u00fc\t\/.o","a.bc""#);
    assert_eq!(&*JobFile::parse(escaped.as_bytes()).unwrap().jobs[0].primary, "ü\t/.o");
}

#[test]
fn equal_strings_share_memory() {
    let file = fixture("basic");
    assert!(Arc::ptr_eq(&file.jobs[0].imports[1], &file.jobs[2].primary));
    assert!(Arc::ptr_eq(&file.jobs[0].args[1], &file.jobs[2].args[1]));
}

#[test]
fn the_draft_with_named_fields_is_read_alike() {
    let file = JobFile::parse(GEN1.as_bytes()).unwrap();
    assert_eq!((&*file.linker_output, &*file.compiler), ("app", "clang"));
    assert_eq!(file.notices, [""; 0]);
    let [first, second] = &file.jobs[..] else { panic!("{file:?}") };
    assert_eq!(
        texts(&first.args),
        ["-c", "a.o", "-fthinlto-index=a.bc", "-oa.n", "-g", "-fp=p.prof"]
    );
    let inputs: Vec<_> = first.inputs().map(|text| &**text).collect();
    assert_eq!(inputs, ["a.o", "a.bc", "b.o", "p.prof"]);
    assert_eq!(texts(&first.imports), ["b.o"]);
    assert_eq!(texts(&first.other_inputs), ["p.prof"]);
    assert_eq!((&*first.object, texts(&first.other_outputs)), ("a.n", vec!["a.dwo"]));
    assert_eq!(texts(&second.args), ["-c", "b.o", "-fthinlto-index=b.bc", "-ob.n"]);
    assert_eq!((&*second.primary, &*second.index, &*second.object), ("b.o", "b.bc", "b.n"));
    assert_eq!(second.inputs().count(), 2);
}

#[test]
fn a_reference_joins_strings_and_several_entries() {
    let three = with(GEN1, r#"["primary_input",0]"#, r#"["summary_index","<",0,0,">"]"#);
    assert_eq!(&*JobFile::parse(three.as_bytes()).unwrap().jobs[1].args[1], "<b.bcb.bc>");
}

#[test]
fn a_file_without_jobs_is_fine() {
    let none = r#"{"common":{"linker_output":"app","args":["clang"],"inputs":["p"]},"jobs":[]}"#;
    assert_eq!(JobFile::parse(none.as_bytes()).unwrap().jobs.len(), 0);
}

#[test]
fn an_unknown_field_is_told_once_and_skipped() {
    let deep = format!("{}1e999{}", "[".repeat(99), "]".repeat(99));
    let text = LANDED
        .replace(r#"{"args":["#, &format!(r#"{{"priority":{deep},"args":["#))
        .replacen(r#"{"common":{"#, r#"{"version":2,"common":{"priority":{"a":1},"#, 1);
    let mut notices = JobFile::parse(text.as_bytes()).unwrap().notices;
    notices.sort();
    let notice =
        |place| format!("{place}: unknown field, ignored; this LLD may be newer than this program");
    assert_eq!(notices, ["common.priority", "jobs[0].priority", "version"].map(notice));
}

#[test]
fn a_field_of_the_other_dialect_is_unknown_too() {
    let text = with(LANDED, r#""outputs":["a.n"]"#, r#""outputs":["a.n"],"imports":[0]"#);
    let notices = JobFile::parse(text.as_bytes()).unwrap().notices;
    assert_eq!(notices.len(), 1);
    assert!(notices[0].starts_with("jobs[0].imports: unknown field"), "{notices:?}");
}

#[test]
fn further_outputs_are_kept() {
    let text = with(LANDED, r#"["b.n"]"#, r#"["b.n","b.dwo"]"#);
    let job = JobFile::parse(text.as_bytes()).unwrap().jobs.remove(1);
    assert_eq!((&*job.object, texts(&job.other_outputs)), ("b.n", vec!["b.dwo"]));
}

#[test]
fn a_hundred_megabytes_are_read() {
    const JOBS: usize = 50_000;
    let mut text = String::from(r#"{"common":{"linker_output":"app","args":["clang""#);
    (0..20).for_each(|i| write!(text, r#","-mllvm-{i}""#).unwrap());
    text.push_str(r#"],"inputs":["p.prof"]},"jobs":["#);
    let module = |i: usize| format!("obj/components/some/longer/folder/module_{:05}.o", i % JOBS);
    for i in 0..JOBS {
        let (own, comma) = (module(i), if i == 0 { "" } else { "," });
        write!(text, r#"{comma}{{"args":["{own}","-fthinlto-index={own}.bc","-o","{own}.n"],"#)
            .unwrap();
        write!(text, r#""inputs":["{own}","{own}.bc""#).unwrap();
        (1..33).for_each(|n| write!(text, r#","{}""#, module(i + n)).unwrap());
        write!(text, r#"],"outputs":["{own}.n"]}}"#).unwrap();
    }
    text.push_str("]}");
    assert!(text.len() > 100_000_000, "{}", text.len());
    let file = JobFile::parse(text.as_bytes()).unwrap();
    assert_eq!(file.jobs.len(), JOBS);
    assert_eq!(file.jobs[JOBS - 1].imports.len(), 32);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_damaged_file_never_panics(
        which in 0..FIXTURES.len() + 2,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, any::<u8>(), 0..6), 1..8),
    ) {
        let mut bytes = match FIXTURES.get(which) {
            Some((name, ..)) => bytes_of(name),
            None => [LANDED, GEN1][which - FIXTURES.len()].into(),
        };
        for (at, length, byte, kind) in damage {
            let start = at.index(bytes.len() + 1);
            let end = (start + length).min(bytes.len());
            let new = match kind {
                0 => vec![byte],
                1 => vec![],
                2 => bytes[start..end].repeat(2),
                3 => vec![b"{}[]\",:0-\\"[usize::from(byte) % 10]],
                4 => b"\"\"".to_vec(),
                _ => b"[0]".to_vec(),
            };
            bytes.splice(start..end, new);
        }
        let _ = JobFile::parse(&bytes);
    }
}
