//! Where manifests are kept: embedded, in the user's folder, or in a file that is named. Knows nothing of
//! what stands in them, and never takes a bare name from the current directory: a manifest runs programs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
use std::io::{self, Read};
use std::path::{self, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::check::is_name;
use super::{Manifest, Source};

/// The built-in manifests by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("distcc", include_str!("../../adapters/distcc.json")),
    ("ib_console", include_str!("../../adapters/ib_console.json")),
    ("icecc", include_str!("../../adapters/icecc.json")),
    ("local", include_str!("../../adapters/local.json")),
    ("sccache", include_str!("../../adapters/sccache.json")),
    ("xgconsole", include_str!("../../adapters/xgconsole.json")),
];

/// The most bytes that a manifest's file may have.
const MAX_BYTES: u64 = 1 << 20;

/// One line of the list of adapters.
#[derive(Debug)]
pub struct Entry {
    /// What `--adapter` calls it.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// The manifest, or why it cannot be used.
    pub manifest: Result<Manifest>,
    /// Whether it takes the place of a built-in adapter of the same name.
    pub hides_built_in: bool,
}

/// Loads the adapter that `--adapter` names: a file if the value ends in `.json` or holds a slash, else
/// `NAME.json` in `user_folder`, else the built-in one.
///
/// A `user_folder` that is not absolute is passed over: it would depend on the current directory.
///
/// # Errors
/// For an unknown name, with the known ones; for a file that cannot be read, is no regular file or has more
/// than 1 MiB; and for those of [`Manifest::parse`].
pub fn load(name_or_file: &str, user_folder: Option<&Path>) -> Result<Manifest> {
    if name_or_file.ends_with(".json") || name_or_file.contains(path::is_separator) {
        return load_file(Path::new(name_or_file));
    }
    if let Some(folder) = absolute(user_folder)
        && is_name(name_or_file)
    {
        let file = folder.join(format!("{name_or_file}.json"));
        // Not `exists`: a link to nowhere is a mistake to be told, not a reason to use another adapter.
        match fs::symlink_metadata(&file).map_err(|error| error.kind()) {
            Err(NotFound) => {}
            // A home that is no folder, or somebody else's, as after `su`, holds no adapters of this user.
            Err(NotADirectory | PermissionDenied) => {}
            _ => return load_file(&file),
        }
    }
    if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_file) {
        return Manifest::parse(text, Source::BuiltIn);
    }
    let known: Vec<_> = available(user_folder).into_iter().map(|entry| entry.name).collect();
    bail!(
        "no adapter is called {name_or_file:?}; known: {}; a file needs a slash or .json at its end",
        known.join(", ")
    )
}

/// All adapters that can be named, by name; a user's one stands in the place of a built-in one.
///
/// A folder that cannot be listed is an entry of its own, with the error.
pub fn available(user_folder: Option<&Path>) -> Vec<Entry> {
    let mut entries: BTreeMap<String, Entry> = BUILT_IN
        .iter()
        .map(|&(name, text)| {
            let manifest = Manifest::parse(text, Source::BuiltIn);
            (name.to_owned(), entry(name.to_owned(), Source::BuiltIn, manifest))
        })
        .collect();
    let Some(folder) = absolute(user_folder) else { return entries.into_values().collect() };
    match json_files(folder) {
        Ok(files) => {
            for file in files {
                let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let mut entry = entry(name.clone(), Source::File(file.clone()), load_file(&file));
                entry.hides_built_in = BUILT_IN.iter().any(|(built_in, _)| *built_in == name);
                entries.insert(name, entry);
            }
        }
        Err(error) => {
            let name = folder.display().to_string();
            let entry = entry(name.clone(), Source::File(folder.to_owned()), Err(error));
            entries.insert(name, entry);
        }
    }
    entries.into_values().collect()
}

fn entry(name: String, source: Source, manifest: Result<Manifest>) -> Entry {
    Entry { name, source, manifest, hides_built_in: false }
}

fn absolute(user_folder: Option<&Path>) -> Option<&Path> {
    user_folder.filter(|folder| folder.is_absolute())
}

/// The files of `folder` that end in `.json`; none if there is no such folder.
fn json_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    };
    match list() {
        Ok(mut files) => {
            files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
            Ok(files)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            Err(error).with_context(|| format!("cannot list the adapters in {}", folder.display()))
        }
    }
}

fn load_file(file: &Path) -> Result<Manifest> {
    let text = read(file).with_context(|| format!("cannot read the adapter {}", file.display()))?;
    Manifest::parse(&text, Source::File(file.to_owned()))
}

