//! The first allow-list: options of the clang driver that may travel, by name and form of value. What is on no
//! list stays here. It does not know what a job is made of, nor why other options are refused (`home.rs`).
//! An option gets in if it decides about code alone: it opens no file but one of the bundle, makes none, prints
//! nothing, and the object's bytes do not show where it was made. `tests/policy_real.rs` asks clang.

use super::form::Form::{Flag, Joined, Separate};
use super::form::Rule;
use super::form::Value::{Cpu, Input, Number, OneOf, Text, Triple, Warning, Word};

/// Each rule is a form and the names it holds for; `[no-]` stands for two names.
pub const DRIVER: &[Rule] = &[
    // What LLD 21 to 23 writes, with `-o`, `-fthinlto-index=` and `-mllvm`, which `check` itself knows.
    (Flag, &["-c", "-f[no-]addrsig", "-f[no-]function-sections", "-f[no-]data-sections"]),
    (Flag, &["-f[no-]loop-interchange", "-f[no-]pic", "-O0", "-O1", "-O2", "-O3", "-Os", "-Oz"]),
    (Joined(Triple), &["--target="]),
    (Joined(Input), &["-fprofile-sample-use="]),
    // How the compiler is called.
    (Flag, &["--no-default-config", "-no-canonical-prefixes", "-Qunused-arguments", "-pipe"]),
    (Flag, &["-fintegrated-as", "-fno-temp-file", "-fno-crash-diagnostics", "-fno-lto"]),
    (Separate(Triple), &["-target"]),
    (Separate(OneOf(&["ir"])), &["-x"]),
    (Joined(OneOf(&["ir"])), &["-x"]),
    // The processor.
    (Joined(Cpu), &["-march=", "-mcpu=", "-mtune="]),
    (Joined(Word), &["-mabi=", "-mfloat-abi=", "-mfpu=", "-mfpmath=", "-mtls-dialect="]),
    (
        Joined(OneOf(&["tiny", "small", "kernel", "medium", "large", "medlow", "medany"])),
        &["-mcmodel="],
    ),
    (Joined(Number), &["-mprefer-vector-width=", "-mstack-alignment=", "-mstack-probe-size="]),
    (Joined(Number), &["-mregparm=", "-msve-vector-bits=", "-mrvv-vector-bits="]),
    (Joined(Word), &["-mbranch-protection=", "-mharden-sls=", "-mfunction-return="]),
    (Joined(Word), &["-mstack-protector-guard="]),
    (Flag, &["-m16", "-m32", "-m64", "-mx32", "-marm", "-m[no-]thumb", "-m[no-]red-zone"]),
    (Flag, &["-m[no-]soft-float", "-mhard-float", "-m[no-]implicit-float", "-mgeneral-regs-only"]),
    (Flag, &["-m[no-]stackrealign", "-m[no-]stack-arg-probe", "-m[no-]omit-leaf-frame-pointer"]),
    (Flag, &["-m[no-]relax", "-m[no-]relax-all", "-m[no-]incremental-linker-compatible"]),
    (Flag, &["-m[no-]retpoline", "-m[no-]retpoline-external-thunk"]),
    (Flag, &["-m[no-]speculative-load-hardening"]),
    (Flag, &["-m[no-]tls-direct-seg-refs", "-m[no-]daz-ftz", "-mbranches-within-32B-boundaries"]),
    (Flag, &["-mindirect-branch-cs-prefix", "-m[no-]skip-rax-setup", "-m[no-]global-merge"]),
    (Flag, &["-m[no-]strict-align", "-m[no-]unaligned-access", "-m[no-]outline"]),
    (Flag, &["-m[no-]outline-atomics", "-m[no-]long-calls", "-m[no-]execute-only", "-mno-movt"]),
    (Flag, &["-m[no-]fix-cortex-a53-835769", "-m[no-]restrict-it", "-mcrc", "-mcmse"]),
    (Flag, &["-m[no-]save-restore", "-mno-bti-at-return-twice", "-mno-neg-immediates"]),
    (Flag, &["-mlong-double-64", "-mlong-double-80", "-mlong-double-128", "-malign-double"]),
    (Flag, X86_FEATURES),
    // Sections, symbols and relocation.
    (Flag, &["-f[no-]unique-section-names", "-f[no-]unique-basic-block-section-names"]),
    (Flag, &["-f[no-]split-machine-functions", "-f[no-]basic-block-address-map"]),
    (Flag, &["-f[no-]separate-named-sections", "-f[no-]partition-static-data-sections"]),
    (Joined(OneOf(&["all", "none"])), &["-fbasic-block-sections="]),
    (Flag, &["-f[no-]PIC", "-f[no-]pie", "-f[no-]PIE", "-f[no-]plt", "-f[no-]common"]),
    (Flag, &["-f[no-]semantic-interposition", "-f[no-]direct-access-external-data"]),
    (Flag, &["-f[no-]ident", "-f[no-]zero-initialized-in-bss", "-f[no-]emulated-tls"]),
    (Flag, &["-f[no-]use-init-array", "-f[no-]use-cxa-atexit", "-f[no-]keep-static-consts"]),
    (Flag, &["-f[no-]merge-all-constants", "-f[no-]visibility-inlines-hidden"]),
    (Joined(OneOf(&["default", "hidden", "internal", "protected"])), &["-fvisibility="]),
    (
        Joined(OneOf(&["global-dynamic", "local-dynamic", "initial-exec", "local-exec"])),
        &["-ftls-model="],
    ),
    // Optimisations.
    (Flag, &["-Og", "-f[no-]unroll-loops", "-f[no-]vectorize", "-f[no-]slp-vectorize"]),
    (Flag, &["-f[no-]tree-vectorize", "-f[no-]tree-slp-vectorize", "-f[no-]inline"]),
    (Flag, &["-f[no-]inline-functions", "-finline-hint-functions", "-f[no-]jump-tables"]),
    (Flag, &["-f[no-]omit-frame-pointer", "-f[no-]optimize-sibling-calls", "-f[no-]builtin"]),
    (Flag, &["-f[no-]strict-aliasing", "-f[no-]strict-overflow", "-f[no-]strict-enums"]),
    (Flag, &["-f[no-]strict-vtable-pointers", "-f[no-]strict-return", "-f[no-]wrapv", "-ftrapv"]),
    (Flag, &["-f[no-]delete-null-pointer-checks", "-f[no-]assumptions", "-f[no-]finite-loops"]),
    (Flag, &["-ffreestanding", "-fhosted", "-f[no-]split-lto-unit", "-fno-whole-program-vtables"]),
    (Flag, &["-f[no-]pseudo-probe-for-profiling", "-f[no-]debug-info-for-profiling"]),
    (Flag, &["-f[no-]profile-sample-accurate", "-f[no-]sample-profile-use-profi"]),
    (Flag, &["-f[no-]global-isel"]),
    (Joined(Number), &["-falign-functions=", "-falign-loops=", "-finline-max-stacksize="]),
    (Joined(Word), &["-fveclib=", "-fzero-call-used-regs=", "-ftrivial-auto-var-init="]),
    (Joined(Input), &["-fprofile-use=", "-fprofile-instr-use="]),
    // Arithmetic.
    (Flag, &["-f[no-]fast-math", "-f[no-]math-errno", "-f[no-]associative-math"]),
    (Flag, &["-f[no-]reciprocal-math", "-f[no-]signed-zeros", "-f[no-]trapping-math"]),
    (Flag, &["-f[no-]finite-math-only", "-f[no-]honor-nans", "-f[no-]honor-infinities"]),
    (Flag, &["-f[no-]rounding-math", "-f[no-]unsafe-math-optimizations", "-f[no-]approx-func"]),
    (Flag, &["-f[no-]protect-parens", "-f[no-]strict-float-cast-overflow"]),
    (Joined(OneOf(&["fast", "on", "off", "fast-honor-pragmas"])), &["-ffp-contract="]),
    (Joined(OneOf(&["fast", "precise", "strict", "aggressive"])), &["-ffp-model="]),
    (Joined(Word), &["-fdenormal-fp-math=", "-ffp-exception-behavior="]),
    // Exceptions and hardening.
    (Flag, &["-f[no-]exceptions", "-f[no-]cxx-exceptions", "-f[no-]unwind-tables"]),
    (Flag, &["-f[no-]asynchronous-unwind-tables", "-f[no-]dwarf2-cfi-asm"]),
    (Flag, &["-f[no-]force-dwarf-frame", "-f[no-]stack-protector", "-fstack-protector-all"]),
    (Flag, &["-fstack-protector-strong", "-f[no-]stack-clash-protection", "-fcf-protection"]),
    (Flag, &["-f[no-]stack-size-section", "-f[no-]threadsafe-statics", "-f[no-]rtti"]),
    (Joined(OneOf(&["none", "branch", "return", "full"])), &["-fcf-protection="]),
    (Joined(OneOf(&["always", "no-compact-unwind", "default"])), &["-femit-dwarf-unwind="]),
    // Debug information.
    (Flag, &["-g", "-g0", "-g1", "-g2", "-g3", "-ggdb", "-ggdb0", "-ggdb1", "-ggdb2", "-ggdb3"]),
    (Flag, &["-glldb", "-gsce", "-gmlt", "-gline-tables-only", "-gline-directives-only"]),
    (Flag, &["-gdwarf", "-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5", "-gdwarf32"]),
    (Flag, &["-gdwarf64", "-g[no-]column-info", "-g[no-]inline-line-tables"]),
    (Flag, &["-g[no-]strict-dwarf", "-g[no-]pubnames", "-g[no-]gnu-pubnames"]),
    (Flag, &["-g[no-]simple-template-names", "-g[no-]omit-unreferenced-methods"]),
    (Flag, &["-g[no-]key-instructions", "-g[no-]call-site-info", "-gno-codeview-command-line"]),
    (Flag, &["-f[no-]standalone-debug", "-f[no-]limit-debug-info", "-f[no-]debug-types-section"]),
    (Flag, &["-f[no-]eliminate-unused-debug-types", "-f[no-]split-dwarf-inlining"]),
    (Flag, &["-f[no-]debug-ranges-base-address", "-f[no-]discard-value-names"]),
    (Joined(OneOf(&["none"])), &["-gz="]),
    // Meant for other phases, and without effect on bitcode: people pass on their whole CFLAGS.
    (Flag, &["-w", "-pedantic", "-pedantic-errors", "-pthread", "-f[no-]color-diagnostics"]),
    (Flag, &["-f[no-]diagnostics-show-option", "-f[no-]caret-diagnostics"]),
    (Flag, &["-f[no-]signed-char", "-f[no-]short-enums", "-f[no-]sized-deallocation"]),
    (Joined(OneOf(&["always", "never", "auto"])), &["-fdiagnostics-color="]),
    (Joined(Warning), &["-W"]),
    (Joined(Word), &["-std="]),
    (
        Joined(Text),
        &["-D", "-U", "-ffile-prefix-map=", "-fdebug-prefix-map=", "-fmacro-prefix-map="],
    ),
    (Separate(Text), &["-D", "-U"]),
];

