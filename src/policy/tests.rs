//! What may travel and what may not, case by case. No compiler is asked here: `tests/policy_real.rs` does.

use super::form::after;
use super::*;
use crate::jobfile::JobFile;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;

fn files() -> Named<'static> {
    Named {
        primary: "m0000",
        index: "index",
        object: "out.o",
        other_inputs: vec!["other/0"],
        other_outputs: vec!["out.dwo"],
    }
}

const JOB: [&str; 5] = ["-c", "m0000", "-fthinlto-index=index", "-o", "out.o"];

/// The verdict on a job with `more` options, which are written with blanks between them.
fn with(more: &str) -> Result<Weight, Refusal> {
    let args: Vec<_> = more.split(' ').filter(|arg| !arg.is_empty()).chain(JOB).collect();
    check(&args, &files())
}

#[test]
fn these_options_may_travel() {
    for options in [
        "--target=x86_64-pc-linux-gnu -O2 -faddrsig -ffunction-sections -fdata-sections -fpic",
        "--target=x86_64-pc-windows-msvc19.33.0",
        "--target=aarch64-linux-gnu",
        "-target riscv64-unknown-linux-gnu",
        "-Wno-unused-command-line-argument",
        "-Wall -Wextra -Werror=format-security -Wframe-larger-than=4096 -w",
        "-O0 -O1 -O3 -Os -Oz",
        "-march=x86-64-v3 -mtune=znver4",
        "-march=armv8.2-a+crypto+fp16",
        "-mcpu=neoverse-n1",
        "-mabi=lp64d",
        "-mavx2 -mno-avx512f -msse4.2 -mfma",
        "-fno-function-sections -fno-unroll-loops -fno-vectorize -fno-slp-vectorize",
        "-fPIC -fpie -fPIE -fno-pic",
        "-ffast-math -fno-math-errno -ffp-contract=off",
        "-fno-exceptions -fno-asynchronous-unwind-tables",
        "-fstack-protector-strong",
        "-fvisibility=hidden -fno-semantic-interposition",
        "-g -g1 -gline-tables-only -gdwarf-5 -gdwarf-4",
        "-gz=none",
        "-floop-interchange",
        "-fsplit-machine-functions -funique-section-names",
        "-fprofile-sample-use=other/0",
        "-fprofile-use=other/0",
        "-fprofile-instr-use=other/0",
        "-DX -DXX=1 -D NAME=/usr/share -UX",
        "-DX=-o",
        "-D -o",
        "--no-default-config -no-canonical-prefixes -Qunused-arguments",
        "-x ir",
        "-xir",
        "-ffile-prefix-map=/build=.",
        "-mno-incremental-linker-compatible",
        "-mcmodel=large",
        "-mllvm -no-pgo-warn-mismatch",
        "-mllvm -no-pgo-warn-mismatch=false",
        "-mllvm --inline-threshold=500",
        "-mllvm=-inline-threshold=-1",
        "-mllvm -import-instr-limit=30 -mllvm -import-hot-multiplier=12.5",
        "-mllvm -unroll-threshold=0",
        "-mllvm -enable-machine-outliner=never",
        "-gsplit-dwarf",
        "-gsplit-dwarf=split",
    ] {
        assert_eq!(with(options).err(), None, "{options}");
    }
}

