//! A rule of the manifest a test, with the exact message that its breach gives.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::adapter::{Meaning, Values};

/// A farm's manifest that is right, with some keys replaced; `null` removes one.
fn farm(keys: Value) -> Value {
    let mut manifest = json!({
        "schema": 1, "name": "distcc", "summary": "A farm.", "place": "farm", "hand_over": "each",
        "shipping": "direct", "tool": "distcc", "command": ["{tool}", "{compiler}", "{args...}"],
        "slots": 8,
    });
    for (key, value) in keys.as_object().unwrap() {
        match value {
            Value::Null => manifest.as_object_mut().unwrap().remove(key),
            value => manifest.as_object_mut().unwrap().insert(key.clone(), value.clone()),
        };
    }
    manifest
}

fn read(manifest: &Value) -> Result<Manifest, String> {
    read_text(&manifest.to_string())
}

fn read_text(text: &str) -> Result<Manifest, String> {
    Manifest::parse(text, Source::File(PathBuf::from("/etc/farms/distcc.json")))
        .map_err(|error| format!("{error:#}"))
}

fn good(keys: Value) -> Manifest {
    read(&farm(keys)).unwrap()
}

/// The one problem of a farm's manifest with `keys` replaced.
#[track_caller]
fn problem(keys: Value) -> String {
    let error = read(&farm(keys)).unwrap_err();
    error.strip_prefix("adapter /etc/farms/distcc.json: ").expect(&error).to_owned()
}

struct Job;

impl Values for Job {
    fn scalar(&self, scalar: Scalar) -> &str {
        if scalar == Scalar::Tool { "/usr/bin/distcc" } else { scalar.word() }
    }

    fn list(&self, _: crate::adapter::List) -> Vec<&str> {
        vec!["-c", "{tool}"]
    }
}

#[test]
fn every_key_reaches_the_manifest() {
    let manifest = good(json!({
        "homepage": "https://www.distcc.org/",
        "env": {"set": {"A": "x", "B": "{link}"}, "unset": ["C"]},
        "exit": [{"codes": "75", "means": "busy", "say": "no room"}],
        "probes": [{"command": ["{tool}", "--version"], "expect": "distcc 3", "help": "get it"}],
        "notes": ["one", "two"],
    }));
    assert_eq!(manifest.name, "distcc");
    assert_eq!(manifest.summary, "A farm.");
    assert_eq!(manifest.homepage.as_deref(), Some("https://www.distcc.org/"));
    assert_eq!(manifest.place, Place::Farm);
    assert_eq!(manifest.tool, Some(Tool::OnPath("distcc".to_owned())));
    let argv = manifest.command.expand(&Job);
    assert_eq!(argv, ["/usr/bin/distcc", "compiler", "-c", "{tool}"]);
    let set: Vec<_> =
        manifest.env.set.iter().map(|(name, value)| (name.as_str(), value.expand(&Job))).collect();
    assert_eq!(set, [("A", "x".to_owned()), ("B", "link".to_owned())]);
    assert_eq!(manifest.env.unset, ["C"]);
    assert_eq!(manifest.slots, NonZeroU32::new(8));
    assert_eq!(manifest.failure(75), Some((Meaning::Busy, Some("no room"))));
    assert_eq!(manifest.probes[0].argv("/bin/d", "cc"), ["/bin/d", "--version"]);
    assert_eq!(manifest.probes[0].expect.as_deref(), Some("distcc 3"));
    assert_eq!(manifest.probes[0].help, "get it");
    assert_eq!(manifest.notes, ["one", "two"]);
}

