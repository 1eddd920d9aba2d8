//! Whole links before the real sccache and ccache while all is well: what hits, what misses, and that hits are what a
//! link in one process makes. They do not know how entries are kept.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::path::PathBuf;

use dtlto_bridge::cache::Kind;
use kit::stores::{Redis, User};
use kit::{Family, Farm, Folder, Host, Incredibuild, Modules, Output, Run};
use kit::{assert_bridged, bridge_path, clangxx, link, llvm_ar, lua, missing, skip, skip_without};
use serde_json::Value;

const SIZE: usize = 10;

/// Both kinds, or none where one is not installed.
fn kinds() -> Result<[Kind; 2], String> {
    missing(&["clang-22", "ld.lld-22", "sccache", "ccache"])
        .map_or(Ok([Kind::Sccache, Kind::Ccache]), Err)
}

macro_rules! for_each_kind {
    ($kind:ident, $body:block) => {
        match kinds() {
            Ok(kinds) => kinds.into_iter().for_each(|$kind| $body),
            Err(why) => skip!("{why}"),
        }
    };
}

/// One checkout of one user.
struct Checkout<'a> {
    user: &'a User,
    folder: Folder,
    args: Vec<String>,
}

impl<'a> Checkout<'a> {
    /// Modules and, among them, members of an archive, in the folder `place` of a new checkout.
    fn new(user: &'a User, place: &str) -> Self {
        let folder = Folder::new();
        Family::compile_many(&folder, place, &[], SIZE);
        let name = |n| format!("{place}/{}", Family::object(n));
        let archive = format!("{place}/libz.a");
        let members: Vec<String> = (5..SIZE).map(name).collect();
        llvm_ar().arg("rc").arg(&archive).args(members).cwd(folder.path("")).go().ok();
        let archive = format!("-Wl,--whole-archive,{archive},--no-whole-archive");
        let args = (0..5).map(name).chain([archive, "-lstdc++".into()]).collect();
        Checkout { user, folder, args }
    }

    /// Changes a module.
    fn edit(&self) {
        let source = self.folder.text("src/m2.cpp");
        self.folder.write("src/m2.cpp", source.replace("counter = 2;", "counter = 3;"));
        let compile = clangxx().args(["-O2", "-flto=thin", "-c", "src/m2.cpp", "-o", "o/m2.o"]);
        compile.cwd(self.folder.path("")).go().ok();
    }

    /// A link in one process.
    fn expected(&self) -> Vec<u8> {
        link().args(&self.args).args(["-o", "expected"]).cwd(self.folder.path("")).go().ok();
        self.folder.read("expected")
    }

    /// A link through the bridge, with the words of `options` for it.
    #[track_caller]
    fn link(&self, options: &[&str]) -> Linked {
        let stats = self.folder.path("stats.json");
        let _ = fs::remove_file(&stats);
        let named = format!("--stats={}", stats.display());
        let options = options.iter().copied().chain([&*named]);
        let run = link()
            .args(&self.args)
            .args(["-o", "app"])
            .arg(format!("-fthinlto-distributor={}", bridge_path()))
            .args(options.map(|option| format!("-Xthinlto-distributor={option}")))
            .cwd(self.folder.path(""));
        let output = environment(run, self.user).go().ok();
        let stats = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
        Linked { stats, output, program: self.folder.read("app") }
    }
}

fn environment(run: Run, user: &User) -> Run {
    user.environment.iter().fold(run, |run, (name, value)| run.env(name, value))
}

/// What a link was.
struct Linked {
    stats: Value,
    output: Output,
    program: Vec<u8>,
}

impl Linked {
    fn count(&self, field: &str) -> u64 {
        self.stats["caching"][field].as_u64().unwrap_or_else(|| panic!("{field}: {}", self.output))
    }

