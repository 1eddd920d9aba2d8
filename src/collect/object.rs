//! Is a file a whole native object? Told from its header alone: LLD takes an empty or cut-off object
//! without a word (llvm#75441), and the program is silently wrong. It does not look at the code inside.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, bail, ensure};

/// Machines of a COFF header: x86, ARM (old and new), ARM64, ARM64EC, ARM64X, x86-64.
const COFF_MACHINES: [u16; 7] = [0x014c, 0x01c0, 0x01c4, 0xaa64, 0xa641, 0xa64e, 0x8664];
/// The class id of a COFF object with more than 65,279 sections ("bigobj").
const BIGOBJ: [u8; 16] = [
    0xc7, 0xa1, 0xba, 0xd1, 0xee, 0xba, 0xa9, 0x4b, 0xaf, 0x20, 0xfa, 0xf6, 0x6a, 0xa4, 0xdc, 0xb8,
];

/// Checks that `path` is a regular, non-empty file.
///
/// # Errors
/// It is not; the text says what it is instead.
pub fn check_file(path: &Path) -> anyhow::Result<u64> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("was not made"),
        found => found.context("cannot be looked at")?,
    };
    ensure!(found.is_file(), "is not a regular file");
    ensure!(found.len() > 0, "is empty");
    Ok(found.len())
}

/// Checks that `path` is a whole ELF, COFF, Mach-O or WebAssembly object.
///
/// # Errors
/// It is not; the text says what is wrong.
pub fn check_object(path: &Path) -> anyhow::Result<()> {
    let size = check_file(path)?;
    let mut file = File::open(path).context("cannot be opened")?;
    let mut head = Vec::with_capacity(64);
    file.by_ref().take(64).read_to_end(&mut head).context("cannot be read")?;
    let needed = match head.as_slice() {
        [0x7f, b'E', b'L', b'F', ..] => elf_size(&head, &mut file)?,
        [b'B', b'C', 0xc0, 0xde, ..] | [0xde, 0xc0, 0x17, 0x0b, ..] => {
            bail!("is LLVM bitcode, not a native object")
        }
        [0xfe, 0xed, 0xfa, 0xce | 0xcf, ..] | [0xce | 0xcf, 0xfa, 0xed, 0xfe, ..] => 32,
        [0, b'a', b's', b'm', ..] => 8,
        [0, 0, 0xff, 0xff, ..] if head.get(12..28) == Some(&BIGOBJ) => {
            coff_size(&mut file, at(&head, 48, 4)?, at(&head, 52, 4)?, 20)?
        }
        [low, high, ..] if COFF_MACHINES.contains(&u16::from_le_bytes([*low, *high])) => {
            coff_size(&mut file, at(&head, 8, 4)?, at(&head, 12, 4)?, 18)?
        }
        _ => bail!("is no object file: it begins with {:02x?}", &head[..head.len().min(4)]),
    };
    ensure!(size >= needed, "is cut off: it has {size} bytes, its header speaks of {needed}");
    Ok(())
}

/// A little-endian number of `bytes` bytes.
fn at(head: &[u8], offset: usize, bytes: usize) -> anyhow::Result<u64> {
    number(head, offset, bytes, false)
}

fn number(head: &[u8], offset: usize, bytes: usize, big_endian: bool) -> anyhow::Result<u64> {
    let field = head.get(offset..offset + bytes).context("is cut off within its header")?;
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Ok(if big_endian { field.iter().fold(0, fold) } else { field.iter().rev().fold(0, fold) })
}

/// An ELF file is at least as long as its section headers, which LLVM writes last, reach.
fn elf_size(head: &[u8], file: &mut File) -> anyhow::Result<u64> {
    let wide = head.get(4) == Some(&2);
    let big_endian = head.get(5) == Some(&2);
    let get = |offset, bytes| number(head, offset, bytes, big_endian);
    let (table, entry, count) = if wide {
        (get(40, 8)?, get(58, 2)?, get(60, 2)?)
    } else {
        (get(32, 4)?, get(46, 2)?, get(48, 2)?)
    };
    if table == 0 {
        return Ok(0);
    }
    // From 65,280 sections on the true number stands in the first section header.
    let count = if count > 0 {
        count
    } else {
        let (offset, bytes) = if wide { (32, 8) } else { (20, 4) };
        let first = read_at(file, table, offset + bytes).context("is cut off")?;
        number(&first, offset, bytes, big_endian)?
    };
    table.checked_add(entry.saturating_mul(count)).context("has a damaged header")
}