#[test]
fn these_options_stay_here_and_are_named() {
    for (options, named, reason) in [
        ("@args.rsp", "@args.rsp", "response files"),
        ("-Xclang -load", "-Xclang", "past this list"),
        ("-Xassembler --foo", "-Xassembler", "past this list"),
        ("-Xlinker x", "-Xlinker", "past this list"),
        ("-Wa,-I/etc", "-Wa,-I/etc", "past this list"),
        ("-Wl,-x", "-Wl,-x", "past this list"),
        ("-Wp,-MD,x", "-Wp,-MD,x", "past this list"),
        ("-cc1", "-cc1", "past this list"),
        ("--driver-mode=cl", "--driver-mode=cl", "past this list"),
        ("-load x.so", "-load", "loads code"),
        ("-fplugin=x.so", "-fplugin=x.so", "loads code"),
        ("-fplugin-arg-x-y", "-fplugin-arg-x-y", "loads code"),
        ("-fpass-plugin=x.so", "-fpass-plugin=x.so", "loads code"),
        ("-B/tmp", "-B/tmp", "programs"),
        ("-B /tmp", "-B", "programs"),
        ("--gcc-toolchain=/x", "--gcc-toolchain=/x", "programs"),
        ("--sysroot=/", "--sysroot=/", "programs"),
        ("--ld-path=/tmp/x", "--ld-path=/tmp/x", "programs"),
        ("-wrapper x", "-wrapper", "programs"),
        ("-resource-dir /", "-resource-dir", "programs"),
        ("-specs=x", "-specs=x", "programs"),
        ("--config=x.cfg", "--config=x.cfg", "files of this machine"),
        ("--config x.cfg", "--config", "files of this machine"),
        ("-I/usr/include", "-I/usr/include", "files of this machine"),
        ("-isystem /x", "-isystem", "files of this machine"),
        ("-include x.h", "-include", "files of this machine"),
        ("-working-directory=/", "-working-directory=/", "files of this machine"),
        ("-fprofile-sample-use=/etc/passwd", "-fprofile-sample-use=/etc/passwd", "declares"),
        ("-fprofile-use=m0000", "-fprofile-use=m0000", "declares"),
        ("-fprofile-use", "-fprofile-use", "files of this machine"),
        ("-fprofile-remapping-file=x", "-fprofile-remapping-file=x", "files of this machine"),
        ("-fsanitize-ignorelist=x", "-fsanitize-ignorelist=x", "lists"),
        ("-###", "-###", "prints"),
        ("-v", "-v", "prints"),
        ("--version", "--version", "prints"),
        ("-print-search-dirs", "-print-search-dirs", "prints"),
        ("-Rpass=inline", "-Rpass=inline", "prints"),
        ("-mcpu=help", "-mcpu=help", "prints"),
        ("-save-temps", "-save-temps", "write files"),
        ("--save-temps=obj", "--save-temps=obj", "write files"),
        ("-ftime-trace=x", "-ftime-trace=x", "write files"),
        ("-foptimization-record-file=x", "-foptimization-record-file=x", "write files"),
        ("-fsave-optimization-record", "-fsave-optimization-record", "write files"),
        ("-MD", "-MD", "write files"),
        ("-MF x", "-MF", "write files"),
        ("-MJx", "-MJx", "write files"),
        ("-fcrash-diagnostics-dir=/tmp", "-fcrash-diagnostics-dir=/tmp", "write files"),
        ("-fstack-usage", "-fstack-usage", "write files"),
        ("--coverage", "--coverage", "write files"),
        ("-fno-integrated-as", "-fno-integrated-as", "another program"),
        ("-fno-integrated-cc1", "-fno-integrated-cc1", "worker decides"),
        ("-gsplit-dwarf=single", "-gsplit-dwarf=single", "object's name"),
        ("-gcodeview", "-gcodeview", "object's name"),
        ("-gz", "-gz", "zlib"),
        ("-gz=zstd", "-gz=zstd", "zlib"),
        ("-E", "-E", "other than an object"),
        ("-S", "-S", "other than an object"),
        ("-emit-llvm", "-emit-llvm", "other than an object"),
        ("-fsyntax-only", "-fsyntax-only", "other than an object"),
        ("-flto=thin", "-flto=thin", "other than an object"),
        ("-x c", "-x", "bitcode"),
        ("-xassembler", "-xassembler", "bitcode"),
        ("-march=native", "-march=native", "depends on the host"),
        ("-mcpu=native+crypto", "-mcpu=native+crypto", "depends on the host"),
        ("-mtune=native", "-mtune=native", "depends on the host"),
        ("-march=../x", "-march=../x", "processor's name"),
        ("-mabi=/x", "-mabi=/x", "plain word"),
        ("--target=nvptx64-nvidia-cuda", "--target=nvptx64-nvidia-cuda", "a target of"),
        ("--target=x86_64/../x-linux", "--target=x86_64/../x-linux", "a target of"),
        ("-ffp-contract=maybe", "-ffp-contract=maybe", "fast or on or off"),
        ("-mcmodel=huge", "-mcmodel=huge", "tiny or small"),
        ("-fbasic-block-sections=list=x", "-fbasic-block-sections=list=x", "all or none"),
        ("-falign-functions=x", "-falign-functions=x", "whole number"),
        ("-fno-such-option", "-fno-such-option", "not on the list"),
        ("--", "--", "not on the list"),
        ("-", "-", "standard input"),
        ("m0001", "m0001", "not the job's module"),
        ("other/0", "other/0", "not the job's module"),
        ("m0000", "m0000", "twice"),
        ("-o out.o", "-o", "twice"),
        ("-o other.o", "-o other.o", "not the job's object"),
        ("-oout.o", "-oout.o", "two arguments"),
        ("--output=out.o", "--output=out.o", "write it as"),
        ("-fthinlto-index=index", "-fthinlto-index=index", "twice"),
        ("-fthinlto-index=/etc/passwd", "-fthinlto-index=/etc/passwd", "not the job's index"),
        ("-fthinlto-index=", "-fthinlto-index=", "not the job's index"),
        ("-mllvm -load=x.so", "-mllvm -load=x.so", "not on the list"),
        ("-mllvm -print-after-all", "-mllvm -print-after-all", "not on the list"),
        ("-mllvm -stats", "-mllvm -stats", "not on the list"),
        ("-mllvm -time-passes", "-mllvm -time-passes", "not on the list"),
        ("-mllvm -info-output-file=x", "-mllvm -info-output-file=x", "not on the list"),
        ("-mllvm=-cgscc-inline-replay=x", "-mllvm -cgscc-inline-replay=x", "not on the list"),
        ("-mllvm -inline-threshold", "-mllvm -inline-threshold", "needs `=`"),
        ("-mllvm -inline-threshold=x", "-mllvm -inline-threshold=x", "whole number"),
        ("-mllvm -inline-threshold=1e9", "-mllvm -inline-threshold=1e9", "whole number"),
        ("-mllvm -import-hot-multiplier=1.", "-mllvm -import-hot-multiplier=1.", "a number"),
        ("-mllvm -vectorize-slp=maybe", "-mllvm -vectorize-slp=maybe", "true or false"),
        ("-mllvm inline-threshold=1", "-mllvm inline-threshold=1", "not on the list"),
        ("-mllvm 5", "-mllvm 5", "not on the list"),
        ("-mllvm=", "-mllvm ", "not on the list"),
        ("-mllvm -", "-mllvm", "standard input"),
    ] {
        let refusal = with(options).expect_err(options);
        assert_eq!(refusal.option, named, "{options}: {refusal}");
        assert!(refusal.reason.contains(reason), "{options}: {refusal}");
    }
}

