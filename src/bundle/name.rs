//! Which file names a bundle may have: plain ones below the folder it is unpacked into, so that no two
//! of them, nor anything outside, can be meant by one. Does not touch the disk.

use std::collections::BTreeSet;

use super::Fault;

/// Bytes of a name.
const LONGEST: usize = 200;
/// Parts of a name. Each but the last becomes a folder: many deep names would use up a disk's inodes.
const DEEPEST: usize = 4;

/// What is wrong with a name by itself.
pub(super) fn problem(name: &str) -> Option<&'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+/".contains(&byte);
    let components = || name.split('/');
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > LONGEST {
        Some("it is too long")
    } else if name.starts_with('/') {
        Some("it is absolute")
    } else if components().any(|part| part == "..") {
        Some("it leads upward")
    } else if components().any(|part| part.is_empty() || part == ".") {
        Some("a part of it is empty")
    } else if name.contains('\0') {
        Some("it holds a NUL")
    } else if !name.bytes().all(plain) {
        Some("it holds other characters than A-Z a-z 0-9 . _ - + /")
    } else if components().any(|part| part.starts_with(['-', '.'])) {
        Some("a part of it begins with - or .")
    } else if components().count() > DEEPEST {
        Some("it has too many parts")
    } else {
        None
    }
}

/// Makes sure that all names are good, and that no two are the same or one the folder of another.
pub(super) fn check<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<(), Fault> {
    let cut = |name: &str| name.chars().take(LONGEST).collect();
    let fault = |name: &str, why| Err(Fault::Name { name: cut(name), why });
    let mut seen = BTreeSet::new();
    for name in names {
        if let Some(why) = problem(name) {
            return fault(name, why);
        }
        if !seen.insert(name) {
            return fault(name, "it is there twice");
        }
    }
    let folder = |at: usize, name: &str| seen.contains(&name[..at]);
    for name in &seen {
        if name.match_indices('/').any(|(at, _)| folder(at, name)) {
            return fault(name, "another name is its folder");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_below_the_folder_are_good() {
        for good in ["m0000", "index", "other/0", "out.o", "a/b/c+d/e-f.o", "x..y"] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (bad, why) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("//x", "absolute"),
            ("..", "upward"),
            ("a/../../b", "upward"),
            ("a//b", "empty"),
            ("a/", "empty"),
            ("./a", "empty"),
            ("a/.", "empty"),
            ("a\0b", "NUL"),
            ("a b", "characters"),
            ("a\\b", "characters"),
            ("ä", "characters"),
            ("a\nb", "characters"),
            ("-o", "begins"),
            ("a/-x", "begins"),
            (".a", "begins"),
            ("a/b/c/d/e", "parts"),
            (&"a".repeat(201), "long"),
        ] {
            let found = problem(bad).unwrap_or_else(|| panic!("{bad:?} is taken"));
            assert!(found.contains(why), "{bad:?}: {found}");
        }
    }

    #[test]
    fn names_that_stand_in_each_others_way_are_refused() {
        assert!(check(["a", "b/c", "b/d", "b.e"]).is_ok());
        assert!(matches!(
            check(["a", "b", "a"]),
            Err(Fault::Name { why: "it is there twice", .. })
        ));
        for names in [["a/b", "a"], ["a", "a/b/c"]] {
            let found = check(names).unwrap_err().to_string();
            assert!(found.contains("another name is its folder"), "{found}");
        }
    }
}
