//! Faults of files and compilers: an input that is not what it was, an object that is not what it
//! must be. A link must fail by name, and must never give a wrong program. These tests make the
//! faults; they do not know how the bridge finds them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use kit::{Jobs, Lld, MAKE, MARK, Marked, skip_without};

/// The compiler that is meant.
const CLANG: &str = r#"exec clang-22 "$@""#;

fn truncate(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

// Inputs.

#[test]
fn an_import_that_vanishes_before_clang_reads_it_fails_the_link() {
    skip_without!("clang-22", "ld.lld-22");
    let lose = r#"case " $* " in *" a.o "*) mv b.o "$ROOT/b.o" ;; esac"#;
    let lld = Lld::new(&format!("{lose}\n{CLANG}"));
    let output = lld.link(&[]).go().code(1).stdout_is("");
    output
        .stderr_has("error: a.o (jobs[0]): b.o: this input vanished while the link ran")
        .stderr_has("Error loading imported file b.o");
    assert_eq!(lld.folder.list("link"), ["a.o", "c.o"]);
}

/// clang exits with 0 then, and LLD would take the empty object without a word.
#[test]
fn an_import_that_only_clang_misses_fails_its_job() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::kept(r#"mv b.o away; clang-22 "$@"; code=$?; mv away b.o; exit $code"#);
    lld.only("a.o");
    lld.by_hand(&[])
        .go()
        .code(1)
        .stderr_has("the compiler exited with 0 but said \"Error loading imported file\"")
        .stderr_has("Error loading imported file b.o");
    assert_eq!(lld.objects(), [""; 0]);
}

#[test]
fn an_index_that_is_empty_before_the_link_is_named_and_nothing_runs() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::kept("echo > \"$ROOT/ran\"");
    truncate(&lld.index("b"), 0);
    let name = lld.index("b").file_name().unwrap().to_str().unwrap().to_owned();
    lld.by_hand(&[]).go().code(3).stderr_has(&format!("(b.o): {name}: this input is empty"));
    assert!(!lld.folder.path("ran").exists());
}

#[test]
fn an_index_that_was_cut_off_before_the_link_fails_its_job() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::kept(CLANG);
    let whole = fs::read(lld.index("a")).unwrap();
    for bytes in [4, whole.len() / 2, whole.len() - 4] {
        fs::write(lld.index("a"), &whole[..bytes]).unwrap();
        let output = lld.by_hand(&[]).go().code(1).stderr_has("error: a.o (jobs[0]): ");
        assert!(!lld.objects().iter().any(|name| name.starts_with('a')), "{bytes}: {output}");
    }
}

#[test]
fn the_index_of_another_job_is_refused() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::kept(CLANG);
    fs::copy(lld.index("c"), lld.index("a")).unwrap();
    lld.by_hand(&[]).go().code(1).stderr_has("this index names other modules than the job does");
    assert!(!lld.objects().iter().any(|name| name.starts_with('a')), "{:?}", lld.objects());
}

#[test]
fn an_index_that_changes_between_plan_and_start_fails_its_job_by_name() {
    skip_without!("clang-22", "ld.lld-22");
    for spoil in [
        ": > \"$i\"",
        "head -c 100 \"$i\" > \"$ROOT/part\"; cat \"$ROOT/part\" > \"$i\"",
        "cp \"$mine\" \"$i\"",
        "cp \"$i\" \"$i.new\"; mv \"$i.new\" \"$i\"",
    ] {
        // The first compiler that runs spoils the indexes of the others.
        let first = format!(
            r#"mkdir "$ROOT/first" 2>/dev/null && {{
                for mine in *.thinlto.bc; do case " $* " in *"$mine"*) break ;; esac; done
                for i in *.thinlto.bc; do [ "$i" = "$mine" ] || {{ {spoil}; }}; done
            }}"#
        );
        let lld = Lld::kept(&format!("{first}\n{CLANG}"));
        let output = lld.by_hand(&["--local-jobs=1"]).go().code(1);
        let output = output.stderr_has(".thinlto.bc: this input changed while the link ran");
        assert_eq!(lld.objects().len(), 1, "{spoil}: {output}");
    }
}

#[test]
fn an_index_that_is_emptied_while_its_compiler_runs_fails_its_job() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::kept(&format!("for i in a.*.thinlto.bc; do : > $i; done\n{CLANG}"));
    lld.only("a.o");
    lld.by_hand(&[]).go().code(1).stderr_has(".thinlto.bc: this input changed while the link ran");
    assert_eq!(lld.objects(), [""; 0]);
}

#[test]
fn a_compiler_that_changes_an_input_fails_its_job() {
    skip_without!("clang-22");
    for change in ["echo more >> m0.o", "rm m0.o", "echo module > m0.bc", "touch -d @0 m0.o"] {
        let jobs = Jobs::new(1, &format!("{change}\n{MAKE}"));
        jobs.go(&[]).code(1).stderr_has("while the link ran");
        assert_eq!(
            (jobs.made(), &jobs.stats()["records"][0]["outcome"]),
            (vec![], &"refused".into())
        );
    }
}

// Objects.

