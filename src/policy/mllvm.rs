//! The second allow-list: options of LLVM behind `-mllvm`, by name and kind of value. What is not here is refused.
//! It does not know the driver's options. An option gets in if it only tunes what code is made: it names no file or
//! pass, dumps, prints and counts nothing. `tests/policy_real.rs` holds names and kinds against `-help-hidden`.

use super::form::Value::{self, Decimal, Number, OneOf, Switch};

/// Kinds of value and names. A [`Switch`] may stand alone, all others need `=` and the value.
pub const MLLVM: &[(Value, &[&str])] = &[
    (Switch, SWITCHES),
    (Number, NUMBERS),
    (Decimal, DECIMALS),
    (
        OneOf(&["always", "optimistic-pgo", "conservative-pgo", "never"]),
        &["enable-machine-outliner"],
    ),
    (OneOf(&["off", "preferred", "on"]), &["scalable-vectorization"]),
    (Switch, SPLIT_SWITCHES),
    (Number, SPLIT_NUMBERS),
    (Decimal, &["thinlto-split-module-size-rate-threshold"]),
];

/// Split codegen (llvm#198702), in no release yet: one job becomes several partitions, merged by `ld.lld -r`.
pub const SPLIT_SWITCHES: &[&str] = &["thinlto-split", "lto-split-by-callgraph"];

/// How split codegen splits.
pub const SPLIT_NUMBERS: &[&str] = &[
    "thinlto-split-partitions",
    "lto-split-partitions",
    "thinlto-split-threshold",
    "thinlto-split-module-size-threshold",
];

