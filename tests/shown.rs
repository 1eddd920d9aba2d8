//! What people see: progress, -v and -q, colours, and what an override forces. These tests read what
//! a terminal or a log would show.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use kit::{Jobs, MAKE, Run, bridge_path, skip, skip_without};

fn slow(count: usize) -> Jobs {
    Jobs::new(count, &format!("sleep 0.4; echo 'warning: odd' >&2\n{MAKE}"))
}

/// What the bridge prints on a terminal of 100 columns, of the kind `term`.
#[track_caller]
fn on_terminal(jobs: &Jobs, term: &str, options: &str) -> String {
    let bridge = format!("'{}' --local-jobs=64 {options} jobs.json", bridge_path());
    let command = format!("stty cols 100; {bridge}");
    let run = Run::new("script").args(["-qec", &command, "/dev/null"]).cwd(jobs.folder.path(""));
    run.env("TERM", term).env_remove("NO_COLOR").go().ok().stdout
}

/// The lines that stay on a terminal: of each, what follows its last erasure.
fn screen(printed: &str) -> Vec<String> {
    let kept = |line: &str| line.rsplit("\u{1b}[2K").next().unwrap().trim_end().to_owned();
    let lines = printed.lines().map(kept).filter(|line| !line.is_empty());
    lines.map(|line| line.replace(char::is_numeric, "0")).collect()
}

const COLOUR: &str = "\u{1b}[32m";

#[test]
fn a_terminal_shows_one_line_of_progress_and_takes_it_away() {
    skip_without!("clang-22", "script");
    for options in ["", "--progress=bar"] {
        let jobs = slow(2);
        let printed = on_terminal(&jobs, "xterm", options);
        assert!(printed.contains("0/2 done, 2 here, "), "{printed:?}");
        assert!(printed.contains(COLOUR), "{printed:?}");
        let left = ["warning: odd", "warning: odd", "dtlto-bridge: 0 jobs in 000 ms: 0 here"];
        assert_eq!(screen(&printed), left, "{printed:?}");
    }
}

#[test]
fn the_line_of_progress_does_not_stay_after_a_failure() {
    skip_without!("clang-22", "script");
    let jobs = Jobs::new(1, "sleep 0.4; echo 'error: no luck' >&2; exit 1");
    let bridge = format!("'{}' jobs.json; echo", bridge_path());
    let run = Run::new("script").args(["-qec", &bridge, "/dev/null"]).cwd(jobs.folder.path(""));
    let printed = run.env("TERM", "xterm").go().ok().stdout;
    let left = screen(&printed);
    assert!(
        printed.contains("0/1 done") && !left.iter().any(|line| line.contains("0/0 done")),
        "{left:?}"
    );
    assert_eq!(left[1], "error: no luck");
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    skip_without!("clang-22", "script");
    let printed = on_terminal(&slow(1), "dumb", "");
    assert!(!printed.contains('\u{1b}') && printed.contains("1 job in"), "{printed:?}");
}

#[test]
fn no_color_is_honoured() {
    skip_without!("clang-22", "script");
    let jobs = slow(1);
    let command = format!("NO_COLOR=1 '{}' jobs.json", bridge_path());
    let run = Run::new("script").args(["-qec", &command, "/dev/null"]).cwd(jobs.folder.path(""));
    let printed = run.env("TERM", "xterm").go().ok().stdout;
    assert!(printed.contains("0/1 done") && !printed.contains(COLOUR), "{printed:?}");
}

#[test]
fn a_log_gets_few_lines_without_escapes() {
    skip_without!("clang-22");
    let output = slow(3).run(&[]).env("TERM", "xterm").go().ok().stderr_lacks("\u{1b}");
    assert_eq!(output.stderr.lines().count(), 4, "{output}");
    let bar = slow(1).run(&["--progress=bar"]).env("TERM", "xterm").go().ok();
    bar.stderr_lacks("\u{1b}");
}

#[test]
fn quiet_prints_nothing_but_errors() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    assert_eq!(jobs.go(&["-q"]).ok().stderr, "");
    let jobs = Jobs::new(1, "echo 'error: no luck' >&2; exit 1");
    let output = jobs.go(&["-q"]).code(1).stderr_has("error: m0.o").stderr_has("error: no luck");
    output.stderr_has("to repeat it: ").stderr_lacks("1 job in");
    let warned = slow(1).go(&["-q"]).ok();
    assert_eq!(warned.stderr, "warning: odd\n");
}

