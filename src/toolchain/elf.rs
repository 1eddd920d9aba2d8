//! Just enough of ELF to tell a program from a script and to find the loader that it asks for. It reads
//! 64-bit little-endian files, as all hosts of a farm have them, and knows no sections and no symbols.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::os;

/// `e_machine` of x86-64.
pub(super) const X86_64: u16 = 62;
/// Machines of 64 bits and little-endian numbers, by `e_machine`, as `uname -m` calls them.
const MACHINES: [(u16, &str); 5] =
    [(X86_64, "x86_64"), (183, "aarch64"), (243, "riscv64"), (21, "ppc64le"), (258, "loongarch64")];
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// The type of the note that holds the build id; its owner is `GNU`.
const NT_GNU_BUILD_ID: u32 = 3;
/// Notes have some hundred bytes.
const NOTES: u64 = 1 << 16;
/// The kernel takes no longer paths.
const PATH_MAX: u64 = 4096;

/// A program that the kernel runs without another one's help, or with a loader's.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    /// What it runs on: `e_machine` of its header.
    pub machine: u16,
    /// What loads its libraries; none for a static program.
    pub loader: Option<PathBuf>,
    /// What its linker called it, in hex, if it did.
    pub build_id: Option<String>,
}

impl Elf {
    /// What `uname -m` says on machines that run it, where that is known.
    pub fn platform(&self) -> Option<&'static str> {
        MACHINES.iter().find(|(machine, _)| *machine == self.machine).map(|(_, name)| *name)
    }

    /// Reads the headers of a program or library.
    ///
    /// # Errors
    /// It is none, or a damaged one; the reason is a clause about `it`.
    pub fn read(file: &File) -> Result<Elf> {
        let mut header = [0; HEADER];
        let is_elf =
            os::read_exact_at(file, &mut header, 0).is_ok() && header.starts_with(b"\x7fELF");
        ensure!(is_elf, "it is no ELF program, and what a script starts is not known");
        ensure!(header[4..6] == [2, 1], "it is no 64-bit little-endian ELF program");
        ensure!(matches!(u16_at(&header, 16), 2 | 3), "it is an ELF file, but no program");
        ensure!(usize::from(u16_at(&header, 54)) == PROGRAM_HEADER, "its ELF header is damaged");

        let mut table = vec![0; usize::from(u16_at(&header, 56)) * PROGRAM_HEADER];
        os::read_exact_at(file, &mut table, u64_at(&header, 32))
            .context("its ELF file is cut off")?;
        let of_kind = |kind| {
            let headers = table.chunks_exact(PROGRAM_HEADER);
            let wanted = headers.filter(move |header| u32_at(header, 0) == kind);
            wanted.map(|header| (u64_at(header, 8), u64_at(header, 32)))
        };
        let named = of_kind(PT_INTERP).next();
        let loader = named.map(|(at, length)| loader(file, at, length)).transpose()?;
        let build_id = of_kind(PT_NOTE).find_map(|(at, length)| build_id(file, at, length));
        Ok(Elf { machine: u16_at(&header, 18), loader, build_id })
    }
}

/// The build id, if it is among these notes.
fn build_id(file: &File, offset: u64, length: u64) -> Option<String> {
    let mut notes = vec![0; length.min(NOTES) as usize];
    os::read_exact_at(file, &mut notes, offset).ok()?;
    let mut rest = &notes[..];
    loop {
        let (head, after) = rest.split_at_checked(12)?;
        let [name, text, kind] = [0, 4, 8].map(|at| u32_at(head, at));
        let padded = |length: u32| (length as usize).checked_next_multiple_of(4);
        let (owner, after) = after.split_at_checked(padded(name)?)?;
        if kind == NT_GNU_BUILD_ID && owner == b"GNU\0" {
            let id = after.get(..text as usize)?;
            return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        rest = after.get(padded(text)?..)?;
    }
}

fn loader(file: &File, offset: u64, length: u64) -> Result<PathBuf> {
    ensure!(length <= PATH_MAX, "the path of its loader is {length} bytes long");
    let mut text = vec![0; length as usize];
    os::read_exact_at(file, &mut text, offset).context("its ELF file is cut off")?;
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let path = os::path_from(text);
    ensure!(path.is_absolute(), "its loader {path:?} has no absolute path");
    Ok(path)
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| from[at + i])
}

fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(from, at))
}

fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A program of one program header, of the given kind, whose text follows it.
    fn program(kind: u32, length: u64, text: &[u8]) -> Vec<u8> {
        let mut elf = vec![0; HEADER + PROGRAM_HEADER];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[16] = 3;
        elf[18] = 62;
        elf[32] = HEADER as u8;
        elf[54] = PROGRAM_HEADER as u8;
        elf[56] = 1;
        elf[HEADER..HEADER + 4].copy_from_slice(&kind.to_le_bytes());
        elf[HEADER + 8] = (HEADER + PROGRAM_HEADER) as u8;
        elf[HEADER + 32..HEADER + 40].copy_from_slice(&length.to_le_bytes());
        elf.extend_from_slice(text);
        elf
    }

    fn read(content: &[u8]) -> Result<Elf, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Elf::read(&file).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_loader_is_found() {
        let expected = Elf { machine: X86_64, loader: Some("/lib/ld.so".into()), build_id: None };
        assert_eq!(read(&program(PT_INTERP, 11, b"/lib/ld.so\0")), Ok(expected));
    }

    #[test]
    fn a_static_program_has_none() {
        let expected = Elf { machine: X86_64, loader: None, build_id: None };
        assert_eq!(expected.platform(), Some("x86_64"));
        assert_eq!(read(&program(1, 0, b"")), Ok(expected));
    }

    #[test]
    fn the_build_id_is_found_among_other_notes_or_not_at_all() {
        let other = b"\x04\0\0\0\x01\0\0\0\x05\0\0\0GNU\0\xff\0\0\0";
        let id = b"\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xab\xcd\x01\0";
        let notes = [&other[..], &id[..]].concat();
        let found =
            |notes: &[u8]| read(&program(PT_NOTE, notes.len() as u64, notes)).unwrap().build_id;
        assert_eq!(found(&notes).as_deref(), Some("abcd01"));
        for length in 0..notes.len() - 1 {
            assert_eq!(found(&notes[..length]), None, "{length}");
        }
        assert_eq!(found(&[0xff; 40]), None);
    }

    #[test]
    fn what_is_no_program_is_refused_with_a_reason() {
        let good = program(PT_INTERP, 11, b"/lib/ld.so\0");
        let changed = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            read(&bad).unwrap_err()
        };
        assert!(read(b"#!/bin/sh\nexec clang\n").unwrap_err().contains("script"));
        assert!(read(b"").unwrap_err().contains("no ELF"));
        assert!(changed(4, 1).contains("64-bit"));
        assert!(changed(16, 1).contains("no program"));
        assert!(changed(54, 32).contains("damaged"));
        assert!(changed(39, 0xff).contains("cut off"));
        assert!(changed(HEADER + 36, 1).contains("bytes long"));
        assert!(changed(HEADER + PROGRAM_HEADER, b'.').contains("absolute"));
    }

    #[test]
    fn a_file_cut_off_anywhere_is_an_error() {
        let good = program(PT_INTERP, 11, b"/lib/ld.so\0");
        for length in 0..good.len() {
            read(&good[..length]).unwrap_err();
        }
    }
}