/// `-NAME`, or `-NAME=true|false|1|0`.
#[rustfmt::skip]
const SWITCHES: &[&str] = &[
    "aarch64-enable-atomic-cfg-tidy", "aarch64-enable-ccmp", "aarch64-enable-collect-loh",
    "aarch64-enable-copyelim", "aarch64-enable-dead-defs", "aarch64-enable-early-ifcvt",
    "aarch64-enable-falkor-hwpf-fix", "aarch64-enable-gep-opt", "aarch64-enable-global-merge",
    "aarch64-enable-ldst-opt", "aarch64-enable-loop-data-prefetch", "aarch64-enable-mcr",
    "aarch64-enable-promote-const", "aarch64-enable-sink-fold", "aarch64-enable-stp-suppress",
    "aarch64-use-tbi", "apply-ext-tsp-for-size", "arm-add-build-attributes",
    "arm-assume-misaligned-load-store", "arm-enable-merge-loopenddec", "arm-global-merge",
    "arm-promote-constant", "disable-block-placement", "disable-branch-fold", "disable-cgp",
    "disable-copyprop", "disable-early-ifcvt", "disable-early-taildup", "disable-icp",
    "disable-licm-promotion", "disable-lsr", "disable-machine-cse", "disable-machine-licm",
    "disable-machine-sink", "disable-partial-inlining", "disable-peephole",
    "disable-postra-machine-licm", "disable-postra-machine-sink", "disable-preinline",
    "disable-separate-const-offset-from-gep", "disable-tail-duplicate", "dwarf64", "enable-chr",
    "enable-cold-section", "enable-cond-stores-vec", "enable-constraint-elimination",
    "enable-dfa-jump-thread", "enable-early-exit-vectorization", "enable-epilogue-vectorization",
    "enable-ext-tsp-block-placement", "enable-global-merge", "enable-gvn-hoist",
    "enable-gvn-sink", "enable-histogram-loop-vectorization", "enable-interleaved-mem-accesses",
    "enable-ipra", "enable-linkonceodr-outlining", "enable-load-pre", "enable-loop-distribute",
    "enable-loop-flatten", "enable-loop-simplifycfg-term-folding", "enable-loop-versioning-licm",
    "enable-loopinterchange", "enable-lsr-phielim", "enable-masked-interleaved-mem-accesses",
    "enable-matrix", "enable-merge-functions", "enable-misched", "enable-newgvn",
    "enable-nontrivial-unswitch", "enable-partial-inlining", "enable-post-misched", "enable-pre",
    "enable-scoped-noalias", "enable-shrink-wrap", "enable-split-machine-functions",
    "enable-tail-merge", "enable-tbaa", "enable-unroll-and-jam", "enable-vplan-native-path",
    "experimental-debug-variable-locations", "ext-tsp-apply-without-profile",
    "extra-vectorizer-passes", "fast-isel", "force-loop-cold-block", "force-ordered-reductions",
    "generate-arange-section", "global-isel", "global-merge-group-by-use",
    "global-merge-ignore-single-use", "global-merge-on-external", "hoist-common-insts",
    "hot-cold-split", "inline-cost-full", "inline-deferral", "interleave-loops",
    "loop-vectorize-with-block-frequency", "lsr-drop-solution", "lsr-exp-narrow",
    "lsr-filter-same-scaled-reg", "mfs-split-ehcode", "misched-cluster", "misched-postra",
    "no-dwarf-ranges-section", "no-pgo-warn-mismatch", "no-pgo-warn-mismatch-comdat-weak",
    "optimize-hot-cold-new", "pgo-fix-entry-count", "pgo-instr-memop", "pgso",
    "pgso-cold-code-only", "precise-rotation-cost", "prefer-inloop-reductions",
    "preserve-alignment-assumptions-during-inlining", "profile-sample-accurate",
    "profile-summary-contextless", "profile-unknown-in-special-section", "riscv-enable-copyelim",
    "riscv-enable-global-merge", "rotation-prepare-for-lto", "salvage-stale-profile",
    "salvage-unused-profile", "sample-profile-even-flow-distribution",
    "sample-profile-inline-size", "sample-profile-merge-inlinee",
    "sample-profile-prioritized-inline", "sample-profile-use-preinliner",
    "sample-profile-use-profi", "simplifycfg-merge-cond-stores", "simplifycfg-sink-common",
    "sink-common-insts", "slp-vectorize-hor", "slp-vectorize-hor-store",
    "speculate-one-expensive-inst", "split-static-data", "switch-to-lookup", "tail-dup-placement",
    "unroll-allow-partial", "unroll-allow-peeling", "unroll-allow-remainder", "unroll-runtime",
    "unroll-runtime-epilog", "unroll-runtime-multi-exit",
    "use-dwarf-ranges-base-address-specifier", "use-noalias-intrinsic-during-inlining",
    "vectorize-loops", "vectorize-slp", "vectorizer-maximize-bandwidth",
    "x86-branches-within-32B-boundaries", "x86-cmov-converter", "x86-cmov-converter-force-all",
    "x86-disable-avoid-SFB", "x86-early-ifcvt", "x86-machine-combiner", "x86-pad-for-align",
    "x86-promote-anyext-load", "x86-slh-loads", "x86-speculative-load-hardening",
    "x86-use-fsrm-for-memcpy",
];

