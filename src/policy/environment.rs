//! Variables of the link's environment that change what a job run here makes, and so what a worker, which has a
//! clean environment, would have to know. It does not read the environment.

/// Variables and what they do; each was measured with clang 22 on a backend job. Harmless there (the same bytes):
/// `COMPILER_PATH`, `GCC_EXEC_PREFIX`, `CPATH`, `SDKROOT`, `LIBRARY_PATH`, `CLANG_CONFIG_PATH`,
/// `CLANG_MODULE_CACHE_PATH`, `CLANG_FORCE_COLOR_DIAGNOSTICS`, `RC_DEBUG_OPTIONS`, `SOURCE_DATE_EPOCH`, `CL`, `_CL_`,
/// `QA_OVERRIDE_GCC3_OPTIONS`, `LLVM_OVERRIDE_PRODUCER`, `TMPDIR`, `LC_ALL`, and those that only print, such as
/// `CC_PRINT_OPTIONS`. What chooses libraries (`LD_LIBRARY_PATH`, `LD_PRELOAD`), libm's variant (`GLIBC_TUNABLES`) or
/// config files (`CLANG_NO_DEFAULT_CONFIG`) is the identity of the toolchain, not a matter of arguments.
const VARIABLES: &[(&str, &str)] = &[
    (
        "CCC_OVERRIDE_OPTIONS",
        "it edits the arguments of every clang, also past the lists of options",
    ),
    ("FORCE_CLANG_DIAGNOSTICS_CRASH", "it makes every clang report a crash"),
];

/// Why no job may leave this machine: a variable that `is_set`, and what it does.
pub fn environment_keeps_home(is_set: impl Fn(&str) -> bool) -> Option<String> {
    let (name, what) = VARIABLES.iter().find(|(name, _)| is_set(name))?;
    Some(format!("{name} is set: {what}; unset it"))
}
