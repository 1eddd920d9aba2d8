//! What decides about the bytes of an object, as it travels in bundles and cache keys, and how two of them are
//! compared. It does not know how an identity is found out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Math;

/// The name of the part that is the class of the compiler's mathematics.
pub const MATH_CLASS: &str = "math class";
/// What comes from another host is shown up to this many characters, and this many parts.
const SHOWN_CHARS: usize = 60;
const SHOWN_PARTS: usize = 4;

/// What decides about the bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The first line of `clang --version`, such as `Debian clang version 22.1.8 (1~deb12u1)`.
    pub version: String,
    /// What `code` is made of: names of files (`clang` for the program itself) with the BLAKE3 of their bytes in
    /// hex, and the class of the mathematics in words.
    pub parts: BTreeMap<String, String>,
    /// A digest of the parts: hosts of the same make the same objects.
    pub code: String,
    /// A digest of the code and of all other libraries that are loaded: for cache keys.
    pub full: String,
}

impl Identity {
    /// Digests what a compiler is made of; `others` are libraries that hold no code of LLVM.
    pub(super) fn new(
        version: String,
        parts: BTreeMap<String, String>,
        others: &BTreeMap<String, String>,
        math: Math,
    ) -> Self {
        let counts = |(name, _): &(&String, &String)| math == Math::Strict || !is_math(name);
        let code = digest_of(parts.iter().filter(counts).chain([(&"version".into(), &version)]));
        let full = digest_of(others.iter().filter(counts).chain([(&"code".into(), &code)]));
        Identity { version, parts, code, full }
    }

    /// The version's number, such as `22.1.8`, for people.
    pub fn form(&self) -> String {
        let number = self.version.split_once("clang version ").map_or("", |(_, rest)| rest);
        let number = number.split_whitespace().next().unwrap_or("unknown");
        shown(number)
    }