#[test]
fn verbose_prints_each_command_so_that_it_can_be_pasted() {
    skip_without!("clang-22");
    let jobs = Jobs::new(3, MAKE);
    let compiler = jobs.folder.path("compiler");
    jobs.write(&compiler, |n| vec![format!("odd '{n}' \"$HOME\"\n*")]);
    let output = jobs.go(&["-v"]).ok();
    let begins = format!("dtlto-bridge: {} ", compiler.display());
    assert_eq!(output.stderr.matches(&begins).count(), 3, "{output}");
    let (_, command) = output.stderr.split_once(&begins).unwrap();
    let (command, _) = command.split_once("\ndtlto-bridge: ").unwrap();
    let words = shell_words::split(command).unwrap();
    assert_eq!((words.len(), words[0].starts_with("odd '")), (5, true), "{words:?}");
    let object = words.last().unwrap();
    std::fs::remove_file(jobs.folder.path(object)).unwrap();
    let command = format!("{} {command}", compiler.display());
    Run::new("sh").args(["-c", &command]).cwd(jobs.folder.path("")).go().ok();
    assert_eq!(jobs.folder.read(object), kit::seed());
}

// Overrides.

/// Jobs, and an adapter for a farm that would fail them all.
fn with_bad_farm() -> Jobs {
    let jobs = Jobs::new(2, MAKE);
    jobs.folder.write(
        "bad.json",
        r#"{"schema": 1, "name": "bad", "summary": "Fails.", "place": "farm", "hand_over": "each",
            "shipping": "direct", "tool": "/bin/false", "command": ["{tool}", "{args...}"],
            "slots": 4, "exit": [{"codes": "1", "means": "busy"}]}"#,
    );
    jobs
}

const BAD_FARM: [&str; 3] = ["--adapter=bad.json", "--fallback=never", "--retries=0"];

#[test]
fn the_variable_for_a_sick_farm_beats_options_and_says_so_last() {
    skip_without!("clang-22");
    let jobs = with_bad_farm();
    jobs.go(&BAD_FARM).code(4);
    let output = jobs.run(&BAD_FARM).env("DTLTO_BRIDGE_OVERRIDE", "adapter=local").go().ok();
    let last = output.stderr.lines().last();
    assert_eq!(last, Some("dtlto-bridge: overridden by DTLTO_BRIDGE_OVERRIDE: adapter=local"));
    assert_eq!(
        (&jobs.stats()["adapter"], &jobs.stats()["places"]["local"]),
        (&"local".into(), &2.into())
    );
    jobs.run(&BAD_FARM).env("DTLTO_BRIDGE_OVERRIDE", "fallback=local").go().ok();
    assert_eq!(jobs.stats()["fallbacks"], 2);
}

#[test]
fn a_broken_override_is_a_notice() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    let run = jobs.run(&[]).env("DTLTO_BRIDGE_OVERRIDE", "adapter=distcc");
    run.go().ok().stderr_has("DTLTO_BRIDGE_OVERRIDE is not followed");
}

#[test]
fn the_administrators_file_beats_everything_if_it_is_roots_own() {
    skip_without!("clang-22", "unshare");
    let possible =
        Run::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).go();
    if !possible.status.success() {
        skip!("root, who can mount, is needed: {possible}");
    }
    // An /etc of its own, so that the machine's is left alone.
    let with_file = |content: &str, mode: &str| {
        let jobs = with_bad_farm();
        let script = format!(
            "mount -t tmpfs none /etc && mkdir /etc/dtlto-bridge && cd /etc/dtlto-bridge &&
            printf %s '{content}' > override.json && chmod {mode} override.json && cd \"$OLDPWD\" &&
            exec \"$0\" \"$@\""
        );
        let command = ["--mount", "sh", "-c", &script, bridge_path()];
        let run = Run::new("unshare").args(command).args(BAD_FARM).arg("jobs.json");
        run.cwd(jobs.folder.path("")).env("DTLTO_BRIDGE_OVERRIDE", "fallback=never").go()
    };
    let output = with_file(r#"{"adapter":"local"}"#, "644").ok();
    let last = output.stderr.lines().last();
    let line = "dtlto-bridge: overridden by /etc/dtlto-bridge/override.json: adapter=local";
    assert_eq!(last, Some(line), "{output}");
    with_file(r#"{"fallback":"local"}"#, "644").ok().stderr_has("2 here");
    with_file(r#"{"adapter":"local"}"#, "666")
        .code(4)
        .stderr_has("others than root may write to it");
    with_file("no JSON", "644").code(4).stderr_has("override.json is not followed");
}
