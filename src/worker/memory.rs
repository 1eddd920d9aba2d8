//! How much memory a job will need, and how much there is. Both are estimates, made before clang starts,
//! so that a job that cannot fit goes to another host at once. It does not know what jobs run.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// clang with nothing to do, its shared libraries not counted twice.
const BASE: u64 = 300 << 20;
/// Bytes of memory for a byte of bitcode; a generous guess for -O3 with debug information.
const FACTOR: u64 = 10;
/// Address space is more than memory: clang maps 270 MB of its libraries.
const MAPPED: u64 = 512 << 20;
/// The share of a machine's memory that jobs may have: nine tenths.
const SHARE: (u64, u64) = (9, 10);

/// The memory of this machine, or of the cgroup (version 2) that this process is in. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What nobody uses now.
    pub available: u64,
}

/// What a job with `bitcode` bytes of modules needs, times the `weight` of the parts that it runs at once.
pub fn estimate(bitcode: u64) -> u64 {
    bitcode.saturating_mul(FACTOR).saturating_add(BASE)
}

/// The address space that a program gets which may use `memory` bytes.
pub fn address_space(memory: u64) -> u64 {
    memory.saturating_add(MAPPED)
}

/// Bytes of address space that this process may have, where that is limited, as icecream's nodes do it.
pub fn inherited_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

impl Memory {
    /// Looks.
    pub fn look() -> Memory {
        let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine(&text));
        // There is no /proc in an icecream environment.
        let machine = machine.unwrap_or_else(|| {
            let info = rustix::system::sysinfo();
            let total = info.totalram.saturating_mul(info.mem_unit.into());
            // What is cached counts as used there. The daemon, which knows better, gives a job its limit.
            Memory { total, available: total }
        });
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
        path.map_or(machine, |path| machine.within(Path::new("/sys/fs/cgroup"), path))
    }

    /// Lowered to what the cgroup at `path` and those above it leave.
    fn within(self, root: &Path, path: &str) -> Memory {
        let groups = Path::new(path).ancestors().map(|group| root.join(group));
        groups.filter_map(group).fold(self, |memory, group| Memory {
            total: memory.total.min(group.total),
            available: memory.available.min(group.available),
        })
    }

    /// What all jobs at once may have, if the owner does not say.
    pub fn share(self) -> u64 {
        self.total / SHARE.1 * SHARE.0
    }
}

fn machine(meminfo: &str) -> Option<Memory> {
    let value = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { total: value("MemTotal:")?, available: value("MemAvailable:")? })
}

fn group(folder: PathBuf) -> Option<Memory> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
    let total: u64 = number("memory.max")?;
    let used: u64 = number("memory.current").unwrap_or(0);
    // Cached files count as used, but give way.
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    Some(Memory {
        total,
        available: total.saturating_sub(used.saturating_sub(cached.unwrap_or(0))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_memory() {
        let memory = Memory::look();
        assert!(memory.total > 100 << 20 && memory.available <= memory.total, "{memory:?}");
        assert!(memory.share() < memory.total);
        assert_eq!(
            machine("MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:  1024 kB\n"),
            Some(Memory { total: 2 << 20, available: 1 << 20 })
        );
        assert_eq!(machine("nonsense"), None);
    }

    #[test]
    fn the_tightest_cgroup_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/memory.max", "1000\n");
        put("a/memory.current", "900\n");
        put("a/memory.stat", "anon 5\ninactive_file 100\n");
        put("a/b/memory.max", "max\n");
        let memory = Memory { total: 5000, available: 4000 };
        let expected = Memory { total: 1000, available: 200 };
        assert_eq!(memory.within(root.path(), "a/b"), expected);
        assert_eq!(memory.within(root.path(), "c"), memory);
    }

    #[test]
    fn estimates_grow_with_the_bitcode_and_do_not_overflow() {
        assert_eq!(estimate(0), 300 << 20);
        assert!(estimate(50 << 20) > 700 << 20);
        assert_eq!(address_space(estimate(u64::MAX)), u64::MAX);
    }
}
