//! distcc's hosts at the far end of a wire: each has a network namespace of its own, and the wire may break while
//! a job goes there, is compiled, or comes back. Only root can run these.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fmt::Write;
use std::thread;
use std::time::Duration;

use kit::{
    Client, Family, Folder, Host, Network, Output, Way, assert_all_agree, assert_identical_as,
    clang, note, skip, skip_without, through_distcc, until,
};
use serde_json::{Value, json};

/// Said where only root can go on.
const NOT_ROOT: &str = "only root can make network namespaces";

#[test]
fn a_program_is_made_by_hosts_in_namespaces_of_their_own() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip");
    let Some(network) = Network::new(3) else { skip!("{NOT_ROOT}") };
    let (folder, home, stats) = (Folder::new(), Folder::new(), Folder::new());
    Family::compile(&folder, "o", &[]);
    let objects: Vec<_> = (0..Family::SIZE).map(|n| format!("o/{}", Family::object(n))).collect();
    let args: Vec<_> =
        objects.iter().map(String::as_str).chain(["-lstdc++", "-o", "app"]).collect();
    let hosts = [0, 1, 2].map(|n| network.host(n, |_| ()));
    let entries: Vec<_> = hosts.iter().map(Host::entry).collect();
    let output = assert_identical_as(&folder, "", &args, Family::SIZE, |link| {
        let run = network.client(link.args(through_distcc(&stats)));
        Client::user(&home, run).env("DISTCC_HOSTS", entries.join(" "))
    });
    let stats: Value = serde_json::from_slice(&stats.read("stats.json")).unwrap();
    assert_all_agree(&stats, &hosts.each_ref(), Family::SIZE, &output);
    assert!(hosts.iter().all(|host| !host.worked().is_empty()), "{stats:#}");
}

/// The job of one module that nothing can compress: its request and its object have 300 kB each.
fn incompressible() -> Client {
    let (folder, mut seed) = (Folder::new(), 1_u32);
    let mut source =
        "int main(int n, char **v) { extern char blob[]; return blob[n]; }\nchar blob[] = {"
            .to_owned();
    for _ in 0..300_000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let _ = write!(source, "{},", (seed >> 24) as i8);
    }
    folder.write("main.c", source + "};");
    clang().args(["-O1", "-flto=thin", "-c", "main.c"]).cwd(folder.path("")).go().ok();
    Client::of(folder, &["main.o"], &[])
}

/// What distcc and the bridge leave to the time limit.
const LIMIT: &str = "--timeout=5";
/// Bytes that are certainly those of a bundle, and certainly not all of it.
const PART: u64 = 60_000;

/// Where a job is when its wire breaks.
#[derive(Clone, Copy, PartialEq)]
enum Moment {
    Upload,
    Compile,
    Download,
}

impl Moment {
    /// What the worker does, as a shell script.
    fn worker(self) -> &'static str {
        match self {
            Moment::Upload => "touch \"$HOST/at work\"; work \"$@\"",
            Moment::Compile => "touch \"$HOST/at work\"; sleep 30; touch \"$HOST/done\"",
            Moment::Download => "work \"$@\"; touch \"$HOST/at work\"",
        }
    }

    /// Breaks the wire to the first host, while a job is where it should be.
    #[track_caller]
    fn cut(self, network: &Network, host: &Host, way: Way, before: u64) {
        let at_work = || host.folder.path("tmp/at work").exists();
        let part = || network.carried(0, way) >= before + PART;
        match self {
            Moment::Upload => until("a part of a request", part),
            Moment::Compile => until("a job", at_work),
            Moment::Download => until("a part of an answer", || at_work() && part()),
        }
        network.cut(0);
        let whole = before + 300_000;
        assert!(self == Moment::Compile || network.carried(0, way) < whole, "cut too late");
        assert_eq!(at_work(), self != Moment::Upload, "cut at the wrong time");
    }
}

/// A link of one job, whose wire is cut at this moment. It may run at home, or on a `second` host.
#[track_caller]
fn link_with_cut(moment: Moment, fallback: &str, second: bool) -> Option<(Client, Host, Output)> {
    let (network, client) = (Network::new(2)?, incompressible());
    let host = network.host(0, |plan| plan.worker_after_doctor(moment.worker()));
    let good = second.then(|| network.host(1, |_| ()));
    let entries: Vec<_> = [&host].into_iter().chain(&good).map(Host::entry).collect();
    let hosts: Vec<_> = entries.iter().map(String::as_str).collect();
    network.client(client.doctor(&hosts)).go().ok();
    let way = if moment == Moment::Upload { Way::There } else { Way::Back };
    if moment != Moment::Compile {
        network.throttle(0, way);
    }
    let before = network.carried(0, way);
    let running = network.client(client.run(&hosts, &[LIMIT, fallback])).start();
    moment.cut(&network, &host, way, before);
    let output = running.wait();
    let output =
        output.stderr_has(&format!("{} failed at 1 attempt: it took longer than 5", host.name));
    if let Some(good) = good {
        assert_eq!(client.stats()["hosts"], json!({&*good.name: 1}), "{output}");
    }
    Some((client, host, output))
}