    /// So many of the jobs hit, and the others were made at `place` and stored.
    #[track_caller]
    fn assert(&self, hits: usize, place: &str, stored: usize) {
        let (stats, output) = (&self.stats, &self.output);
        let jobs = stats["jobs"].as_u64().unwrap();
        let found = [self.count("hits"), self.count("misses"), self.count("stored")];
        assert_eq!(found, [hits as u64, jobs - hits as u64, stored as u64], "{stats:#}{output}");
        assert_eq!(stats["places"]["cache"], hits, "{stats:#}");
        assert_eq!(stats["places"][place], jobs - hits as u64, "{stats:#}");
        assert_eq!(self.count("not_stored"), 0, "{output}");
        for record in stats["records"].as_array().unwrap() {
            assert_eq!(record["outcome"], "done");
            if record["place"] == "cache" {
                assert_eq!(
                    (&record["attempts"], &record["tries"]),
                    (&0.into(), &Value::Array(vec![]))
                );
                assert!(record["host"].is_string() && record["outputs"][0]["blake3"].is_string());
            }
        }
    }
}

fn cache(kind: Kind) -> String {
    format!("--cache={kind}")
}

#[test]
fn a_second_link_is_made_of_hits_alone() {
    for_each_kind!(kind, {
        let user = User::new();
        let checkout = Checkout::new(&user, "o");
        let expected = checkout.expected();
        let first = checkout.link(&[&cache(kind)]);
        first.assert(0, "local", SIZE);
        assert!(first.program == expected);
        first.output.stderr_has(&format!("0 from {kind}, {SIZE} here; stored {SIZE}"));
        let second = checkout.link(&[&cache(kind), "--trace=trace.json"]);
        assert!(checkout.folder.text("trace.json").contains("\"cache 0\""));
        second.assert(SIZE, "local", 0);
        assert!(second.program == expected);
        second.output.stderr_has(&format!("{SIZE} from {kind}, 0 here"));
        let left: Vec<_> =
            checkout.folder.list("").into_iter().filter(|name| name.contains("dtlto")).collect();
        assert_eq!(left, [""; 0]);
        let doctor = kit::bridge().args(["doctor", "--cache", &kind.to_string()]);
        let doctor = environment(doctor, &user).go().ok();
        let last = format!("{SIZE} of {SIZE} jobs hit, 0 were stored");
        assert!(doctor.stdout.contains(&last), "{doctor}");
    });
}

#[test]
fn an_edit_costs_the_module_and_its_importers_alone() {
    for_each_kind!(kind, {
        let user = User::new();
        let checkout = Checkout::new(&user, "o");
        checkout.link(&[&cache(kind)]);
        checkout.edit();
        let expected = checkout.expected();
        let jobs = Run::new(kit::tool("clang-22"));
        let jobs = jobs.args(["-O2", "-flto=thin", "-fuse-ld=lld-22", "-o", "given-up"]);
        let given_up = ["-fthinlto-distributor=/bin/true", "-Wl,--save-temps"];
        jobs.args(&checkout.args).args(given_up).cwd(checkout.folder.path("")).go().code(1);
        let jobs = kit::kept_jobs(&checkout.folder, "");
        let reads = |job: &&Value| kit::strings(&job["inputs"]).contains(&"o/m2.o".to_owned());
        let readers = jobs["jobs"].as_array().unwrap().iter().filter(reads).count();
        assert!((1..SIZE).contains(&readers), "{readers}");
        let linked = checkout.link(&[&cache(kind)]);
        linked.assert(SIZE - readers, "local", readers);
        assert!(linked.program == expected);
        checkout.link(&[&cache(kind)]).assert(SIZE, "local", 0);
    });
}

#[test]
fn another_checkout_elsewhere_hits_whatever_its_names_are() {
    for_each_kind!(kind, {
        let user = User::new();
        Checkout::new(&user, "o").link(&[&cache(kind)]).assert(0, "local", SIZE);
        for place in ["build/objects of mine", "ünï дом"] {
            let other = Checkout::new(&user, place);
            let linked = other.link(&[&cache(kind)]);
            linked.assert(SIZE, "local", 0);
            assert!(linked.program == other.expected(), "{place}");
        }
    });
}

/// The team's storage is all that they share: no folder, no server, no home.
#[test]
fn another_user_hits_by_a_server_of_his_own_on_the_same_redis() {
    skip_without!("clang-22", "ld.lld-22", "sccache", "redis-server");
    let redis = Redis::new();
    let [one, other] = [(); 2].map(|()| User::of_redis(redis.port));
    Checkout::new(&one, "o").link(&["--cache=sccache"]).assert(0, "local", SIZE);
    let checkout = Checkout::new(&other, "obj");
    let linked = checkout.link(&["--cache=sccache"]);
    linked.assert(SIZE, "local", 0);
    assert!(linked.program == checkout.expected());
}

