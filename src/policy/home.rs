//! Options that stay here, by name, each with its reason: people meet these and ask why. An option on no list at
//! all stays here too. It does not know which options may travel.

/// Files made beside the object, and none is declared.
const FILES: &str = "it makes clang write files that the job file does not declare";
/// Files read that no bundle holds.
const READS: &str = "it makes clang read files of this machine";
/// Foreign code.
const CODE: &str = "it loads code into the compiler";
/// Other programs.
const RUNS: &str = "it decides which programs and files of the host clang uses";
/// Other argument lists.
const UNSEEN: &str = "it hands options to a program past this list";
/// Words instead of objects.
const PRINTS: &str = "it prints and need not make an object";
/// No object at all.
const OTHER: &str = "it makes something other than an object of machine code";
/// Names in the object.
const SHOWS: &str =
    "it puts the object's name and folder into the object, which are others on a worker";

/// Names (a `*` at the end: all that begin so) and the reason.
pub const KEPT_HOME: &[(&[&str], &str)] = &[
    (&["@*", "--rsp-quoting*"], "response files are not read: what is inside is not seen here"),
    (&["-load", "-load=*", "-fplugin*", "-fpass-plugin*", "--hipspv-pass-plugin*"], CODE),
    (&["-X*", "-Wa,*", "-Wl,*", "-Wp,*", "-mmlir*", "-plugin*"], UNSEEN),
    (&["-cc1*", "--driver-mode*"], UNSEEN),
    (&["-B*", "--prefix*", "-wrapper*", "--gcc-*", "-ccc-*", "--ld-path*", "-fuse-ld*"], RUNS),
    (&["--sysroot*", "-isysroot*", "-resource-dir*", "-specs*", "--specs*"], RUNS),
    (
        &["-fno-integrated-as", "-no-integrated-as", "-via-file-asm"],
        "another program would assemble",
    ),
    (&["-fintegrated-cc1", "-fno-integrated-cc1"], "the worker decides how clang starts its parts"),
    (&["--config*", "-multi-lib-config*", "--multi-lib-config*"], READS),
    (&["-I*", "-i*", "-F*", "-L*", "-l*", "-T*", "--include*", "--embed-dir*"], READS),
    (&["-working-directory*", "-cxx-isystem*", "-stdlib++-isystem*"], READS),
    (&["-fmodule*", "-fprebuilt-module*", "-vfsoverlay*"], READS),
    (
        &["-fauto-profile*", "-fprofile-remapping-file*", "-fprofile-list*", "-fmemory-profile*"],
        READS,
    ),
    (&["-fprofile-sample-use", "-fprofile-instr-use", "-fprofile-use"], READS),
    (&["-fsanitize*", "-fno-sanitize*", "-fxray*"], "clang looks for lists beside itself"),
    (&["--warning-suppression-mappings*", "-frandomize-layout*"], READS),
    (&["-###", "-v", "-V", "--verbose", "--version", "-version", "--help*", "-help*"], PRINTS),
    (&["-print-*", "--print-*", "-dump*", "--dump*", "-fdriver-only"], PRINTS),
    (&["-time*", "-ftime-report*", "-R*", "-fproc-stat-report*"], PRINTS),
    (&["-save-*", "--save-*", "-fsave-optimization-record*", "-foptimization-record*"], FILES),
    (&["-ftime-trace*", "-fstack-usage*", "-fcallgraph-info*", "-fcodegen-data*"], FILES),
    (&["-M*", "-dependency*", "-serialize-diagnostics*", "--serialize-diagnostics*"], FILES),
    (&["-fcrash-diagnostics*", "-gen-reproducer*", "-fthin-link-bitcode*", "-d*"], FILES),
    (&["--coverage*", "-coverage*", "-ftest-coverage*", "-fprofile-arcs*"], FILES),
    (&["-fprofile-generate*", "-fcs-profile-generate*", "-fprofile-instr-generate*"], SHOWS),
    (&["-gsplit-dwarf*", "-gcodeview*", "-object-file-name*"], SHOWS),
    (&["-frecord-*", "-grecord-*", "-fdebug-compilation-dir*", "-ffile-compilation-dir*"], SHOWS),
    (&["-gz*"], "the bytes would depend on the host's zlib; `-gz=none` may travel"),
    (&["-E", "-S", "-P", "-C", "-CC", "-fsyntax-only", "-emit-*", "-verify-pch"], OTHER),
    (&["-flto*", "-ffat-lto-objects", "-fembed-*", "--analyze*", "--precompile*"], OTHER),
    (&["-rewrite-*", "-extract-api*", "--extract-api*", "-fthinlto-distributor*"], OTHER),
    (&["-o*"], "write `-o` and the name as two arguments"),
    (&["--output*"], "write it as `-o` and the name"),
    (&["-x*"], "a job's input is bitcode: only `-x ir` may travel"),
];

/// The reason by which `arg` stays here.
pub(super) fn reason(arg: &str) -> Option<&'static str> {
    let named = |name: &&str| match name.strip_suffix('*') {
        Some(head) => arg.starts_with(head),
        None => arg == *name,
    };
    KEPT_HOME.iter().find(|(names, _)| names.iter().any(named)).map(|(_, reason)| *reason)
}
