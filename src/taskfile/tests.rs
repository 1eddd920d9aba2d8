//! Which arguments stand in the task file itself, and which in a response file.

use super::*;

const FOLDER: &str = if cfg!(windows) { r"C:\w" } else { "/w" };

fn written(args: &[&str]) -> Result<(String, Option<String>), String> {
    let folder = tempfile::tempdir().unwrap();
    let compiler = Path::new(FOLDER).join("clang").display().to_string();
    let batch = Batch {
        title: "app",
        compiler: &compiler,
        folder: FOLDER,
        responses: folder.path(),
        seconds: 9,
    };
    let task = Task {
        number: 3,
        caption: "a.o".into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        outputs: vec!["x/3.1.o".into(), "a,b.dwo".into()],
    };
    let path = folder.path().join("tasks.xml");
    write(TaskFile::BuildSet, &batch, &[task], &path).map_err(|error| format!("{error:#}"))?;
    let response = fs::read_to_string(folder.path().join("job3.rsp")).ok();
    Ok((fs::read_to_string(path).unwrap(), response))
}

#[test]
fn short_and_plain_arguments_stand_in_the_file_itself() {
    let (xml, response) = written(&["-c", "a b.o", r"C:\x\", ""]).unwrap();
    assert!(xml.contains(r#"Params="-c &quot;a b.o&quot; C:\x\ &quot;&quot;""#), "{xml}");
    assert_eq!(response, None);
}

#[test]
fn odd_or_many_arguments_go_through_a_response_file() {
    let long = "x".repeat(5000);
    for odd in ["$(PATH)", "ü", "a\"b", "a\nb", "100%", &long] {
        let (xml, response) = written(&["-c", odd]).unwrap();
        assert_eq!(quote::split_response_file(&response.unwrap()), ["-c", odd]);
        assert!(xml.contains("job3.rsp") && !xml.contains("$("), "{xml}");
    }
    let error = written(&["", "$(X)"]).unwrap_err();
    assert!(error.contains("a.o: it has an empty argument"), "{error}");
}

#[test]
fn masks_cover_every_output_by_its_base_name() {
    let (xml, _) = written(&["-c"]).unwrap();
    assert!(xml.contains(r#"OutputFileMasks="3.1.o,a?b.dwo""#), "{xml}");
    assert!(xml.contains(r#"OutputPrefix="@dtlto_3 " TimeLimit="9""#), "{xml}");
}
