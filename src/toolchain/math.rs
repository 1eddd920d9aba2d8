//! The class of a compiler's mathematics. LLVM folds calls of `sin`, `exp`, `pow` and others with the libm
//! that the compiler has loaded, and glibc's picks its variants by the CPU: two hosts of different classes make
//! different objects, at exit 0. The class is what libm selects, not what the CPU is called.
//!
//! Measured with glibc 2.36 on x86-64, over 22 functions of up to 300,000 arguments each: their results depend on
//! AVX2 and FMA being both usable, and on nothing else there (not AVX, SSE4.1 or AVX-512). Of the older variants
//! for FMA4 none could be measured; they are a class of their own.

use std::path::Path;

use super::ask;
use super::elf::X86_64;

const FMA: Bit = Bit { leaf: 0, register: 2, bit: 12 };
const AVX2: Bit = Bit { leaf: 1, register: 1, bit: 5 };
const FMA4: Bit = Bit { leaf: 2, register: 2, bit: 16 };

/// Where glibc's loader lists a feature: 0, 1, 2 are the CPUID leaves 1, 7, 0x80000001; the registers count
/// from EAX.
struct Bit {
    leaf: u8,
    register: u8,
    bit: u8,
}

/// The class of a compiler for `machine` with this loader, in an environment of `variables`.
pub(super) fn class(machine: u16, loader: Option<&Path>, variables: &[(String, String)]) -> String {
    if machine != X86_64 {
        // No other libm is known to differ by CPU within one architecture.
        return "generic".into();
    }
    let Some(loader) = loader else { return by_cpu(variables) };
    if loader.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-musl")) {
        return "musl".into();
    }
    // From glibc 2.34 on its loader tells what the program will see, tunables included.
    ask::run(loader, &["--list-diagnostics"], variables)
        .ok()
        .and_then(|ended| by_diagnostics(&String::from_utf8_lossy(&ended.output)))
        .unwrap_or_else(|| by_cpu(variables))
}

fn by_diagnostics(text: &str) -> Option<String> {
    let usable = |Bit { leaf, register, bit }: Bit| {
        let key = format!("x86.cpu_features.features[0x{leaf:x}].active[0x{register:x}]=0x");
        let value = text.lines().find_map(|line| line.strip_prefix(key.as_str()))?;
        Some(u32::from_str_radix(value, 16).ok()? >> bit & 1 == 1)
    };
    Some(selected(usable(AVX2)? && usable(FMA)?, usable(FMA4)?).into())
}

/// glibc's order of choice.
fn selected(avx2_and_fma: bool, fma4: bool) -> &'static str {
    match (avx2_and_fma, fma4) {
        (true, _) => "avx2 fma",
        (false, true) => "fma4",
        (false, false) => "none",
    }
}

/// For static programs and older loaders, which cannot be asked. What a tunable does to them is not known:
/// it makes a class of its own.
fn by_cpu(variables: &[(String, String)]) -> String {
    let class = cpu_class();
    let tunables = variables.iter().find(|(name, _)| name == "GLIBC_TUNABLES");
    match tunables.filter(|(_, value)| value.contains("hwcaps")) {
        Some((_, value)) => format!("{class} with {}", value.escape_debug()),
        None => class.into(),
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu_class() -> &'static str {
    // The standard library does not look for AMD's FMA4, of CPUs from 2011 to 2015.
    let fma4 = || {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = text.lines().find(|line| line.starts_with("flags"));
        flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "fma4"))
    };
    let both =
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    selected(both, !both && fma4())
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_class() -> &'static str {
    "emulated"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fma: u32, avx2: u32, fma4: u32) -> String {
        format!(
            "dl_platform=\"x86_64\"\n\
             x86.cpu_features.features[0x0].cpuid[0x2]=0xffffffff\n\
             x86.cpu_features.features[0x0].active[0x2]=0x{:x}\n\
             x86.cpu_features.features[0x1].active[0x1]=0x{:x}\n\
             x86.cpu_features.features[0x2].active[0x2]=0x{:x}\n",
            fma << 12 | 1,
            avx2 << 5 | 1,
            fma4 << 16
        )
    }

    #[test]
    fn both_of_avx2_and_fma_make_the_fast_class() {
        let class = |fma, avx2, fma4| by_diagnostics(&told(fma, avx2, fma4)).unwrap();
        assert_eq!(class(1, 1, 0), "avx2 fma");
        assert_eq!(class(1, 1, 1), "avx2 fma");
        assert_eq!(class(1, 0, 1), "fma4");
        assert_eq!(class(1, 0, 0), "none");
        assert_eq!(class(0, 1, 0), "none");
        assert_eq!(class(0, 0, 0), "none");
    }

    #[test]
    fn a_loader_that_does_not_tell_all_tells_nothing() {
        let text = told(1, 1, 1);
        let lines: Vec<_> = text.lines().collect();
        for missing in 2..lines.len() {
            let mut rest = lines.clone();
            rest.remove(missing);
            assert_eq!(by_diagnostics(&rest.join("\n")), None, "{}", lines[missing]);
        }
    }

    #[test]
    fn a_tunable_that_cannot_be_judged_is_part_of_the_class() {
        let set = |value: &str| [("GLIBC_TUNABLES".to_owned(), value.to_owned())];
        let plain = class(X86_64, None, &[]);
        assert_eq!(class(X86_64, None, &set("glibc.malloc.perturb=1")), plain);
        let tuned = class(X86_64, None, &set("glibc.cpu.hwcaps=-FMA"));
        assert_eq!(tuned, format!("{plain} with glibc.cpu.hwcaps=-FMA"));
    }

    #[test]
    fn other_machines_and_other_libraries_say_so() {
        assert_eq!(class(183, Some(Path::new("/lib/ld-linux-aarch64.so.1")), &[]), "generic");
        assert_eq!(class(X86_64, Some(Path::new("/lib/ld-musl-x86_64.so.1")), &[]), "musl");
    }
}