/// The wire breaks at this moment: the job is done here, or on another host, or the link fails and says why.
#[track_caller]
fn assert_survives_a_cut(moment: Moment, name: &str) {
    let made_here = || {
        let (client, _, output) = link_with_cut(moment, "--fallback=local", false)?;
        note(&format!("the network is cut in mid-{name}, made here"), &output);
        client.assert_made(0, &output.ok());
        Some(())
    };
    let failed = || {
        let (client, host, output) = link_with_cut(moment, "--fallback=never", false)?;
        let told = output
            .stderr
            .lines()
            .any(|line| line.contains("jobs[0]") && line.contains("it took longer"));
        assert!(told && output.stderr.contains(&host.name), "{output}");
        output.code(4);
        client.assert_nothing_left();
        Some(())
    };
    let made_there = || {
        let (client, _, output) = link_with_cut(moment, "--fallback=never", true)?;
        note(&format!("the network is cut in mid-{name}, made on the other host"), &output);
        client.assert_made(1, &output.ok());
        Some(())
    };
    let made = thread::scope(|scope| {
        let running = [scope.spawn(made_here), scope.spawn(failed), scope.spawn(made_there)];
        running.map(|run| run.join().unwrap())
    });
    if made.contains(&None) {
        skip!("{NOT_ROOT}");
    }
}

#[test]
fn a_network_that_is_cut_in_mid_upload() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip", "tc");
    assert_survives_a_cut(Moment::Upload, "upload");
}

#[test]
fn a_network_that_is_cut_in_mid_compile() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip");
    assert_survives_a_cut(Moment::Compile, "compile");
}

#[test]
fn a_network_that_is_cut_in_mid_download() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip", "tc");
    assert_survives_a_cut(Moment::Download, "download");
}

/// Its answers get lost; alone, and beside a good one, which does not wait for it.
#[test]
fn a_host_whose_packets_are_lost() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip");
    let Some(network) = Network::new(2) else { skip!("{NOT_ROOT}") };
    network.swallow(0);
    let (good, hole) = (network.host(1, |_| ()), network.address(0));
    let link = |hosts: &[&str], fallback: &str| {
        let client = Client::new();
        let output = network.client(client.run(hosts, &[fallback])).go();
        assert!(output.took < Duration::from_secs(12), "{output}");
        (client, output)
    };
    let left_out = format!("{hole} is left out: down: ");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (client, output) = link(&[&hole], "--fallback=local");
            note("a black hole, made here", &output);
            client.assert_made(0, &output.ok().stderr_has(&left_out));
        });
        scope.spawn(|| {
            let (client, output) = link(&[&hole], "--fallback=never");
            let output = output.code(4).stderr_has(&left_out);
            output.stderr_has(&format!("nothing may run here: {hole}: down: "));
            client.assert_nothing_left();
        });
        scope.spawn(|| {
            let (client, output) = link(&[&hole, &good.entry()], "--fallback=never");
            note("a black hole, made on the other host", &output);
            client.assert_made(3, &output.ok());
        });
    });
}

/// Without a time limit that would end it, a job on a host whose connections broke off without a word goes
/// elsewhere after three looks at the host's port in vain.
#[test]
fn a_host_that_falls_silent_in_mid_job() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip");
    let link = |fallback: &str, second: bool| {
        let (network, client) = (Network::new(2)?, Client::new());
        let far = network.host(0, |host| {
            host.worker_after_doctor("touch \"$HOST/at work\"; sleep 3; work \"$@\"");
        });
        let good = second.then(|| network.host(1, |_| ()));
        let entries: Vec<_> = [&far].into_iter().chain(&good).map(Host::entry).collect();
        let hosts: Vec<_> = entries.iter().map(String::as_str).collect();
        network.client(client.doctor(&hosts)).go().ok();
        let running = network.client(client.run(&hosts, &[fallback])).limit(90).start();
        until("a job", || far.folder.path("tmp/at work").exists());
        network.swallow(0);
        let output = running.wait().stderr_has(&format!("{} failed at", far.name));
        assert!(output.took < Duration::from_secs(60), "{output}");
        Some((client, output.stderr_has("its host does not answer any more")))
    };
    thread::scope(|scope| {
        let alone = scope.spawn(|| link("--fallback=never", false));
        let Some((client, output)) = link("--fallback=never", true) else { skip!("{NOT_ROOT}") };
        note("a host falls silent in mid-job, made on the other host", &output);
        client.assert_made(3, &output.ok());
        let (client, output) = alone.join().unwrap().unwrap();
        output.code(4);
        client.assert_nothing_left();
    });
}