/// Instructions that x86 code may use.
#[rustfmt::skip]
const X86_FEATURES: &[&str] = &[
    "-m[no-]mmx", "-m[no-]sse", "-m[no-]sse2", "-m[no-]sse3", "-m[no-]ssse3", "-m[no-]sse4",
    "-m[no-]sse4.1", "-m[no-]sse4.2", "-m[no-]sse4a", "-m[no-]avx", "-m[no-]avx2",
    "-m[no-]avx10.1", "-m[no-]avx10.2", "-m[no-]avx512f", "-m[no-]avx512bw", "-m[no-]avx512cd",
    "-m[no-]avx512dq", "-m[no-]avx512vl", "-m[no-]avx512vbmi", "-m[no-]avx512vbmi2",
    "-m[no-]avx512vnni", "-m[no-]avx512ifma", "-m[no-]avx512bf16", "-m[no-]avx512fp16",
    "-m[no-]avx512bitalg", "-m[no-]avx512vpopcntdq", "-m[no-]avxvnni", "-m[no-]avxifma",
    "-m[no-]avxneconvert", "-m[no-]avxvnniint8", "-m[no-]avxvnniint16", "-m[no-]apxf",
    "-m[no-]fma", "-m[no-]fma4", "-m[no-]f16c", "-m[no-]bmi", "-m[no-]bmi2", "-m[no-]lzcnt",
    "-m[no-]popcnt", "-m[no-]tbm", "-m[no-]xop", "-m[no-]aes", "-m[no-]pclmul", "-m[no-]sha",
    "-m[no-]sha512", "-m[no-]gfni", "-m[no-]vaes", "-m[no-]vpclmulqdq", "-m[no-]adx",
    "-m[no-]movbe", "-m[no-]rdrnd", "-m[no-]rdseed", "-m[no-]fsgsbase", "-m[no-]clflushopt",
    "-m[no-]clwb", "-m[no-]prfchw", "-m[no-]shstk", "-m[no-]sahf", "-m[no-]cx16", "-m[no-]fxsr",
    "-m[no-]xsave", "-m[no-]xsavec", "-m[no-]xsaveopt", "-m[no-]xsaves", "-m[no-]vzeroupper",
    "-m[no-]crc32", "-m[no-]amx-tile", "-m[no-]amx-int8", "-m[no-]amx-bf16",
];