#[test]
fn the_first_matching_exit_rule_wins_and_the_rest_is_the_compilers() {
    let manifest = good(json!({"exit": [
        {"codes": "110", "means": "no compiler"},
        {"codes": "100-127", "means": "unreachable"},
        {"codes": "255", "means": "no hosts"},
    ]}));
    let means = |code| manifest.failure(code).map(|(means, _)| means);
    assert_eq!(means(0), None);
    assert_eq!(means(110), Some(Meaning::NoCompiler));
    assert_eq!(means(100), Some(Meaning::Unreachable));
    assert_eq!(means(127), Some(Meaning::Unreachable));
    assert_eq!(means(255), Some(Meaning::NoHosts));
    for code in [1, 99, 128, 256, -1, 256 + 110, i32::MIN] {
        assert_eq!(means(code), Some(Meaning::CompilerError), "{code}");
    }
}

#[test]
fn a_variable_set_twice_is_an_error() {
    let env = r#"{"env": {"set": {"B": "", "A": "", "B": ""}}, "#;
    let error = read_text(&farm(json!({})).to_string().replacen('{', env, 1)).unwrap_err();
    assert_eq!(error, "adapter /etc/farms/distcc.json: env.set.B: is set twice");
}

#[test]
fn all_problems_are_told_at_once() {
    let error = read(&farm(json!({
        "name": "DistCC", "summary": "", "slots": 0,
        "command": ["{compiler}", "{foo}{bar}", "}"],
        "exit": [{"codes": "0", "means": "busy"}],
    })));
    let known = "known are {compiler}, {primary}, {index}, {object}, {linker_output}, {tool}, {job}, {link}, {request}, {response}, {host}, {server}, {declared}, {identity}, {environment}, {private}, {seconds}, {tasks}, {args...}, {imports...}, {other_inputs...}, {inputs...}, {outputs...}, {bridge...}";
    assert_eq!(
        error.unwrap_err(),
        format!(
            "adapter /etc/farms/distcc.json has 8 problems:
  name: \"DistCC\" must be of a-z, 0-9, _ and - only
  summary: must be one line of text
  command[1]: unknown placeholder {{foo}}; {known}
  command[1]: unknown placeholder {{bar}}; {known}
  command[2]: stray }}; write }}}} for a brace
  slots: must be at least 1
  exit[0].codes: \"0\" holds 0, which is always done
  tool: is never used; write {{tool}} where the program belongs"
        )
    );
}

#[test]
fn very_many_problems_are_cut_short() {
    let error = read(&farm(json!({"notes": vec![""; 53]}))).unwrap_err();
    assert!(error.contains("has 53 problems:\n  notes[0]: "), "{error}");
    assert!(error.ends_with("  notes[49]: must be one line of text\n  and 3 more"), "{error}");
    let error = read(&farm(json!({"notes": vec![""; 50]}))).unwrap_err();
    assert!(error.ends_with("notes[49]: must be one line of text"), "{error}");
}

#[test]
fn a_name_is_that_of_its_file_and_plain() {
    assert_eq!(
        problem(json!({"name": "icecc"})),
        "name: \"icecc\" must be the name of its file, icecc.json"
    );
    for name in ["", "Distcc", "a b", "../a", "ä"] {
        assert_eq!(
            problem(json!({"name": name})),
            format!("name: {name:?} must be of a-z, 0-9, _ and - only")
        );
    }
    let text = farm(json!({"name": "a_b-9"})).to_string();
    assert!(Manifest::parse(&text, Source::File("a_b-9.json".into())).is_ok());
    assert!(Manifest::parse(&text, Source::BuiltIn).is_ok());
}

#[test]
fn texts_for_people_are_one_line() {
    let probe =
        |expect, help| json!({"probes": [{"command": ["{tool}"], "expect": expect, "help": help}]});
    let cases = [
        (json!({"summary": "a\nb"}), "summary"),
        (json!({"summary": " "}), "summary"),
        (json!({"notes": ["a", ""]}), "notes[1]"),
        (json!({"exit": [{"codes": "1", "means": "busy", "say": "\u{1b}[2J"}]}), "exit[0].say"),
        (probe("", "help"), "probes[0].expect"),
        (probe("3", "\n"), "probes[0].help"),
    ];
    for (keys, at) in cases {
        assert_eq!(problem(keys), format!("{at}: must be one line of text"));
    }
}

