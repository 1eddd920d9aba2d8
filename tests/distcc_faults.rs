//! What goes wrong on distcc's hosts, with real daemons: the link ends right, or says which host failed and why;
//! and distcc itself never runs a job on this machine.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use kit::{Client, Host, Output, SLOTS, free_port, note, skip_without, tool};
use serde_json::json;

/// The host `name` is of no use, and `why` is said of it: alone, and beside a good one.
#[track_caller]
fn assert_useless(name: &str, why: &str) {
    let (mut client, entry) = (Client::new(), format!("{name}/{SLOTS}"));
    let told = |output: Output| output.stderr_has(&format!("{name} is left out: {why}"));
    let output = told(client.run(&[&entry], &[]).go().ok());
    note(&format!("{why}, made here"), &output);
    client.assert_made(0, &output.stderr_has("3 here (3 of them could not run there)"));
    client.forget();
    let output = told(client.run(&[&entry], &["--fallback=never"]).go().code(4));
    let output = output.stderr_has(&format!("nothing may run here: {name}: {why}"));
    assert!(output.took < Duration::from_secs(10), "{output}");
    client.assert_nothing_left();
    client.forget();
    let good = Host::new();
    let both = [&*entry, &*good.entry()];
    let output = told(client.run(&both, &["--fallback=never"]).go().ok());
    note(&format!("{why}, made on the other host"), &output);
    client.assert_made(3, &output);
    assert_eq!(client.stats()["hosts"], json!({&*good.name: 3}));
    // The next link does not ask it, and says so.
    let output = client.run(&both, &["--fallback=never"]).go().ok();
    client
        .assert_made(3, &output.stderr_has(&format!("{name} is left out, as a minute ago: {why}")));
}

#[test]
fn a_host_that_is_down() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    assert_useless(&format!("127.0.0.1:{}", free_port()), "down: nonblocking connect to ");
}

#[test]
fn a_host_without_the_worker() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let host = Host::with(|host| fs::remove_file(host.folder.path("dtlto-worker")).unwrap());
    assert_useless(&host.name, "worker missing");
}

#[test]
fn a_host_that_does_not_allow_the_worker() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let host = Host::with(|host| host.commands = vec!["/usr/bin/clang".into()]);
    assert_useless(&host.name, "not allowed");
}

#[test]
fn a_host_that_does_not_allow_this_machine() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let host = Host::with(|host| host.allow = "192.0.2.1".into());
    assert_useless(&host.name, "not allowed");
}

#[test]
fn a_host_with_another_clang() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let host = Host::with(|host| {
        let real = fs::canonicalize(tool("clang-22")).unwrap();
        let mut bytes = fs::read(&real).unwrap();
        bytes.push(0);
        let copy = host.folder.write("other/bin/clang", bytes);
        fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        symlink(real.parent().unwrap().with_file_name("lib"), host.folder.path("other/lib"))
            .unwrap();
        host.compilers = vec![copy.display().to_string()];
    });
    assert_useless(&host.name, "other clang: clang differs");
}

/// A compiler's error is the compiler's: it ends the link with 1, and no host is blamed.
#[test]
fn an_error_of_the_compiler_is_not_the_hosts() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let host = Host::new();
    let client = Client::linking(&["-Wl,--thinlto-remote-compiler-arg=-march=no-such-cpu"]);
    for fallback in ["local", "never"] {
        let option = format!("--fallback={fallback}");
        let output = client.run(&[&host.entry()], &[&option]).go().code(1);
        let output = output.stderr_has("error: unknown target CPU 'no-such-cpu'");
        output.stderr_lacks("left out").stderr_lacks("failed at");
        client.assert_nothing_left();
    }
    assert!(!host.worked().is_empty());
}