/// A COFF file ends with its symbols and, behind them, their names.
fn coff_size(file: &mut File, symbols: u64, count: u64, each: u64) -> anyhow::Result<u64> {
    if symbols == 0 {
        return Ok(20);
    }
    let names = symbols + count * each;
    let length = read_at(file, names, 4).context("is cut off")?;
    Ok(names + at(&length, 0, 4)?.max(4))
}

fn read_at(file: &mut File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut buffer)?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.o");
        fs::write(&path, bytes).unwrap();
        check_object(&path).map_or_else(|error| format!("{error:#}"), |()| "fine".into())
    }

    fn elf(sections: u16, length: usize) -> Vec<u8> {
        let mut file = vec![0; length];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40] = 64;
        file[58] = 64;
        file[60..62].copy_from_slice(&sections.to_le_bytes());
        file
    }

    fn coff(length: usize) -> Vec<u8> {
        let mut file = vec![0; length];
        file[..2].copy_from_slice(&0x8664_u16.to_le_bytes());
        file[8] = 20;
        file[12] = 1;
        if length > 38 {
            file[38] = 4;
        }
        file
    }

    #[test]
    fn whole_objects_of_each_kind_are_fine() {
        let mut bigobj = vec![0; 60];
        bigobj[2..6].copy_from_slice(&[0xff, 0xff, 2, 0]);
        bigobj[12..28].copy_from_slice(&BIGOBJ);
        bigobj[48] = 56;
        let macho = [&[0xcf, 0xfa, 0xed, 0xfe][..], &[0; 28]].concat();
        let mut big_endian = elf(0, 64 + 64);
        big_endian[5] = 2;
        big_endian[40..48].copy_from_slice(&64_u64.to_be_bytes());
        big_endian[58..62].copy_from_slice(&[0, 64, 0, 1]);
        for good in
            [elf(2, 64 + 128), coff(42), bigobj, macho, b"\0asm\x01\0\0\0".into(), big_endian]
        {
            assert_eq!(verdict(&good), "fine", "{good:02x?}");
        }
    }

    #[test]
    fn bad_objects_are_named() {
        assert_eq!(verdict(b""), "is empty");
        assert_eq!(verdict(b"BC\xc0\xde...."), "is LLVM bitcode, not a native object");
        assert_eq!(verdict(b"text"), "is no object file: it begins with [74, 65, 78, 74]");
        assert_eq!(verdict(b"\x7fELF\x02"), "is cut off within its header");
        assert_eq!(verdict(&elf(2, 150)), "is cut off: it has 150 bytes, its header speaks of 192");
        assert!(verdict(&coff(40)).starts_with("is cut off"));
        // An import object of a COFF library begins like a bigobj.
        assert!(verdict(&[0, 0, 0xff, 0xff, 0, 0, 0x64, 0x86]).starts_with("is no object file"));
    }

    #[test]
    fn many_sections_are_counted_in_the_first_header() {
        let mut file = elf(0, 64 + 64);
        file[64 + 32] = 3;
        assert_eq!(verdict(&file), "is cut off: it has 128 bytes, its header speaks of 256");
    }

    #[test]
    fn what_is_no_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = |path: &Path| format!("{:#}", check_object(path).unwrap_err());
        assert_eq!(text(folder.path()), "is not a regular file");
        assert_eq!(text(&folder.path().join("none")), "was not made");
        std::os::unix::fs::symlink("/bin/sh", folder.path().join("link")).unwrap();
        assert_eq!(text(&folder.path().join("link")), "is not a regular file");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, magic in 0..6_usize) {
            const MAGICS: [&[u8]; 6] =
                [b"\x7fELF\x02\x01", b"\x7fELF\x01\x02", b"\x64\x86", b"\0\0\xff\xff", b"", b"BC"];
            let magic = MAGICS[magic];
            let _ = verdict(&[magic, &bytes].concat());
        }
    }
}