#[test]
fn a_homepage_is_an_address_of_the_web() {
    assert_eq!(
        problem(json!({"homepage": "javascript:alert(1)"})),
        "homepage: must start with https:// or http://"
    );
}

#[test]
fn a_tool_with_a_slash_is_relative_to_its_manifest() {
    let tool = |tool: &str| good(json!({"tool": tool})).tool.unwrap();
    assert_eq!(tool("distcc").as_path(), Path::new("distcc"));
    assert_eq!(tool("./distcc").as_path(), Path::new("/etc/farms/distcc"));
    assert_eq!(tool("bin/distcc").as_path(), Path::new("/etc/farms/bin/distcc"));
    assert_eq!(tool("/opt/distcc").as_path(), Path::new("/opt/distcc"));
    let text = farm(json!({"tool": "./d"})).to_string();
    let manifest = Manifest::parse(&text, Source::File("distcc.json".into())).unwrap();
    assert_eq!(manifest.tool, Some(Tool::At(path::absolute("d").unwrap())));
}

#[test]
fn a_built_in_tool_is_a_name_or_absolute() {
    let read = |tool: &str| {
        Manifest::parse(&farm(json!({"tool": tool})).to_string(), Source::BuiltIn)
            .map(|manifest| manifest.tool.unwrap())
            .map_err(|error| error.to_string())
    };
    assert_eq!(read("distcc"), Ok(Tool::OnPath("distcc".to_owned())));
    assert_eq!(read("/opt/d"), Ok(Tool::At("/opt/d".into())));
    assert_eq!(
        read("./d"),
        Err("built-in adapter: tool: a built-in adapter has no folder; write a name or an absolute path"
            .to_owned())
    );
}

#[test]
fn a_tool_is_named_if_and_only_if_it_is_used() {
    assert_eq!(
        problem(json!({"tool": null})),
        "command[0]: {tool} needs the key tool, which says what it is"
    );
    assert_eq!(
        problem(json!({"command": ["{compiler}", "{args...}"]})),
        "tool: is never used; write {tool} where the program belongs"
    );
    assert_eq!(problem(json!({"tool": ""})), "tool: must be a name or a path");
    good(json!({"command": ["{compiler}", "{args...}"], "env": {"set": {"A": "{tool}"}}}));
    let probe = json!([{"command": ["{tool}"], "help": "x"}]);
    good(json!({"command": ["{compiler}", "{args...}"], "probes": probe}));
    let problem = problem(json!({"command": ["{compiler}", "{tool}{"]}));
    assert_eq!(problem, "command[1]: stray {; write {{ for a brace");
}

#[test]
fn the_program_of_a_command_is_known_before_any_job() {
    let cases = [
        (json!([]), "command: must name a program"),
        (json!(["", "{args...}"]), "command[0]: must name a program"),
        (json!(["{args...}"]), "command[0]: a list cannot be the program"),
        (
            json!(["{object}", "{args...}"]),
            "command[0]: the program must be {tool}, {compiler} or plain text",
        ),
        (
            json!(["x{tool}", "{args...}"]),
            "command[0]: the program must be {tool}, {compiler} or plain text",
        ),
        (
            json!(["./run", "{args...}"]),
            "command[0]: a relative path depends on where the link runs; name it in tool",
        ),
    ];
    for (command, expected) in cases {
        let tool = json!({"set": {"T": "{tool}"}});
        assert_eq!(problem(json!({"command": command, "env": tool})), expected);
    }
    good(json!({"command": ["/usr/bin/nice", "{tool}", "{args...}"]}));
    good(json!({"command": ["nice", "{tool}", "{args...}"]}));
}