/// LLD would take the empty object and make a program that lacks a module.
#[test]
fn an_empty_object_fails_the_link() {
    skip_without!("clang-22", "ld.lld-22");
    let empty = r#"case " $* " in *" c.o "*) for o; do :; done; : > "$o"; exit 0 ;; esac"#;
    let lld = Lld::new(&format!("{empty}\n{CLANG}"));
    let output = lld.link(&[]).go().code(1);
    let output = output.stderr_has("the compiler exited with 0 but c.3.");
    output.stderr_has(".native.o: is empty");
    assert_eq!(lld.folder.list("link"), lld.before);
}

#[test]
fn bitcode_in_place_of_an_object_fails_the_link() {
    skip_without!("clang-22", "ld.lld-22");
    let bitcode = r#"case " $* " in *" c.o "*) for o; do :; done; cp c.o "$o"; exit 0 ;; esac"#;
    let lld = Lld::new(&format!("{bitcode}\n{CLANG}"));
    lld.link(&[]).go().code(1).stderr_has("is LLVM bitcode, not a native object");
    assert_eq!(lld.folder.list("link"), lld.before);
}

#[test]
fn what_is_no_whole_object_fails_its_job() {
    skip_without!("clang-22");
    for (make, why) in [
        (":", "was not made"),
        ("echo text > $o", "is no object file"),
        ("head -c 200 $SEED > $o", "is cut off"),
        ("mkdir $o", "is not a regular file"),
        ("ln -s $SEED $o", "is not a regular file"),
        ("head -c 200 $SEED > $o; kill -9 $$", "the compiler was killed by SIGKILL"),
        ("cp $SEED $o; exit 1", "the compiler exited with 1"),
        ("cp $SEED $o; echo Error running ThinLTO backend", "but said \"Error running ThinLTO"),
    ] {
        let jobs = Jobs::new(1, &format!("for o; do :; done\n{make}"));
        let output = jobs.go(&[]).code(1).stdout_is("").stderr_has(why);
        assert_eq!(jobs.made(), [""; 0], "{make}: {output}");
    }
}

#[test]
fn an_old_object_is_never_taken_for_a_new_one() {
    skip_without!("clang-22");
    for compiler in ["exit 0", "exit 1"] {
        let jobs = Jobs::new(1, compiler);
        jobs.folder.write("m0.native.o", kit::seed());
        jobs.go(&[]).code(1);
        assert_eq!(jobs.made(), [""; 0], "{compiler}");
    }
}

#[test]
fn an_old_object_that_is_a_link_is_replaced_and_its_target_kept() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    jobs.folder.write("precious", "old");
    std::os::unix::fs::symlink("precious", jobs.folder.path("m0.native.o")).unwrap();
    jobs.go(&[]).ok();
    assert_eq!(jobs.folder.text("precious"), "old");
    assert!(fs::symlink_metadata(jobs.folder.path("m0.native.o")).unwrap().is_file());
}

#[test]
fn an_object_has_the_mode_that_clang_gives() {
    skip_without!("clang-22", "ld.lld-22");
    use std::os::unix::fs::PermissionsExt;
    let lld = Lld::new(CLANG);
    let umask = ["sh", "-c", "umask 027; exec \"$@\"", "sh"];
    lld.command(&umask, kit::bridge_path()).arg("--save-temps").go().ok();
    assert_eq!(lld.objects().len(), 3);
    for object in lld.objects() {
        let mode = fs::metadata(lld.folder.path("link").join(object)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}

// What compilers leave and say.

#[test]
fn a_grandchild_on_the_compilers_pipe_does_not_hold_up_the_link() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, &format!("sleep 60 &\n{MAKE}"));
    let marked = Marked::new();
    jobs.run(&[]).env(MARK, &marked.mark).limit(20).go().ok();
    marked.gone_within(Duration::from_secs(2));
}

#[test]
fn warnings_of_a_compiler_that_succeeds_are_shown_whole() {
    skip_without!("clang-22");
    let lines: String = (0..3000).map(|n| format!("warning: number {n}\n")).collect();
    let jobs = Jobs::new(1, &format!("cat warnings >&2; printf 'no end'\n{MAKE}"));
    jobs.folder.write("warnings", &lines);
    jobs.go(&[]).ok().stdout_is("").stderr_has(&format!("{lines}no end\ndtlto-bridge: 1 job in"));
}

#[test]
fn a_failure_is_told_once_with_its_job_and_a_command_that_can_be_pasted() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::kept(CLANG);
    let wrong = ["-fno-such-option", "it's \"q\" $HOME\n"];
    let text = fs::read_to_string(lld.job_file()).unwrap();
    let with = serde_json::to_string(&wrong).unwrap();
    let with = text.replace("\"-c\",", &format!("\"-c\",{},", &with[1..with.len() - 1]));
    fs::write(lld.job_file(), with).unwrap();
    lld.only("b.o");
    let output =
        lld.by_hand(&[]).go().code(1).stderr_has("error: b.o (jobs[0]): the compiler exited");
    let words = "clang-22: error: unknown argument: '-fno-such-option'";
    let words = if output.stderr.contains(words) { words } else { &words[9..] };
    assert_eq!(output.stderr.matches(words).count(), 1, "{output}");
    let (_, command) = output.stderr.split_once("to repeat it: ").unwrap();
    let (command, _) =
        command.split_once("\ndtlto-bridge: LLD now deletes the index files").unwrap();
    let again = kit::Run::new("sh").args(["-c", command]).cwd(lld.folder.path("link")).go().code(1);
    again.stderr_has(words).stderr_has("it's \"q\" $HOME");
}
