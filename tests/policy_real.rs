//! What the real clang says to the options that the policy lets travel: that it knows them, and that they make no
//! file, print nothing and do not show in the object where it was made.

mod kit;

use std::collections::{BTreeMap, BTreeSet};

use dtlto_bridge::policy::{DRIVER, Form, MLLVM, SPLIT_NUMBERS, SPLIT_SWITCHES, Value};
use kit::{Folder, Run, clang, skip_without, tool};

/// Each driver option is for at least one of them.
const TARGETS: [&str; 4] =
    ["x86_64-pc-linux-gnu", "aarch64-linux-gnu", "armv7a-linux-gnueabihf", "riscv64-linux-gnu"];

/// A value for each name that takes a word of its own.
const WORDS: [(&str, &str); 17] = [
    ("-march=", "x86-64-v3"),
    ("-mcpu=", "cortex-a53"),
    ("-mtune=", "generic"),
    ("-mabi=", "lp64"),
    ("-mfloat-abi=", "soft"),
    ("-mfpu=", "neon"),
    ("-mfpmath=", "sse"),
    ("-mtls-dialect=", "gnu2"),
    ("-mbranch-protection=", "none"),
    ("-mharden-sls=", "none"),
    ("-mfunction-return=", "keep"),
    ("-mstack-protector-guard=", "global"),
    ("-fveclib=", "none"),
    ("-fzero-call-used-regs=", "skip"),
    ("-ftrivial-auto-var-init=", "zero"),
    ("-fdenormal-fp-math=", "ieee"),
    ("-ffp-exception-behavior=", "ignore"),
];

/// All spellings of the list, each as the arguments it is written with.
fn spellings() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (form, names) in DRIVER {
        for pattern in *names {
            let both = [pattern.replace("[no-]", ""), pattern.replace("[no-]", "no-")];
            for name in both.into_iter().collect::<BTreeSet<_>>() {
                match form {
                    Form::Flag => all.push(vec![name]),
                    Form::Joined(value) => {
                        all.extend(
                            samples(&name, *value).map(|text| vec![format!("{name}{text}")]),
                        );
                    }
                    Form::Separate(value) => {
                        all.extend(samples(&name, *value).map(|text| vec![name.clone(), text]));
                    }
                }
            }
        }
    }
    all
}

fn samples(name: &str, value: Value) -> impl Iterator<Item = String> + use<> {
    let word = || WORDS.iter().find(|(of, _)| *of == name).map_or("c++17", |(_, word)| *word);
    let texts: Vec<&str> = match value {
        Value::Number if name.contains("-vector-") => vec!["128"],
        Value::Number => vec!["16"],
        Value::OneOf(words) => words.to_vec(),
        Value::Word | Value::Cpu => vec![word()],
        Value::Warning => vec!["all", "no-unused"],
        Value::Text => vec!["a=b"],
        Value::Triple => vec![TARGETS[0]],
        Value::Input => vec!["prof"],
        Value::Decimal | Value::Switch => unreachable!("only behind -mllvm"),
    };
    texts.into_iter().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Two modules, a shard of the first, and a profile.
fn job() -> Folder {
    let folder = Folder::new();
    folder.write(
        "m.c",
        "double sin(double); int g(int); __asm__(\".globl x\\nx: .long 7\");\n\
        int main(int c, char **v) { double s = 0; for (int i = 0; i < c; i++) s += sin(i); \
        return g(c) + (int)s; }\n",
    );
    folder.write(
        "n.c",
        "static int t[9]; int g(int c) { for (int i = 0; i < 9; i++) \
        t[i] = t[i] * c + i; return t[c % 9]; }\n",
    );
    folder.write("prof", "main:10:1\n 1: 1\n");
    folder.mkdir("far/away");
    for name in ["m", "n"] {
        let source = format!("{name}.c");
        let args = ["-O2", "-g", "-fdebug-compilation-dir=.", "-flto=thin", "-c", &source];
        clang().args(args).cwd(folder.path("")).go().ok();
    }
    let args = ["--thinlto-index-only", "m.o", "n.o", "-e", "main", "-o", "app"];
    let args = args.into_iter().chain(["--unresolved-symbols=ignore-all"]);
    Run::new(tool("ld.lld-22")).args(args).cwd(folder.path("")).go().ok();
    folder
}

/// The job with `more` options; `object` is where it goes.
fn compile(folder: &Folder, more: &[String], object: &str) -> Run {
    let target = format!("--target={}", TARGETS[0]);
    let own = ["-O2", "-Wno-unused-command-line-argument", "-c", "m.o", "-o", object];
    let index = "-fthinlto-index=m.o.thinlto.bc";
    clang().arg(target).args(more).args(own).arg(index).cwd(folder.path(""))
}

/// Runs the job in two places under two names: both must be silent, make the object alone, and the same one.
#[track_caller]
fn makes_the_object_and_nothing_else(more: &[String]) {
    let objects = ["out.o", "far/away/q.o"].map(|object| {
        let folder = job();
        let before: BTreeSet<_> = folder.list("").into_iter().collect();
        let output = compile(&folder, more, object).go().ok();
        // Neighbours in this list may override each other, and clang says so.
        let quiet = output.stderr.lines().all(|line| line.contains("warning"));
        assert!(quiet && output.stdout.is_empty(), "{more:?}: {output}");
        let after: BTreeSet<_> = folder.list("").into_iter().collect();
        let new: Vec<_> = after.difference(&before).cloned().collect();
        assert_eq!(new, [object], "{more:?}");
        folder.read(object)
    });
    assert!(objects[0] == objects[1], "the object shows where it was made: {more:?}");
}

/// What the driver has against `options` for `target`.
fn complaints(target: &str, options: &[String]) -> Vec<String> {
    let args = ["-c", "-x", "ir", "/dev/null", "-fthinlto-index=x", "-o", "q.o"];
    let folder = Folder::new();
    folder.write("prof", "");
    let output = clang().arg("-###").arg(format!("--target={target}")).args(options).args(args);
    let output = output.cwd(folder.path(""));
    let bad = |line: &&str| {
        (line.contains("error:") || line.contains("warning:"))
            && !line.contains("argument unused")
            && !line.contains("Error in reading profile")
    };
    output.go().stderr.lines().filter(bad).map(str::to_owned).collect()
}

/// The spellings that the first target takes, and the others.
fn for_first_target() -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for few in spellings().chunks(16) {
        let whole = complaints(TARGETS[0], &few.concat()).is_empty();
        let (good, bad): (Vec<_>, Vec<_>) = few
            .iter()
            .cloned()
            .partition(|options| whole || complaints(TARGETS[0], options).is_empty());
        first.extend(good);
        others.extend(bad);
    }
    (first, others)
}