#[test]
fn a_command_without_the_jobs_arguments_is_an_error() {
    let expected = "command: needs the element {args...}; without it other objects would be made";
    for command in [json!(["{tool}"]), json!(["{tool}", "{compiler}", "-o{object}", "{inputs...}"])]
    {
        assert_eq!(problem(json!({"command": command})), expected);
    }
}

#[test]
fn an_environment_has_names_that_can_be_set_and_single_values() {
    let cases = [
        (json!({"set": {"": "x"}}), "env.set.: \"\" cannot be the name of a variable"),
        (json!({"set": {"A=B": "x"}}), "env.set.A=B: \"A=B\" cannot be the name of a variable"),
        (json!({"unset": ["A\0"]}), "env.unset[0]: \"A\\0\" cannot be the name of a variable"),
        (json!({"set": {"A": "x"}, "unset": ["A"]}), "env.unset[0]: A is named before"),
        (
            json!({"set": {"A": "{args...}"}}),
            "env.set.A: {args...} is a list; only command takes one",
        ),
        (
            json!({"set": {"A": "x\0"}}),
            "env.set.A: holds a NUL character, which no argument or variable can",
        ),
    ];
    for (env, expected) in cases {
        assert_eq!(problem(json!({"env": env})), expected);
    }
}

#[test]
fn slots_and_exit_codes_belong_to_farms() {
    assert_eq!(
        problem(json!({"slots": null})),
        "slots: a farm needs them: how many jobs may be in flight"
    );
    assert_eq!(problem(json!({"slots": 0})), "slots: must be at least 1");
    assert_eq!(
        problem(json!({"place": "local"})),
        "slots: only a farm has them; --local-jobs bounds the jobs here"
    );
    assert_eq!(
        problem(
            json!({"place": "local", "slots": null, "exit": [{"codes": "1", "means": "busy"}]})
        ),
        "exit: only for a farm; here every code but 0 is the compiler's own"
    );
}

#[test]
fn exit_codes_are_one_number_or_a_range() {
    let shape = "must be a code or a range within 1-255, as \"75\" or \"100-127\"";
    let cases = [
        ("0", "holds 0, which is always done"),
        ("0-5", "holds 0, which is always done"),
        ("9-3", "starts after its end"),
        ("256", shape),
        ("1-256", shape),
        ("+1", shape),
        (" 1", shape),
        ("1-2-3", shape),
        ("-1", shape),
        ("", shape),
        ("1,2", shape),
    ];
    for (codes, expected) in cases {
        assert_eq!(
            problem(json!({"exit": [{"codes": codes, "means": "busy"}]})),
            format!("exit[0].codes: {codes:?} {expected}")
        );
    }
}

#[test]
fn an_exit_rule_that_can_never_match_is_an_error() {
    let rules = |codes: &[&str]| {
        let rules: Vec<_> =
            codes.iter().map(|codes| json!({"codes": codes, "means": "busy"})).collect();
        json!({"exit": rules})
    };
    let expected = "exit[2].codes: never matches; entries before it take all its codes";
    assert_eq!(problem(rules(&["1-5", "6-9", "4-7"])), expected);
    assert!(read(&farm(rules(&["1-255", "1", "9"]))).unwrap_err().contains("has 2 problems"));
    good(rules(&["1-5", "6-9", "4-10"]));
}

#[test]
fn a_probe_knows_the_tool_and_the_compiler_only() {
    let probe = |command: Value| json!({"probes": [{"command": command, "help": "get it"}]});
    let cases = [
        (json!([]), "probes[0].command: must name a program"),
        (
            json!(["{tool}", "-o{index}"]),
            "probes[0].command[1]: {index} belongs to a job; a probe knows {tool} and {compiler} only",
        ),
        (
            json!(["{tool}", "{args...}"]),
            "probes[0].command[1]: {args...} is a list; only command takes one",
        ),
        (
            json!(["a/b"]),
            "probes[0].command[0]: a relative path depends on where the link runs; name it in tool",
        ),
    ];
    for (command, expected) in cases {
        assert_eq!(problem(probe(command)), expected);
    }
    let manifest = good(probe(json!(["{tool}", "{compiler}", "{{x}}"])));
    assert_eq!(manifest.probes[0].argv("t", "{tool}"), ["t", "{tool}", "{x}"]);
    assert!(manifest.probes[0].needs_compiler());
    assert!(!good(probe(json!(["{tool}"]))).probes[0].needs_compiler());
}