#[test]
fn the_creation_mask_is_that_of_the_link() {
    for_each_kind!(kind, {
        use std::os::unix::fs::PermissionsExt;
        let user = User::new();
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        for (mask, mode) in [("022", 0o644), ("077", 0o600)] {
            let script = format!(
                "umask {mask}; exec clang-22 -O2 -flto=thin -fuse-ld=lld-22 a.o b.o c.o -o app \
                 -Wl,--save-temps -fthinlto-distributor={} -Xthinlto-distributor={}",
                bridge_path(),
                cache(kind)
            );
            let run = Run::new("sh").args(["-c", &script]).cwd(folder.path(""));
            environment(run, &user).go().ok();
            let objects = folder.list("").into_iter().filter(|name| name.ends_with(".native.o"));
            for object in objects {
                let path = folder.path(object);
                assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode, "{mask}");
                fs::remove_file(path).unwrap();
            }
        }
    });
}

#[test]
fn a_real_program_is_made_of_hits_and_identical() {
    skip_without!("clang-22", "ld.lld-22", "sccache");
    let (user, folder) = (User::new(), Folder::new());
    let objects = match lua(&folder) {
        Ok(objects) => objects,
        Err(why) => skip!("{why}"),
    };
    let count = objects.len();
    let args = objects.into_iter().chain(["-lm".to_owned()]).collect();
    let checkout = Checkout { user: &user, folder, args };
    let expected = checkout.expected();
    checkout.link(&["--cache=sccache"]).assert(0, "local", count);
    let linked = checkout.link(&["--cache=sccache"]);
    linked.assert(count, "local", 0);
    assert!(linked.program == expected);
}

#[test]
fn a_mode_says_whether_the_cache_is_asked_or_fed() {
    for_each_kind!(kind, {
        let user = User::new();
        let checkout = Checkout::new(&user, "o");
        let cache = cache(kind);
        let linked = |mode: &str| checkout.link(&[&cache, &format!("--cache-mode={mode}")]);
        let read = linked("read");
        read.assert(0, "local", 0);
        let write = linked("write");
        let counts = ["hits", "misses", "stored"].map(|field| write.count(field));
        assert_eq!(counts, [0, 0, SIZE as u64]);
        linked("write").output.stderr_has(&format!("{SIZE} here; stored {SIZE}"));
        linked("read").assert(SIZE, "local", 0);
        let salted = checkout.link(&[&cache, "--cache-salt=2"]);
        salted.assert(0, "local", SIZE);
    });
}

#[test]
fn objects_of_a_farm_whose_hosts_prove_their_compiler_are_stored() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let user = User::new();
    let checkout = Checkout::new(&user, "o");
    let farm = Farm::new();
    let adapter = farm.adapter();
    let link = |more: &[&str]| checkout.link(&[&["--cache=ccache", &adapter], more].concat());
    link(&["--cache-feed=local"]).assert(0, "farm", 0);
    link(&["--fallback=never"]).assert(0, "farm", SIZE);
    let linked = link(&["--fallback=never"]);
    linked.assert(SIZE, "farm", 0);
    assert!(linked.program == checkout.expected());
}

/// Such a tool may run whatever compiler it finds.
#[test]
fn objects_of_other_farms_are_stored_only_if_the_user_says_so() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let user = User::new();
    let checkout = Checkout::new(&user, "o");
    let manifest = serde_json::json!({
        "schema": 1, "name": "mine", "summary": "It mounts our disks.", "place": "farm",
        "hand_over": "each", "shipping": "direct", "tool": "env", "command": ["{tool}", "{compiler}", "{args...}"], "slots": 4,
    });
    let manifest = checkout.folder.write("mine.json", manifest.to_string());
    let adapter = format!("--adapter={}", manifest.display());
    let link = |more: &[&str]| checkout.link(&[&["--cache=ccache", &adapter], more].concat());
    link(&[]).assert(0, "farm", 0);
    link(&["--cache-feed=all"]).assert(0, "farm", SIZE);
    link(&[]).assert(SIZE, "farm", 0);
}

