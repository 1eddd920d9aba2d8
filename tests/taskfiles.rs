//! The task file for every job file that LLD has left us, against a golden one, and read back: to exactly the job's
//! arguments. It is read by the strict reader of the emulator, and response files by the rules of clang.
//! `SNAPSHOTS=overwrite cargo test --test taskfiles` writes the golden ones anew.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic
#![allow(dead_code)] // the emulator reads more than is asked for here

#[path = "incredibuild/buildset.rs"]
mod buildset;
mod kit;
#[path = "incredibuild/line.rs"]
mod line;

use std::fs;
use std::path::{Path, PathBuf};

use dtlto_bridge::adapter::TaskFile;
use dtlto_bridge::jobfile::JobFile;
use dtlto_bridge::quote;
use dtlto_bridge::taskfile::{Batch, Task, log, write};
use kit::{Folder, Run, skip_without};
use proptest::prelude::*;
use snapbox::{Assert, Data};

fn job_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jobfiles");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    files
}

/// A folder that is the same in every golden file.
const RESPONSES: &str = "/scratch";

/// The text of the task file, and the folder of its response files.
fn written(tasks: &[Task], title: &str) -> (String, Folder) {
    let folder = Folder::new();
    let batch = Batch {
        title,
        compiler: "/opt/llvm 22/bin/clang",
        folder: "/home/me/it's mine",
        responses: &folder.path(""),
        seconds: 1800,
    };
    write(TaskFile::BuildSet, &batch, tasks, &folder.path("tasks.xml")).unwrap();
    (folder.text("tasks.xml"), folder)
}

fn tasks_of(file: &JobFile) -> Vec<Task> {
    let task = |(number, job): (usize, &dtlto_bridge::jobfile::Job)| Task {
        number,
        caption: job.primary.to_string(),
        args: job.args.iter().map(|arg| arg.to_string()).collect(),
        outputs: job.outputs().map(|output| output.to_string()).collect(),
    };
    file.jobs.iter().enumerate().map(task).collect()
}

/// The arguments that the compiler of a task gets in the end.
fn read_back(params: &str) -> Vec<String> {
    let args = line::split(params);
    assert_eq!(args, quote::split_windows_line(params), "two readings of one line");
    match args.as_slice() {
        [one] if one.starts_with('@') => {
            quote::split_response_file(&fs::read_to_string(&one[1..]).unwrap())
        }
        _ => args,
    }
}