#[test]
fn clang_knows_every_allowed_option() {
    skip_without!("clang-22", "ld.lld-22");
    let (first, others) = for_first_target();
    assert!(first.len() > 400, "{}", first.len());
    for options in others {
        let all = TARGETS.map(|target| complaints(target, &options));
        assert!(all.iter().any(Vec::is_empty), "{options:?}: {all:?}");
    }
}

#[test]
fn no_allowed_option_makes_files_prints_or_shows_where_the_object_was_made() {
    skip_without!("clang-22", "ld.lld-22");
    let (mut options, _) = for_first_target();
    // These make code for another target than the modules of this test.
    options.retain(|options| !["-m16", "-m32", "-mx32"].contains(&options[0].as_str()));
    // Profiles need content: the tests of whole links have some.
    options.retain(|options| !options[0].ends_with("=prof"));
    let (no, yes): (Vec<_>, Vec<_>) =
        options.into_iter().partition(|options| options[0].contains("no-"));
    for few in no.chunks(64).chain(yes.chunks(64)) {
        makes_the_object_and_nothing_else(&few.concat());
    }
}

/// What LLVM says of its options: the kinds of value, `""` for none.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let folder = job();
    let more = ["-mllvm", "-help-hidden"].map(str::to_owned);
    let text = compile(&folder, &more, "q.o").go().stdout;
    let mut known = BTreeMap::<_, BTreeSet<_>>::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("  -") else { continue };
        let word = rest.trim_start_matches('-').split("  ").next().unwrap_or_default();
        let (name, kind) = word.split_once("=<").unwrap_or((word, ""));
        known.entry(name.to_owned()).or_default().insert(kind.trim_end_matches('>').to_owned());
    }
    known
}

#[test]
fn llvm_has_every_allowed_option_with_that_kind_of_value() {
    skip_without!("clang-22", "ld.lld-22");
    let known = known();
    assert!(known.len() > 2000, "{}", known.len());
    for (kind, names) in MLLVM {
        let wanted: &[&str] = match kind {
            Value::Switch => &[""],
            Value::Number => &["int", "uint", "ulong", "N"],
            Value::Decimal => &["x"],
            _ => &["value"],
        };
        let unreleased = |name: &&&str| {
            SPLIT_SWITCHES.contains(name)
                || SPLIT_NUMBERS.contains(name)
                || name.contains("-split-module-")
        };
        for name in names.iter().filter(|name| !unreleased(name)) {
            let kinds = known.get(*name).unwrap_or_else(|| panic!("LLVM has no -{name}"));
            assert!(wanted.iter().any(|kind| kinds.contains(*kind)), "-{name}: {kinds:?}");
        }
    }
}

#[test]
fn no_allowed_switch_of_llvm_makes_files_or_prints() {
    skip_without!("clang-22", "ld.lld-22");
    let switches: Vec<_> = MLLVM
        .iter()
        .filter(|(kind, names)| matches!(kind, Value::Switch) && names != &SPLIT_SWITCHES)
        .flat_map(|(_, names)| *names)
        .collect();
    for value in ["true", "false"] {
        let options: Vec<_> = switches
            .iter()
            .flat_map(|name| ["-mllvm".to_owned(), format!("-{name}={value}")])
            .collect();
        makes_the_object_and_nothing_else(&options);
    }
}

#[test]
fn clang_variables_that_edit_arguments_change_the_object() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = job();
    let made = |name: &str, value: &str| {
        compile(&folder, &[], "out.o").env(name, value).go().ok();
        folder.read("out.o")
    };
    let plain = made("COMPILER_PATH", "/nowhere");
    assert!(plain != made("CCC_OVERRIDE_OPTIONS", "#+-O0"));
    assert!(plain == made("GCC_EXEC_PREFIX", "/nowhere/"));
}