/// One call takes all jobs, so it waits for the cache to have said which they are.
#[test]
fn a_batch_is_one_call_for_what_the_cache_lacks() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let (user, ib) = (User::new(), Incredibuild::new("xgConsole"));
    let checkout = Checkout::new(&user, "o");
    let adapter = ib.adapter();
    let link = || checkout.link(&["--cache=ccache", "--cache-feed=all", &adapter]);
    link().assert(0, "farm", SIZE);
    link().assert(SIZE, "farm", 0);
    assert_eq!(ib.calls(), [SIZE]);
    checkout.edit();
    let linked = link();
    let missed = SIZE - linked.count("hits") as usize;
    assert!((1..SIZE).contains(&missed), "{}", linked.output);
    linked.assert(SIZE - missed, "farm", missed);
    assert_eq!(ib.calls(), [SIZE, missed]);
    assert!(linked.program == checkout.expected());
}

#[test]
fn a_link_of_hits_needs_no_farm() {
    skip_without!("clang-22", "ld.lld-22", "ccache", "distccd", "distcc");
    let mut host = Host::new();
    let user = User::new().with("DISTCC_HOSTS", host.entry());
    let checkout = Checkout::new(&user, "o");
    let options = ["--cache=ccache", "--adapter=distcc", "--fallback=never"];
    checkout.link(&options).assert(0, "farm", SIZE);
    assert!(host.worked().len() == SIZE);
    host.kill();
    let linked = checkout.link(&options);
    linked.assert(SIZE, "farm", 0);
    linked.output.stderr_lacks("left out").stderr_lacks("not used");
    assert!(linked.program == checkout.expected());
}

/// The backend warns of frames that are too large: whoever links is to see it, whoever compiled.
#[test]
fn what_the_compiler_printed_is_seen_with_a_hit_too() {
    for_each_kind!(kind, {
        let (user, folder) = (User::new(), Folder::new());
        let source = "void use(char *); int main() { char large[9000]; use(large); return 0; }";
        folder.write("a.cpp", source);
        folder.write(
            "b.cpp",
            "__attribute__((noinline)) void use(char *p) { *(volatile char *)p = 1; }",
        );
        let flags = ["-O1", "-flto=thin", "-Wframe-larger-than=4000", "-c", "a.cpp", "b.cpp"];
        clangxx().args(flags).cwd(folder.path("")).go().ok();
        let args = ["a.o", "b.o"].map(str::to_owned).to_vec();
        let checkout = Checkout { user: &user, folder, args };
        let warning = "stack frame size";
        for hits in [0, 2] {
            let linked = checkout.link(&[&cache(kind)]);
            linked.assert(hits, "local", 2 - hits);
            linked.output.stderr_has(warning);
        }
    });
}

/// The distributor, with this user's variables: cargo passes options on, and no variables of others.
fn with_variables(user: &User, folder: &Folder) -> PathBuf {
    let export = |(name, value): (&String, &String)| {
        format!("export {name}={}\n", shell_words::quote(value))
    };
    let exports: String = user.environment.iter().map(export).collect();
    folder.script("distributor", &format!("{exports}exec {} \"$@\"", bridge_path()))
}

#[test]
fn a_cargo_project_hits_in_another_folder() {
    skip_without!("clang-22", "ld.lld-22", "cargo", "rustc", "ccache");
    let (user, folder) = (User::new(), Folder::new());
    let distributor = with_variables(&user, &folder);
    let through = [
        format!("-fthinlto-distributor={}", distributor.display()),
        "-Xthinlto-distributor=--cache=ccache".to_owned(),
    ];
    for hits in [false, true] {
        let stats = folder.path(format!("stats-{hits}.json"));
        let stats = match kit::assert_cargo_project(&through, &stats) {
            Ok(stats) => stats,
            Err(why) => skip!("{why}"),
        };
        let place = if hits { "cache" } else { "local" };
        assert_eq!(stats["places"][place], stats["jobs"], "{stats:#}");
    }
}

#[test]
fn an_override_switches_the_cache_off() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let user = User::new().with("DTLTO_BRIDGE_OVERRIDE", "cache=none");
    let checkout = Checkout::new(&user, "o");
    let linked = checkout.link(&["--cache=ccache"]);
    assert_eq!((&linked.stats["cache"], &linked.stats["caching"]), (&"none".into(), &Value::Null));
    assert_bridged(&linked.output, SIZE);
    linked.output.stderr_has("overridden by DTLTO_BRIDGE_OVERRIDE: cache=none");
}