#[test]
fn a_job_lacking_a_part_is_refused() {
    for (at, reason) in [(0..1, "-c is"), (1..2, "module"), (2..3, "-fthinlto-index"), (3..5, "-o")]
    {
        let mut args = JOB.to_vec();
        args.drain(at);
        let refusal = check(&args, &files()).unwrap_err();
        assert!(refusal.reason.starts_with(reason) || refusal.reason.contains(reason), "{refusal}");
        assert!(refusal.reason.contains("missing"), "{refusal}");
    }
    assert!(check(&[] as &[&str], &files()).is_err());
}

#[test]
fn a_dash_c_that_is_the_value_of_another_option_does_not_count() {
    let args: Vec<_> = ["-D"].into_iter().chain(JOB).collect();
    assert!(check(&args, &files()).unwrap_err().reason.contains("-c is missing"));
}

#[test]
fn an_option_that_lacks_its_value_is_refused_at_the_end() {
    for option in ["-o", "-mllvm", "-target", "-x", "-D"] {
        let args: Vec<_> = JOB.into_iter().chain([option]).collect();
        let refusal = check(&args, &files()).unwrap_err();
        assert_eq!((refusal.option.as_str(), refusal.reason.contains("value")), (option, true));
    }
}

#[test]
fn empty_arguments_and_nul_are_refused() {
    for (bad, reason) in [("", "empty"), ("-DX\0", "NUL"), ("-march=a\0b", "NUL")] {
        for args in [vec![bad], vec!["-D", bad]] {
            let args: Vec<_> = args.into_iter().chain(JOB).collect();
            let refusal = check(&args, &files()).unwrap_err();
            assert!(refusal.reason.contains(reason), "{refusal}");
        }
    }
}

#[test]
fn arguments_of_absurd_length_or_number_are_refused() {
    let long = format!("-DX={}", "x".repeat(MAX_BYTES));
    let many = vec!["-c"; MAX_ARGS];
    for more in [vec![long.as_str()], many] {
        let args: Vec<_> = more.into_iter().chain(JOB).collect();
        assert!(check(&args, &files()).unwrap_err().reason.contains("more arguments"));
    }
}

#[test]
fn a_refusal_fits_on_a_line_and_hides_control_characters() {
    let bad = format!("-f\n\x1b[2J{}", "x".repeat(1000));
    let shown = check(&[bad], &files()).unwrap_err().to_string();
    assert!(shown.len() < 300 && !shown.contains(['\n', '\x1b']), "{shown}");
}

#[test]
fn real_names_with_blanks_and_parentheses_are_what_they_are() {
    let files = Named {
        primary: "/b/lib.a(x y.o at 8).2.27D2.o",
        index: "sp ace/a.thinlto.bc",
        object: "sp ace/a.native.o",
        other_inputs: vec!["../w/prof.txt"],
        other_outputs: vec![],
    };
    let args = [
        "-c",
        "-fprofile-sample-use=../w/prof.txt",
        files.primary,
        "-fthinlto-index=sp ace/a.thinlto.bc",
        "-o",
        files.object,
    ];
    assert!(check(&args, &files).is_ok());
}