fn read(file: &Path) -> Result<String> {
    // Asked before it is opened: to open a pipe waits, to open a device can do anything.
    ensure!(fs::metadata(file)?.is_file(), "it is not a regular file");
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= MAX_BYTES, "it has more than 1 MiB");
    String::from_utf8(bytes).context("it is not UTF-8")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const LOCAL: &str = include_str!("../../adapters/local.json");

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn called(name: &str) -> String {
        LOCAL.replace(r#""name": "local""#, &format!(r#""name": "{name}""#))
    }

    fn error(name: &str, user_folder: Option<&Path>) -> String {
        format!("{:#}", load(name, user_folder).unwrap_err())
    }

    #[test]
    fn every_built_in_manifest_loads_under_its_name() {
        for (name, _) in BUILT_IN {
            let manifest = load(name, None).unwrap();
            assert_eq!(manifest.name, *name);
            assert_eq!(manifest.source, Source::BuiltIn);
        }
    }

    #[test]
    fn every_manifest_of_the_repository_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters");
        let mut files = json_files(&folder).unwrap();
        files.sort();
        let names: Vec<_> = files.iter().map(|file| file.file_stem().unwrap()).collect();
        let built_in: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, built_in);
        let listed: Vec<_> = available(None).into_iter().map(|entry| entry.name).collect();
        assert_eq!(listed, built_in);
    }

    #[test]
    fn a_users_manifest_stands_before_the_built_in_one() {
        let user = folder(&[("local.json", LOCAL), ("mine.json", &called("mine"))]);
        let file = user.path().join("local.json");
        let manifest = load("local", Some(user.path())).unwrap();
        assert_eq!(manifest.source, Source::File(file.clone()));
        assert_eq!(load("mine", Some(user.path())).unwrap().name, "mine");
        let entries = available(Some(user.path()));
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.manifest.is_ok(), entry.hides_built_in))
            .collect();
        assert_eq!(seen.len(), BUILT_IN.len() + 1);
        assert!(seen.contains(&("local", true, true)) && seen.contains(&("mine", true, false)));
        let local = entries.iter().find(|entry| entry.name == "local").unwrap();
        assert_eq!(local.source, Source::File(file));
    }

    #[test]
    fn a_broken_manifest_of_the_user_is_an_error_and_not_passed_over() {
        let user = folder(&[("local.json", "{}"), ("other.json", LOCAL), ("no.txt", "")]);
        let file = user.path().join("local.json");
        let expected =
            format!("adapter {}: missing field `schema` at line 1 column 2", file.display());
        assert_eq!(error("local", Some(user.path())), expected);
        let entries = available(Some(user.path()));
        let errors: Vec<_> = entries
            .into_iter()
            .filter_map(|entry| Some((entry.name, entry.manifest.err()?.to_string())))
            .collect();
        assert_eq!(errors[0], ("local".to_owned(), expected));
        assert_eq!(errors[1].0, "other");
        assert!(errors[1].1.ends_with("name: \"local\" must be the name of its file, local.json"));
        assert_eq!(errors.len(), 2);
    }

    #[test]
    fn a_value_with_a_slash_or_json_at_its_end_is_a_file() {
        let user = folder(&[("mine.json", &called("mine")), ("mine", &called("mine"))]);
        for file in ["mine.json", "mine"] {
            let file = user.path().join(file);
            let manifest = load(file.to_str().unwrap(), None).unwrap();
            assert_eq!(manifest.source, Source::File(file));
        }
        let error = error("local.json", Some(user.path()));
        assert!(error.starts_with("cannot read the adapter local.json: No such file"), "{error}");
    }

    #[test]
    fn a_bare_name_is_never_a_file_of_the_current_directory() {
        // Tests run in the package's root: `adapters` holds `local.json`, were it looked into.
        for folder in ["adapters", "./adapters", ""] {
            let manifest = load("local", Some(Path::new(folder))).unwrap();
            assert_eq!(manifest.source, Source::BuiltIn);
            assert!(available(Some(Path::new(folder))).iter().all(|entry| !entry.hides_built_in));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let user = folder(&[("mine.json", "")]);
        let expected = |name| {
            format!(
                "no adapter is called {name:?}; known: distcc, ib_console, icecc, local, mine, sccache, xgconsole; a file needs a slash or .json at its end"
            )
        };
        for name in ["farmer", "", "..", "Local", "mine\n"] {
            assert_eq!(error(name, Some(user.path())), expected(name));
        }
        let none = user.path().join("none");
        assert!(
            error("x", Some(&none))
                .contains("known: distcc, ib_console, icecc, local, sccache, xgconsole; ")
        );
    }

    #[test]
    fn a_folder_that_cannot_be_listed_is_an_entry_with_the_error() {
        let user = folder(&[("file", "")]);
        let file = user.path().join("file");
        let entries = available(Some(&file));
        let broken =
            entries.iter().find(|entry| entry.source == Source::File(file.clone())).unwrap();
        let error = broken.manifest.as_ref().unwrap_err().to_string();
        assert_eq!(error, format!("cannot list the adapters in {}", file.display()));
        assert_eq!(entries.len(), BUILT_IN.len() + 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_a_regular_file_of_text_and_fitting_size_is_read() {
        let user = folder(&[]);
        let path = |name: &str| user.path().join(name);
        fs::create_dir(path("folder.json")).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe.json"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .unwrap();
        fs::write(path("big.json"), vec![b' '; (1 << 20) + 1]).unwrap();
        fs::write(path("bytes.json"), b"\xff").unwrap();
        std::os::unix::fs::symlink("nowhere", path("link.json")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("device.json")).unwrap();
        for (name, expected) in [
            ("folder", "it is not a regular file"),
            ("pipe", "it is not a regular file"),
            ("device", "it is not a regular file"),
            ("big", "it has more than 1 MiB"),
            ("bytes", "it is not UTF-8"),
            ("link", "No such file"),
        ] {
            let file = path(&format!("{name}.json"));
            let error = error(name, Some(user.path()));
            let expected = format!("cannot read the adapter {}: {expected}", file.display());
            assert!(error.starts_with(&expected), "{error}");
        }
        fs::write(path("local.json"), LOCAL.to_owned() + &" ".repeat((1 << 20) - LOCAL.len()))
            .unwrap();
        assert!(load("local", Some(user.path())).is_ok());
    }
}