#[test]
fn an_error_holds_nothing_that_a_terminal_would_obey() {
    let error = problem(json!({"command": ["{tool}", "{\u{1b}[2J}"]}));
    assert!(error.starts_with("command[1]: unknown placeholder {\\u{1b}[2J}; "), "{error}");
}

/// Texts near to manifests: JSON with the right keys and any values.
fn near_manifests() -> impl Strategy<Value = String> {
    let text = "[{}a-z.\\-0-9/]{0,12}|\\{(tool|args\\.\\.\\.|index)\\}|[1-9]{1,2}-[0-9]{1,3}";
    let texts = prop::collection::vec(text, 0..4);
    (text, text, texts.clone(), texts, 0_u32..3, any::<bool>()).prop_map(
        |(name, tool, command, codes, slots, local)| {
            let exit: Vec<_> =
                codes.iter().map(|codes| json!({"codes": codes, "means": "busy"})).collect();
            let env = json!({"set": {name.clone(): tool.clone()}, "unset": codes});
            farm(json!({
                "name": name, "tool": tool, "command": command, "slots": slots, "exit": exit,
                "env": env, "place": if local { "local" } else { "farm" },
                "probes": [{"command": command, "help": name}],
            }))
            .to_string()
        },
    )
}

proptest! {
    #[test]
    fn any_text_gives_a_manifest_or_an_error(text in any::<String>()) {
        let _ = read_text(&text);
    }

    #[test]
    fn any_manifest_is_taken_or_refused(text in near_manifests()) {
        if let Ok(manifest) = read_text(&text) {
            prop_assert!(!manifest.command.expand(&Job).is_empty());
        }
    }

    #[test]
    fn a_cut_off_manifest_is_an_error(cut in 0_usize..150) {
        let text = farm(json!({})).to_string();
        prop_assert!(read_text(&text[..cut.min(text.len() - 1)]).is_err());
    }
}

#[test]
fn a_bundle_is_all_that_its_command_knows_of_the_job() {
    let command = ["{tool}", "{request}", "{response}"];
    let manifest = good(json!({"shipping": "bundle", "command": command}));
    assert_eq!(manifest.failure(9), Some((Meaning::Unreachable, None)));
    let problem = |command: &[&str]| problem(json!({"shipping": "bundle", "command": command}));
    assert_eq!(problem(&["{tool}", "{request}"]), "command: needs {response}, the bundle's file");
    assert_eq!(
        problem(&["{tool}", "{request}", "{response}", "{args...}"]),
        "command: a bundle holds the job's command and files; leave them out"
    );
}

#[test]
fn bundles_are_for_farms_and_for_their_own_shipping() {
    assert_eq!(
        problem(json!({"command": ["{tool}", "{request}", "{args...}"]})),
        "command: {request} is for the shipping bundle"
    );
    let means = json!([{"codes": "1", "means": "compiler error"}]);
    let command = ["{tool}", "{request}", "{response}"];
    assert_eq!(
        problem(json!({"shipping": "bundle", "command": command, "exit": means})),
        "exit[0].means: the bundle says what the compiler did"
    );
}