    /// Why a host whose compiler is `other` may not do the jobs of a link whose compiler is this one, in
    /// words for the log of that host and for the link's user. None: it may.
    pub fn difference(&self, other: &Identity, math: Math) -> Option<String> {
        if self.version != other.version {
            let (mut there, mut here) = (self.form(), other.form());
            if there == here {
                (there, here) = (shown(&self.version), shown(&other.version));
            }
            return Some(format!("this host has clang {here}, the link was made by {there}"));
        }
        let mut names: Vec<_> = self.parts.keys().chain(other.parts.keys()).collect();
        // The compiler's own files first: where they differ, libm hardly matters.
        names.sort_by_key(|name| (is_math(name), *name));
        names.dedup();
        names.retain(|name| math == Math::Strict || !is_math(name));
        let mut differences: Vec<_> =
            names.into_iter().filter_map(|name| self.part_differs(other, name)).collect();
        let more = differences.len().saturating_sub(SHOWN_PARTS);
        differences.truncate(SHOWN_PARTS);
        if more > 0 {
            differences.push(format!("{more} more parts differ"));
        }
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    fn part_differs(&self, other: &Identity, name: &str) -> Option<String> {
        let (there, here) = (self.parts.get(name), other.parts.get(name));
        if there == here {
            return None;
        }
        if name == MATH_CLASS {
            let text =
                |class: Option<&String>| class.map_or("unknown".into(), |class| shown(class));
            return Some(format!("{name}: {} here, {} there", text(here), text(there)));
        }
        let name = shown(name);
        Some(match (there, here) {
            (Some(_), None) => format!("this host's clang has no {name}, the link's has one"),
            (None, Some(_)) => format!("this host's clang has a {name}, the link's has none"),
            _ => format!("{name} differs"),
        })
    }
}

/// A part that decides about last bits of folded mathematics only.
pub(super) fn is_math(name: &str) -> bool {
    // musl has its libm in its libc.
    name == MATH_CLASS
        || ["libm.so", "libm-", "libc.musl"].iter().any(|start| name.starts_with(start))
        || name == "libc.so"
}

/// A digest of names and values.
pub(super) fn digest_of<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in pairs.into_iter().flat_map(|(name, value)| [name, value]) {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Without control characters, and not too long: it may come from a stranger.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(version: &str, parts: &[(&str, &str)]) -> Identity {
        let parts = parts.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        let version = format!("Debian clang version {version}");
        Identity::new(version, parts, &BTreeMap::new(), Math::Strict)
    }

    const PARTS: [(&str, &str); 4] =
        [("clang", "c"), ("libLLVM.so.22.1", "l"), ("libm.so.6", "m"), (MATH_CLASS, "none")];

    /// What differs when one part has another value, or none.
    fn differs(name: &str, value: Option<&str>, math: Math) -> Option<String> {
        let mut parts = PARTS.to_vec();
        parts.retain(|part| part.0 != name);
        parts.extend(value.map(|value| (name, value)));
        identity("22.1.8 (1)", &PARTS).difference(&identity("22.1.8 (1)", &parts), math)
    }

    #[test]
    fn equal_ones_do_not_differ() {
        assert_eq!(differs("clang", Some("c"), Math::Strict), None);
    }

    #[test]
    fn another_version_is_all_that_is_told() {
        let link = identity("22.1.8 (1)", &PARTS);
        assert_eq!(link.form(), "22.1.8");
        assert_eq!(
            link.difference(&identity("22.1.7 (1)", &[]), Math::Strict).unwrap(),
            "this host has clang 22.1.7, the link was made by 22.1.8"
        );
        assert_eq!(
            link.difference(&identity("22.1.8 (2)", &PARTS), Math::Strict).unwrap(),
            "this host has clang Debian clang version 22.1.8 (2), \
             the link was made by Debian clang version 22.1.8 (1)"
        );
    }

    #[test]
    fn parts_are_named() {
        let text = |name, value| differs(name, value, Math::Strict).unwrap();
        assert_eq!(text("libm.so.6", Some("x")), "libm.so.6 differs");
        assert_eq!(text(MATH_CLASS, Some("avx2 fma")), "math class: avx2 fma here, none there");
        assert_eq!(
            text("clang.cfg", Some("x")),
            "this host's clang has a clang.cfg, the link's has none"
        );
        assert_eq!(
            text("libLLVM.so.22.1", None),
            "this host's clang has no libLLVM.so.22.1, the link's has one"
        );
    }

    #[test]
    fn the_compiler_comes_before_the_mathematics() {
        let other = identity(
            "22.1.8 (1)",
            &[("clang", "c"), ("libLLVM.so.22.1", "x"), ("libm.so.6", "x"), (MATH_CLASS, "none")],
        );
        let text = identity("22.1.8 (1)", &PARTS).difference(&other, Math::Strict).unwrap();
        assert_eq!(text, "libLLVM.so.22.1 differs; libm.so.6 differs");
    }

    #[test]
    fn mathematics_can_be_let_pass_and_nothing_else() {
        assert_eq!(differs("libm.so.6", Some("x"), Math::Any), None);
        assert_eq!(differs("libm.so.6", None, Math::Any), None);
        assert_eq!(differs(MATH_CLASS, Some("avx2 fma"), Math::Any), None);
        assert_eq!(differs("clang", Some("x"), Math::Any).unwrap(), "clang differs");
    }

    #[test]
    fn the_digest_counts_what_the_comparison_counts() {
        let of = |class: &str, math| {
            let parts = [("clang", "c"), (MATH_CLASS, class)];
            let parts = parts.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Identity::new("clang version 1".into(), parts.into(), &BTreeMap::new(), math).code
        };
        assert_ne!(of("none", Math::Strict), of("fma4", Math::Strict));
        assert_eq!(of("none", Math::Any), of("fma4", Math::Any));
    }

    #[test]
    fn a_strangers_words_are_shown_tamely() {
        let long = "\u{1b}[2J".repeat(10_000);
        let parts: Vec<_> = (0..1000).map(|i| format!("{i}{long}")).collect();
        let parts: Vec<_> = parts.iter().map(|name| (name.as_str(), "x")).collect();
        let stranger = identity("22.1.8 (1)", &parts);
        let text = stranger.difference(&identity("22.1.8 (1)", &PARTS), Math::Strict).unwrap();
        assert!(text.len() < 3000 && !text.contains('\u{1b}'), "{text}");
        let text = identity(&long, &[]).difference(&identity("1", &[]), Math::Strict).unwrap();
        assert!(text.len() < 1000 && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn it_travels_as_json() {
        let identity = identity("22.1.8", &PARTS);
        let text = serde_json::to_string(&identity).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
    }
}