#[test]
fn a_dwo_file_must_be_declared_and_is_named_after_the_object() {
    for (object, dwo) in [("out.o", "out.dwo"), ("a.b/out", "a.b/out.dwo"), ("x.y.o", "x.y.dwo")] {
        let mut files = Named { object, other_outputs: vec![dwo], ..files() };
        let args = ["-c", "-gsplit-dwarf", "m0000", "-fthinlto-index=index", "-o", object];
        assert!(check(&args, &files).unwrap().shows_names(), "{object}");
        files.other_outputs = vec!["other.dwo"];
        assert_eq!(check(&args, &files).unwrap_err().option, "-gsplit-dwarf");
    }
}

#[test]
fn split_codegen_takes_several_slots_and_ld_lld() {
    for (options, slots, merged) in [
        ("", 1, false),
        ("-mllvm -thinlto-split=true -mllvm -thinlto-split-partitions=4", 4, true),
        ("-mllvm -thinlto-split -mllvm -thinlto-split-partitions=4000000000", 16, true),
        ("-mllvm -lto-split-by-callgraph=true -mllvm -lto-split-partitions=3", 3, true),
        ("-mllvm -lto-split-by-callgraph=1", 2, true),
        ("-mllvm -thinlto-split=true -mllvm -thinlto-split-partitions=-1", 2, true),
        ("-mllvm -thinlto-split=false -mllvm -thinlto-split-partitions=4", 1, false),
        ("-mllvm -thinlto-split-partitions=4", 1, false),
    ] {
        let weight = with(options).unwrap();
        assert_eq!((weight.slots(), weight.needs_ld_lld()), (slots, merged), "{options}");
    }
}

#[test]
fn msvc_objects_may_show_their_names() {
    for (target, shows) in [
        ("x86_64-pc-windows-msvc19.33.0", true),
        ("x86_64-w64-windows-gnu", false),
        ("x86_64-pc-linux-gnu", false),
    ] {
        assert_eq!(with(&format!("--target={target}")).unwrap().shows_names(), shows, "{target}");
    }
}

#[test]
fn every_option_of_the_recorded_job_files_may_travel() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jobfiles");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut jobs = 0;
    for path in names.filter(|path| path.extension().is_some_and(|name| name == "json")) {
        for job in JobFile::read(&path).unwrap().jobs {
            let weight = check(&job.args, &Named::from(&job));
            assert_eq!(weight.map(|weight| weight.slots()), Ok(1), "{}", path.display());
            jobs += 1;
        }
    }
    assert!(jobs > 90, "{jobs} jobs");
}

#[test]
fn no_name_is_on_a_list_twice() {
    let mut seen = BTreeSet::new();
    for (form, names) in DRIVER {
        for name in *names {
            assert!(
                seen.insert((format!("{form:?}").split('(').next().unwrap().len(), *name)),
                "{name}"
            );
        }
    }
    let names: Vec<_> = MLLVM.iter().flat_map(|(_, names)| *names).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

#[test]
fn a_name_with_a_bracket_stands_for_two() {
    assert_eq!(after("-f[no-]pic", "-fpic"), Some(""));
    assert_eq!(after("-f[no-]pic", "-fno-picx"), Some("x"));
    assert_eq!(after("-f[no-]pic", "-fno-no-pic"), None);
    assert_eq!(after("-W", "-Wall"), Some("all"));
}

#[test]
fn variables_that_edit_clangs_arguments_keep_all_jobs_here() {
    let reason = environment_keeps_home(|name| name == "CCC_OVERRIDE_OPTIONS").unwrap();
    assert!(reason.starts_with("CCC_OVERRIDE_OPTIONS is set"), "{reason}");
    assert_eq!(environment_keeps_home(|name| name == "COMPILER_PATH"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_arguments_make_it_panic(args in prop::collection::vec(".{0,40}", 0..20)) {
        let _ = check(&args, &files()).map_err(|refusal| refusal.to_string());
    }

    #[test]
    fn whatever_follows_an_allowed_name_holds_no_path(
        name in prop::sample::select(DRIVER.iter().flat_map(|(_, names)| *names).copied().collect::<Vec<_>>()),
        head in "[a-z0-9+.-]{0,4}",
        tail in "[a-z./]{0,8}",
    ) {
        let name = name.replace("[no-]", "");
        let opaque = ["-D", "-U", "-ffile-prefix-map=", "-fdebug-prefix-map=", "-fmacro-prefix-map="];
        prop_assume!(!opaque.contains(&name.as_str()));
        let arg = format!("{name}{head}/{tail}");
        let args: Vec<_> = [arg.as_str()].into_iter().chain(JOB).collect();
        prop_assert!(check(&args, &files()).is_err(), "{}", arg);
    }
}