#[test]
fn a_tool_that_is_told_of_files_gets_no_more_of_the_environment_than_the_manifest_says() {
    let told = |env: Value| json!({"shipping": "declared", "env": env});
    let manifest = good(told(json!({"only": ["PATH"], "set": {"FILES": "{declared}"}})));
    assert_eq!(manifest.env.only.as_deref(), Some(&["PATH".to_owned()][..]));
    assert_eq!(
        problem(told(json!({"set": {"FILES": "{declared}"}}))),
        "env.only: is needed with the shipping declared; a tool that ships files may ship the environment too"
    );
    assert_eq!(
        problem(told(json!({"only": ["AWS_SECRET_ACCESS_KEY"], "set": {"FILES": "{declared}"}}))),
        "env.only: AWS_SECRET_ACCESS_KEY cannot be among them: its value may be a secret"
    );
    assert_eq!(
        problem(told(json!({"only": []}))),
        "shipping declared: needs {declared} in command or env.set"
    );
}

#[test]
fn what_is_shipped_is_named_and_a_scheduler_knows_the_slots() {
    let icecream = |keys: Value| {
        let mut all = json!({
            "shipping": "bundle", "request": "fifo", "environment": "icecream", "slots": null,
            "scheduler": "icecream", "nice": 1, "env": {"set": {"E": "{environment}"}},
            "command": ["{tool}", "{request}", "{response}"],
        });
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        all
    };
    let manifest = good(icecream(json!({})));
    assert_eq!((manifest.request, manifest.nice, manifest.slots), (Delivery::Fifo, 1, None));
    let problem = |keys| problem(icecream(keys));
    assert_eq!(
        problem(json!({"env": {}})),
        "environment: needs {environment} in command or env.set"
    );
    assert_eq!(
        problem(json!({"environment": null})),
        "command: {environment} needs the key environment"
    );
    assert_eq!(problem(json!({"slots": 4})), "slots: it knows how many there are; leave them out");
    assert_eq!(problem(json!({"nice": 20})), "nice: must be within 1-19");
    assert_eq!(
        problem(json!({"hosts": "distcc", "env": {"set": {"E": "{environment}{host}"}}})),
        "scheduler: either it assigns hosts or the bridge does, by hosts"
    );
}

#[test]
fn only_a_bundle_can_be_a_pipe() {
    assert_eq!(problem(json!({"request": "fifo"})), "request: only the shipping bundle has one");
}

#[test]
fn a_scheduler_knows_its_slots_and_has_a_server() {
    let with = |slots: Value, server: &str| json!({"scheduler": "sccache", "slots": slots, "env": {"set": {"SERVER": server, "SALT": "{identity}"}}});
    assert_eq!(
        good(with(Value::Null, "{server}")).scheduler,
        Some(super::super::Scheduler::Sccache)
    );
    assert_eq!(
        problem(with(json!(3), "{server}")),
        "slots: it knows how many there are; leave them out"
    );
    assert_eq!(problem(with(Value::Null, "x")), "scheduler: needs {server} in command or env.set");
    assert_eq!(
        problem(json!({"env": {"set": {"A": "{server}"}}})),
        "command: {server} needs the key scheduler"
    );
}

/// A batch's manifest that is right, with some keys replaced.
fn batch(keys: Value) -> Value {
    let mut manifest = json!({
        "hand_over": "batch", "batch": {"task_file": "buildset"},
        "command": ["{tool}", "{tasks}", "/Title={linker_output} {link} {private} {seconds}"],
    });
    manifest.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    manifest
}

fn wrap(keys: Value) -> Value {
    let mut manifest = json!({
        "hand_over": "wrap", "place": "local",
        "command": ["{tool}", "-c", "{linker_output} {link}", "--", "{bridge...}"],
    });
    manifest.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    manifest
}

