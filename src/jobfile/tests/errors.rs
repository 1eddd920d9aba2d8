//! Broken job files. Errors are compared as whole texts: they are what users see.

use super::*;

fn error(text: impl AsRef<[u8]>) -> String {
    format!("{:#}", JobFile::parse(text.as_ref()).unwrap_err())
}

/// The error of `text` after a replacement.
fn error_with(text: &str, from: &str, to: &str) -> String {
    error(with(text, from, to))
}

#[test]
fn a_wrong_reference_is_an_error_that_names_it() {
    let reference = |to: &str| error_with(GEN1, r#"["primary_input",0]"#, to);
    assert_eq!(reference(r#"["imports",0]"#), "common.args[2]: jobs[1] has no imports[0]");
    assert_eq!(
        reference(r#"["primary_input",18446744073709551615]"#),
        "common.args[2]: jobs[0] has no primary_input[18446744073709551615]"
    );
    assert_eq!(
        reference(r#"["inputs",0]"#),
        r#"common.args[2]: a reference cannot name the field "inputs""#
    );
    assert_eq!(
        reference(r#"["primary_input","x"]"#),
        "common.args[2]: the reference to primary_input has no number that says which"
    );
    assert_eq!(
        reference(r#"["primary_input",0,-1]"#),
        "common.args[2]: expected a string or a number, found a negative number"
    );
    assert_eq!(
        reference("[]"),
        "common.args[2]: expected a reference to begin with the name of a field"
    );
    assert_eq!(reference("7"), "common.args[2]: expected a string, found a number");
    assert_eq!(
        error_with(GEN1, r#""-fp=",0"#, r#""-fp=",1"#),
        "jobs[0].args[1]: jobs[0] has no additional_inputs[1]"
    );
    assert_eq!(
        error_with(GEN1, r#"["a.bc"]"#, r#"["a.bc","x"]"#),
        "jobs[0].summary_index: expected a list of one string, found 2"
    );
    assert_eq!(
        error_with(GEN1, r#","primary_output":["b.n"]"#, ""),
        "jobs[1].primary_output: missing field"
    );
}

#[test]
fn references_cannot_ask_for_unbounded_memory() {
    let many = format!("[\"primary_input\",0{}]", ",\"\"".repeat(1 << 14));
    let mut text = with(GEN1, r#"["primary_input",0]"#, &many);
    let job = |i| {
        format!(r#",{{"primary_input":["{i}"],"summary_index":["i"],"primary_output":["{i}.n"]}}"#)
    };
    text.truncate(text.len() - 2);
    (0..300).for_each(|i| text.push_str(&job(i)));
    text.push_str("]}");
    assert_eq!(
        error(text),
        "common.args[2]: the references of all jobs are more than this program can hold"
    );
}

#[test]
fn a_wrong_type_is_an_error_that_names_the_place() {
    let cases = [
        (
            r#""outputs":["b.n"]"#,
            r#""outputs":5"#,
            "jobs[1].outputs: expected a list of strings, found a number",
        ),
        (r#"["b.n"]"#, "[null]", "jobs[1].outputs[0]: expected a string, found null"),
        (r#""b.o"]"#, r#"{}]"#, "jobs[0].inputs[2]: expected a string, found an object"),
        (r#""-c""#, "1.5", "common.args[1]: expected a string, found a fraction"),
        (r#""clang""#, "[]", "common.args[0]: expected a string, found a list"),
        (r#""-o","b.n""#, "true", "jobs[1].args[1]: expected a string, found true or false"),
        (r#""app""#, "[]", "common.linker_output: expected a string, found a list"),
        (
            r#""inputs":[]"#,
            r#""inputs":"p""#,
            "common.inputs: expected a list of strings, found a string",
        ),
        (r#""jobs":["#, r#""jobs":[7,"#, "jobs[0]: expected an object, found a number"),
    ];
    for (from, to, text) in cases {
        assert_eq!(error_with(LANDED, from, to), text);
    }
    assert_eq!(error("[1]"), "top level: expected an object, found a list");
    assert_eq!(error(r#"{"common":[],"jobs":[]}"#), "common: expected an object, found a list");
    assert_eq!(
        error(r#"{"common":{},"jobs":{}}"#),
        "jobs: expected a list of objects, found an object"
    );
}

#[test]
fn a_missing_or_repeated_field_is_an_error() {
    let cases = [
        (r#""inputs":["a.o","a.bc","b.o"],"#, "", "jobs[0].inputs: missing field"),
        (r#""args":["b.o","-o","b.n"],"#, "", "jobs[1].args: missing field"),
        (r#","outputs":["b.n"]"#, "", "jobs[1].outputs: missing field"),
        (r#","inputs":[]"#, "", "common.inputs: missing field"),
        (r#""linker_output":"app","#, "", "common.linker_output: missing field"),
        (r#""args":["clang","-c"],"#, "", "common.args: missing field"),
        (r#""inputs":[]"#, r#""inputs":[],"inputs":[]"#, "common.inputs: stands there twice"),
    ];
    for (from, to, text) in cases {
        assert_eq!(error_with(LANDED, from, to), text);
    }
    assert_eq!(error(r#"{"jobs":[]}"#), "common: missing field");
    assert_eq!(error(r#"{"common":{}}"#), "jobs: missing field");
}

#[test]
fn a_file_of_another_kind_is_told_apart() {
    assert_eq!(
        error("{}"),
        r#"top level: expected "common" and "jobs", as LLD 21 and newer write them"#
    );
    assert_eq!(
        error(r#"{"common":{},"jobs":[{"command":"x"}]}"#),
        r#"jobs[0]: expected "args", "inputs" and "outputs", as LLD 21 and newer write them"#
    );
    assert_eq!(
        error(
            r#"{"version":{"major":1},"common":{"codegen-tool":"clang"},"jobs":[{"inputs":[0]}]}"#
        ),
        "common.codegen-tool: a draft of the job file whose compiler was never released; use LLD 21 or newer"
    );
}

#[test]
fn a_job_that_could_not_run_is_an_error() {
    let cases = [
        (
            r#""clang""#,
            r#""""#,
            "common.args[0]: the linker was not told the compiler; give --thinlto-remote-compiler=/path/to/clang to ld.lld, /thinlto-remote-compiler: to lld-link; the clang driver gives it by itself",
        ),
        (r#""clang","-c""#, "", "common.args: expected the compiler first, found an empty list"),
        (
            r#""b.o","b.bc""#,
            r#""b.o""#,
            "jobs[1].inputs: expected a module, its index and its imports, found 1 in all",
        ),
        (r#"["b.n"]"#, "[]", "jobs[1].outputs: expected an object file, found an empty list"),
        (r#""b.bc""#, r#""""#, "jobs[1].inputs[1]: expected a path, found an empty string"),
        (
            r#""b.bc""#,
            "\"\u{FFFD}.bc\"",
            "jobs[1].inputs[1]: the path \"\u{FFFD}.bc\" was not UTF-8 and is lost; rename the file or folder",
        ),
        (
            r#""b.bc""#,
            r#""\u0000""#,
            r#"jobs[1].inputs[1]: "\0" holds a NUL character, no program takes it"#,
        ),
        (
            r#""-c""#,
            r#""-D\u0000""#,
            r#"common.args[1]: "-D\0" holds a NUL character, no program takes it"#,
        ),
        (
            r#"["b.n"]"#,
            r#"["a.n"]"#,
            r#"jobs[0] and jobs[1] both make "a.n"; LLD does not write such job files, was it edited?"#,
        ),
        (
            r#"["b.n"]"#,
            r#"["b.n","b.n"]"#,
            r#"jobs[1] makes "b.n" twice; LLD does not write such job files, was it edited?"#,
        ),
        (
            r#"["b.n"]"#,
            r#"["a.bc"]"#,
            r#"jobs[0] reads "a.bc", which jobs[1] would overwrite; LLD does not write such job files, was it edited?"#,
        ),
        (
            r#""inputs":[]"#,
            r#""inputs":["b.n"]"#,
            r#"jobs[0] reads "b.n", which jobs[1] would overwrite; LLD does not write such job files, was it edited?"#,
        ),
    ];
    for (from, to, text) in cases {
        assert_eq!(error_with(LANDED, from, to), text);
    }
}

#[test]
fn two_long_lists_do_not_become_their_product() {
    let jobs = vec![r#"{"args":[],"inputs":["a","b"],"outputs":["c"]}"#; 8000].join(",");
    let args = vec![r#""""#; 8000].join(",");
    let text = |args: &str, inputs: &str| {
        format!(
            r#"{{"common":{{"linker_output":"","args":["clang"{args}],"inputs":[{inputs}]}},"jobs":[{jobs}]}}"#
        )
    };
    assert_eq!(
        error(text(&format!(",{args}"), "")),
        "common.args: 8000 entries for 8000 jobs are more than this program can hold"
    );
    assert_eq!(
        error(text("", &args.replace(r#""""#, r#""p""#))),
        "common.inputs: 8000 entries for 8000 jobs are more than this program can hold"
    );
}

#[test]
fn a_cut_off_file_is_an_error() {
    let whole = bytes_of("misc-space");
    for end in 1..whole.len() {
        let text = format!(
            "cut off after {end} bytes: LLD may have been killed while writing it, or the disk is full; link again"
        );
        assert_eq!(error(&whole[..end]), text);
    }
}

#[test]
fn a_file_that_is_no_json_is_an_error() {
    let empty = "empty: LLD may have been killed while writing it, or the disk is full; link again";
    assert_eq!(error(""), empty);
    assert_eq!(error(" \n"), empty);
    assert_eq!(error("\u{7f}ELF"), "not JSON that LLD wrote: expected value at line 1 column 1");
    assert_eq!(
        error(format!("{LANDED}x")),
        "not JSON that LLD wrote: trailing characters at line 3 column 73"
    );
    assert_eq!(error(b"{\"common\":\"\xff\"}"), "not UTF-8 at byte 11: not a file that LLD wrote");
}

#[test]
fn deep_nesting_is_an_error() {
    assert_eq!(
        error("[".repeat(1 << 20)),
        "not JSON that LLD wrote: recursion limit exceeded at line 1 column 128"
    );
}

#[test]
fn a_path_that_is_no_regular_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let read = |path: &Path| format!("{:#}", JobFile::read(path).unwrap_err());
    let absent = folder.path().join("absent.json");
    assert_eq!(
        read(&absent),
        format!(
            "job file {}: no such file; LLD writes it and names it as the last argument",
            absent.display()
        )
    );
    assert_eq!(
        read(folder.path()),
        format!(
            "job file {}: a directory; LLD names the job file as the last argument",
            folder.path().display()
        )
    );
    #[cfg(unix)]
    assert_eq!(
        read(Path::new("/dev/zero")),
        "job file /dev/zero: a pipe or device, not a regular file; copy it into one"
    );
    #[cfg(target_os = "linux")]
    {
        let huge = folder.path().join("huge.json");
        fs::File::create(&huge).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(read(&huge).ends_with("larger than 4 GiB; LLD does not write such job files"));
    }
    let broken = folder.path().join("broken.json");
    fs::write(&broken, "{}").unwrap();
    assert!(read(&broken).starts_with(&format!("job file {}: top level: ", broken.display())));
}