/// Everything that the strict reader finds must be what the tasks say.
#[track_caller]
fn assert_reads_back(tasks: &[Task], text: &str) {
    let set = buildset::read(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(set.tasks.len(), tasks.len());
    for (found, task) in set.tasks.iter().zip(tasks) {
        let tool = &set.tools[&(found.env.clone(), found.tool.clone())];
        assert_eq!(read_back(found.params.as_ref().unwrap()), task.args);
        assert_eq!((&*tool.path, &*found.folder), ("/opt/llvm 22/bin/clang", "/home/me/it's mine"));
        assert!(tool.allow_remote && !tool.allow_restart_on_local && !tool.skip_if_failed);
        assert_eq!((tool.time_limit, &*tool.prefix), (Some(1800), &*log::prefix(task.number)));
        for output in &task.outputs {
            let name = Path::new(output).file_name().unwrap().to_str().unwrap();
            let covered = tool.masks.iter().any(|mask| buildset::matches(mask, name));
            assert!(covered, "{name} is not covered by {:?}", tool.masks);
        }
        assert!(!found.params.as_ref().unwrap().contains("$("));
    }
}

#[test]
fn the_task_file_of_each_recorded_job_file_is_the_golden_one_and_reads_back() {
    let assert = Assert::new().action_env("SNAPSHOTS");
    let mut differing = Vec::new();
    for path in job_files() {
        let file = JobFile::read(&path).unwrap();
        let tasks = tasks_of(&file);
        let (text, folder) = written(&tasks, &file.linker_output);
        assert_reads_back(&tasks, &text);
        let text = text.replace(folder.path("").to_str().unwrap(), RESPONSES);
        let golden =
            format!("tests/golden/taskfiles/{}.xml", path.file_stem().unwrap().to_str().unwrap());
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
        let same = assert.try_eq(None, text.into(), Data::read_from(&golden, None).raw());
        differing.extend(same.err().map(|difference| difference.to_string()));
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn every_golden_task_file_belongs_to_a_job_file() {
    let stems = |files: Vec<PathBuf>| -> Vec<_> {
        files.iter().map(|file| file.file_stem().unwrap().to_owned()).collect()
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/taskfiles");
    let mut golden: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    golden.sort();
    assert_eq!(stems(golden), stems(job_files()));
}

/// Arguments that no recorded job file has.
fn odd() -> Vec<Vec<String>> {
    let long: Vec<String> = (0..2000).map(|n| format!("-DLONG_{n}=x y")).collect();
    let sets: [&[&str]; 7] = [
        &["-c", "a b.o", "-DX=\"q\"", r"C:\dir\", r"C:\a dir\", "-o", "x.o"],
        &["$(HOME)", "$(X", "100%", "^&|<>", "it's", "`"],
        &["ünï", "дом", "→", "\u{1f980}"],
        &["line\nbreak", "tab\there", "carriage\rreturn"],
        &["\\\\server\\share\\", "\\\"", "\\\\\"", "\"\"\""],
        &["", "-x", ""],
        &["<&>\"'", "]]>", "<!--"],
    ];
    sets.iter().map(|set| set.iter().map(|arg| (*arg).to_owned()).collect()).chain([long]).collect()
}

fn odd_tasks() -> Vec<Task> {
    let task = |(number, args): (usize, Vec<String>)| Task {
        number,
        caption: format!("a<b> & \"c\" $(X) \n {number}"),
        args,
        outputs: vec![format!("out, put; {number}.o"), "x/$(Y).dwo".into()],
    };
    odd().into_iter().enumerate().map(task).collect()
}

#[test]
fn odd_arguments_read_back_too() {
    let tasks = odd_tasks();
    let (text, _folder) = written(&tasks, "an \"app\" <1> $(X)");
    assert_reads_back(&tasks, &text);
    assert!(!text.contains("$("), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_arguments_read_back(
        args in prop::collection::vec("[a \"'\\\\\t\n$()%&<>]{0,9}|\\PC*", 0..6),
        output in "[a,;*? $(]{1,9}|[^/\0]{1,9}",
    ) {
        prop_assume!(Path::new(&output).file_name().is_some());
        let tasks = [Task { number: 0, caption: output.clone(), args, outputs: vec![output] }];
        let folder = Folder::new();
        let batch = Batch {
            title: &tasks[0].caption,
            compiler: "/opt/llvm 22/bin/clang",
            folder: "/home/me/it's mine",
            responses: &folder.path(""),
            seconds: 1800,
        };
        let written = write(TaskFile::BuildSet, &batch, &tasks, &folder.path("tasks.xml"));
        // Nothing but an empty argument beside odd ones is beyond it.
        prop_assert!(written.is_ok() || tasks[0].args.contains(&String::new()));
        if written.is_ok() {
            assert_reads_back(&tasks, &folder.text("tasks.xml"));
        }
    }
}

/// clang itself is the judge of response files.
#[test]
fn clang_reads_response_files_as_the_bridge_writes_them() {
    skip_without!("clang-22");
    let folder = Folder::new();
    folder.write("a.c", "");
    for args in odd().into_iter().filter(|args| !args.contains(&String::new())) {
        // As values of macros they stand in the compiler's own command line, one by one.
        let defines: Vec<String> = args.iter().map(|arg| format!("-DA={arg}")).collect();
        folder.write("args.rsp", quote::response_file(defines.iter().map(String::as_str)).unwrap());
        let ask = |more: &[String]| {
            let clang = Run::new(kit::tool("clang-22")).args(["-###", "-c", "a.c"]).args(more);
            let text = clang.cwd(folder.path("")).go().ok().stderr;
            text[text.find("\"-cc1\"").unwrap()..].to_owned()
        };
        // Compared with the same arguments given without a response file.
        assert_eq!(ask(&["@args.rsp".into()]), ask(&defines));
    }
}

#[test]
fn the_emulator_is_strict() {
    let tasks = odd_tasks();
    let (good, _folder) = written(&tasks[..2], "app");
    buildset::read(&good).unwrap();
    for (from, to, expected) in [
        ("AllowRemote=\"True\" ", "", "AllowRemote is missing"),
        ("AllowIntercept=", "AllowInterception=", "unknown attribute"),
        ("<Task ", "<Job ", "not expected"),
        ("FormatVersion=\"1\"", "FormatVersion=\"2\"", "FormatVersion"),
        ("Name=\"tool1\"", "Name=\"tool0\"", "two tools are called tool0"),
        ("Name=\"task1\"", "Name=\"task0\"", "two tasks are called task0"),
        ("Tool=\"tool1\"", "Tool=\"tool9\"", "there is no tool tool9"),
        ("AllowRemote=\"True\"", "AllowRemote=\"perhaps\"", "no Boolean"),
        ("TimeLimit=\"1800\"", "TimeLimit=\"soon\"", "TimeLimit"),
        ("</BuildSet>", "", "cut off"),
        ("Name=\"task1\"", "Name=\"task1\" DependsOn=\"task7\"", "waits for what never comes"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let error = buildset::read(&bad).unwrap_err();
        let expected = if from == "<Task " { "unknown element Job" } else { expected };
        assert!(error.contains(expected), "{from}: {error}");
    }
}