#[test]
fn a_batch_names_its_task_file_and_nothing_of_a_single_job() {
    let whole = json!({
        "task_file": "buildset", "never_here": ["/A"], "inside": "ID", "all_here": "look",
    });
    let batch_of = good(batch(json!({"batch": whole}))).batch.unwrap();
    assert_eq!((batch_of.never_here, batch_of.inside), (vec!["/A".into()], Some("ID".into())));
    let command = |words: Value| batch(json!({"command": words}));
    let cases = [
        (command(json!(["{tool}"])), "command: needs {tasks}, the task file"),
        (
            command(json!(["{tool}", "{tasks}", "{object}"])),
            "command: {object} is not known with batch",
        ),
        (command(json!(["{tool}", "{tasks}", "{args...}"])), "command: {args...} belongs to a job"),
        (batch(json!({"env": {"set": {"A": "{job}"}}})), "command: {job} is not known with batch"),
        (batch(json!({"batch": null})), "batch: is needed: what the tool's task file is"),
        (
            batch(json!({"batch": {"task_file": "buildset", "never_here": [""]}})),
            "batch.never_here[0]: must be an argument",
        ),
        (
            batch(json!({"batch": {"task_file": "buildset", "inside": "A=B"}})),
            "batch.inside: \"A=B\" cannot be the name of a variable",
        ),
        (
            batch(json!({"batch": {"task_file": "buildset", "all_here": ""}})),
            "batch.all_here: must be one line of text",
        ),
        (
            batch(json!({"shipping": "bundle"})),
            "shipping: batch needs direct: the tool sees our files",
        ),
        (
            batch(json!({"tripwire": {"program": "x", "code": 86}})),
            "tripwire: with batch nothing would run into it",
        ),
        (
            batch(json!({"place": "local", "slots": null})),
            "place: a batch is for a farm; write farm",
        ),
        (json!({"batch": {"task_file": "buildset"}}), "batch: only for the hand-over batch"),
        (
            json!({"command": ["{tool}", "{args...}", "{tasks}"]}),
            "command: {tasks} is not known with each",
        ),
    ];
    for (keys, expected) in cases {
        assert_eq!(problem(keys), expected);
    }
}

#[test]
fn a_wrapping_tool_gets_the_bridge_and_proves_nothing() {
    assert_eq!(good(wrap(json!({}))).slots.unwrap().get(), 8);
    let command = |words: Value| wrap(json!({"command": words}));
    let cases = [
        (
            command(json!(["{tool}"])),
            "command: needs the element {bridge...}, what the tool is to run",
        ),
        (
            command(json!(["{tool}", "{bridge...}", "{compiler}"])),
            "command: {compiler} is not known with wrap",
        ),
        (
            wrap(json!({"place": "farm"})),
            "place: nothing shows where a wrapping tool runs jobs; write local",
        ),
        (
            wrap(json!({"slots": null})),
            "slots: are needed: how many jobs may be in flight under the tool",
        ),
        (wrap(json!({"slots": 0})), "slots: must be at least 1"),
        (
            json!({"command": ["{tool}", "{args...}", "{bridge...}"]}),
            "command: {bridge...} is for the hand-over wrap",
        ),
    ];
    for (keys, expected) in cases {
        assert_eq!(problem(keys), expected);
    }
}

#[test]
fn a_tool_may_have_several_names() {
    let tool = good(json!({"tool": ["icx", "IcX"]})).tool.unwrap();
    assert_eq!(tool.candidates().collect::<Vec<_>>(), [Path::new("icx"), Path::new("IcX")]);
    assert_eq!(good(json!({"tool": ["one"]})).tool.unwrap(), Tool::OnPath("one".into()));
    let expected = "tool: of several, each must be a name that is searched on PATH";
    for tool in [json!([]), json!(["a", "./b"]), json!(["", ""])] {
        assert_eq!(problem(json!({"tool": tool})), expected);
    }
}

#[test]
fn a_code_that_a_batch_does_not_list_is_the_tools() {
    let manifest = good(batch(json!({})));
    assert_eq!(manifest.failure(1).unwrap().0, Meaning::Unreachable);
    assert_eq!(manifest.failure(-7).unwrap().0, Meaning::Unreachable);
}