/// `-NAME=N`, where a few also take -1 for "no limit".
#[rustfmt::skip]
const NUMBERS: &[&str] = &[
    "aarch64-insert-extract-base-cost", "aggressive-instcombine-max-scan-instrs",
    "align-all-blocks", "align-all-functions", "align-all-nofallthru-blocks",
    "available-load-scan-limit", "bonus-inst-threshold", "cold-callsite-rel-freq",
    "cvp-max-functions-per-value", "dfa-cost-threshold", "dfa-max-num-paths",
    "dfa-max-path-length", "dse-memoryssa-scanlimit", "dse-memoryssa-walklimit",
    "earlycse-mssa-optimization-cap", "epilogue-vectorization-force-VF",
    "epilogue-vectorization-minimum-VF", "ext-tsp-block-placement-max-blocks",
    "flat-loop-tripcount-threshold", "force-target-max-vector-interleave",
    "force-target-num-vector-regs", "force-vector-interleave", "force-vector-width",
    "funcspec-max-clones", "funcspec-max-iters", "funcspec-min-function-size",
    "global-merge-max-offset", "gvn-max-hoisted", "gvn-max-num-deps", "hot-callsite-rel-freq",
    "hot-callsite-threshold", "hotcoldsplit-max-params", "hotcoldsplit-threshold",
    "huge-size-for-split", "icp-max-num-vtables", "icp-max-prom",
    "icp-remaining-percent-threshold", "icp-total-percent-threshold", "import-cold-multiplier",
    "import-cutoff", "import-instr-limit", "inline-call-penalty", "inline-deferral-scale",
    "inline-instr-cost", "inline-max-stacksize", "inline-memaccess-cost", "inline-threshold",
    "inlinecold-threshold", "inlinedefault-threshold", "inlinehint-threshold",
    "instcombine-max-sink-users", "jump-table-density", "jump-threading-threshold",
    "licm-max-num-uses-traversed", "locally-hot-callsite-threshold",
    "loop-distribute-scev-check-threshold", "loop-flatten-cost-threshold",
    "loop-interchange-threshold", "loop-load-elimination-scev-check-threshold",
    "loop-to-cold-block-ratio", "lsr-complexity-limit", "lsr-setupcost-depth-limit",
    "machine-outliner-reruns", "max-bytes-for-alignment", "max-dependences",
    "max-heap-to-stack-size", "max-interleave-group-factor", "max-jump-table-size",
    "max-nested-scalar-reduction-interleave", "max-num-inline-blocks", "max-prefetch-iters-ahead",
    "max-sched-reorder", "max-speculation-depth", "max-switch-cases-per-result",
    "max-uses-for-sinking", "memdep-block-number-limit", "memdep-block-scan-limit",
    "memprof-cloning-cold-threshold", "memprof-matching-cold-threshold", "memssa-check-limit",
    "mfs-count-threshold", "mfs-psi-cutoff", "min-jump-table-entries", "min-prefetch-stride",
    "optsize-jump-table-density", "partial-unrolling-threshold", "pgo-critical-edge-threshold",
    "pgo-function-size-threshold", "phi-node-folding-threshold", "pragma-unroll-threshold",
    "prefetch-distance", "profile-summary-cutoff-cold", "profile-summary-cutoff-hot",
    "profile-summary-huge-working-set-size-threshold",
    "profile-summary-large-working-set-size-threshold", "recursive-inline-max-stacksize",
    "riscv-v-fixed-length-vector-lmul-max", "riscv-v-register-bit-width-lmul",
    "rotation-max-header-size", "runtime-check-per-loop-load-elim",
    "runtime-memory-check-threshold", "salvage-stale-profile-max-callsites",
    "sample-profile-cold-inline-threshold", "sample-profile-hot-inline-threshold",
    "sample-profile-inline-growth-limit", "sample-profile-inline-limit-max",
    "sample-profile-inline-limit-min", "sample-profile-max-propagate-iterations",
    "scalar-evolution-max-arith-depth", "scalar-evolution-max-cast-depth",
    "scalar-evolution-max-value-compare-depth", "scev-cheap-expansion-budget",
    "simplifycfg-hoist-common-skip-limit", "slp-max-reg-size", "slp-max-vf", "slp-min-reg-size",
    "slp-recursion-max-depth", "slp-threshold", "small-loop-cost",
    "split-threshold-for-reg-with-hint", "switch-peel-threshold", "tail-dup-placement-threshold",
    "tail-dup-size", "tail-merge-size", "tail-merge-threshold",
    "two-entry-phi-node-folding-threshold", "unroll-count", "unroll-full-max-count",
    "unroll-max-count", "unroll-max-iteration-count-to-analyze",
    "unroll-max-percent-threshold-boost", "unroll-max-upperbound", "unroll-optsize-threshold",
    "unroll-partial-threshold", "unroll-peel-max-count", "unroll-threshold",
    "unroll-threshold-aggressive", "unroll-threshold-default", "unswitch-threshold",
    "vectorize-memory-check-threshold", "vectorize-num-stores-pred", "vectorizer-min-trip-count",
    "wholeprogramdevirt-branch-funnel-threshold", "x86-align-branch-boundary",
    "x86-br-merging-base-cost", "x86-cmov-converter-threshold",
];

/// `-NAME=X`, multipliers mostly.
#[rustfmt::skip]
const DECIMALS: &[&str] = &[
    "import-critical-multiplier", "import-hot-evolution-factor", "import-hot-multiplier",
    "import-instr-evolution-factor",
];
