//! What lies where in an environment, and what its name is made of. It reads files for their digests, and writes
//! nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::bundle::{Digest, Shipped};
use crate::toolchain::{Elf, Library, Memory, Toolchain};

/// Goes into every name. To be raised when a worker of an older layout would not do.
const LAYOUT: u32 = 1;
const COMPILERS: &str = "opt/llvm/bin";
const LIBRARIES: &str = "opt/llvm/lib";
/// Where icecream looks for the compiler that it was called by.
pub(super) const WORKER: &str = "usr/bin/clang";
/// The worker's settings; they mark the root as an environment.
const SETTINGS: &str = "dtlto-environment.json";
/// The loader's folders for CPUs that can do more than the first of their kind.
const HWCAPS: &str = "glibc-hwcaps";

/// What lies at a path of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry<F> {
    Folder { mode: u32 },
    File { mode: u32, from: F },
    Link { to: String },
}

/// Where the bytes of a file come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

/// The same, with the digest of the bytes.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) source: Source,
    pub(super) blake3: Digest,
}

/// All that an environment is made of, by its paths below the root.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) platform: &'static str,
    entries: BTreeMap<String, Entry<Source>>,
}

/// The same, with the digests of all files.
#[derive(Debug)]
pub(super) struct Contents(pub(super) BTreeMap<String, Entry<Known>>);

impl Layout {
    /// What `toolchain` and `worker` become.
    pub(super) fn of(toolchain: &Toolchain, worker: &Path) -> Result<Layout> {
        let platform = toolchain.platform.context("no icecream node runs its machine code")?;
        let runs_on = program(worker)?.platform();
        ensure!(
            runs_on == Some(platform),
            "it runs on {platform}, but the worker {} on {}",
            worker.display(),
            runs_on.unwrap_or("another machine")
        );
        let mut layout = Layout { platform, entries: BTreeMap::new() };
        layout.add(WORKER, 0o755, worker)?;
        layout.entries.insert("usr/bin/as".to_owned(), Entry::Link { to: "clang".into() });
        layout.entries.insert("bin/true".to_owned(), Entry::Link { to: "../usr/bin/clang".into() });
        let compiler = layout.add_toolchain(toolchain)?;
        let settings = json!({
            "compilers": [format!("/{compiler}")],
            "library_path": [format!("/{LIBRARIES}")],
        });
        let settings = Source::Bytes(format!("{settings}\n").into_bytes());
        layout.insert(SETTINGS.to_owned(), 0o644, settings)?;
        layout.add_folders()?;
        Ok(layout)
    }

    /// Adds the compiler under the name that it is called by, which clang looks at; returns its path.
    fn add_toolchain(&mut self, toolchain: &Toolchain) -> Result<String> {
        let beside = |name: &str| format!("{COMPILERS}/{name}");
        let compiler = beside(file_name(&toolchain.compiler)?);
        self.add(&compiler, 0o755, &toolchain.binary)?;
        for path in &toolchain.config_files {
            // The compiler's own folder is the last one where clang looks for each of them.
            self.add(&beside(file_name(path)?), 0o644, path)?;
        }
        if let Some(ld_lld) = &toolchain.ld_lld {
            self.add(&beside("ld.lld"), 0o755, ld_lld)?;
        }
        let loader = toolchain.loader.as_deref();
        if let Some(loader) = loader {
            self.add(&below_root(loader)?, 0o755, loader)?;
        }
        for library in toolchain.libraries.iter().chain(&toolchain.linker_libraries) {
            // musl's libc and loader are one file.
            if Some(library.path.as_path()) != loader {
                self.add_library(library, toolchain)?;
            }
        }
        Ok(compiler)
    }

    fn add_library(&mut self, library: &Library, toolchain: &Toolchain) -> Result<()> {
        let Library { name, path } = library;
        let place = format!("{LIBRARIES}/{name}");
        let Some((baseline, level)) = without_hwcaps(path) else {
            return self.add(&place, 0o644, path);
        };
        let shown = path.display();
        ensure!(baseline.is_file(), "its library {shown} is there for CPUs with {level} only");
        // Other code, or mathematics, could make another object.
        let counts = toolchain.identity.parts.contains_key(name);
        let same = || Ok::<_, std::io::Error>(std::fs::read(&baseline)? == std::fs::read(path)?);
        ensure!(
            !counts || same().with_context(|| shown.to_string())?,
            "its library {shown} is for CPUs with {level}, which not every node has"
        );
        self.add(&place, 0o644, &baseline)
    }

    fn add(&mut self, place: &str, mode: u32, path: &Path) -> Result<()> {
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        self.insert(place.to_owned(), mode, Source::Path(path))
    }

    fn insert(&mut self, place: String, mode: u32, from: Source) -> Result<()> {
        let new = Entry::File { mode, from };
        match self.entries.get(&place) {
            None => drop(self.entries.insert(place, new)),
            Some(old) if *old == new => {}
            Some(_) => bail!("two of its files have to be {place}"),
        }
        Ok(())
    }

    /// All folders above the files, and the one that jobs work in.
    fn add_folders(&mut self) -> Result<()> {
        let mut folders = BTreeMap::from([("tmp".to_owned(), Entry::Folder { mode: 0o1777 })]);
        for place in self.entries.keys() {
            for (at, _) in place.match_indices('/') {
                let folder = &place[..at];
                ensure!(
                    !self.entries.contains_key(folder),
                    "{folder} has to be a folder and a file"
                );
                folders.entry(folder.to_owned()).or_insert(Entry::Folder { mode: 0o755 });
            }
        }
        self.entries.append(&mut folders);
        Ok(())
    }

    /// Looks up or reads the digests of all files.
    pub(super) fn contents(&self, memory: &mut Memory) -> Result<Contents> {
        let known = |source: &Source, memory: &mut Memory| -> Result<Known> {
            let blake3 = match source {
                Source::Path(path) => memory.digest(path)?.parse().ok().context("no digest")?,
                Source::Bytes(bytes) => Digest::of(bytes),
            };
            Ok(Known { source: source.clone(), blake3 })
        };
        let mut contents = BTreeMap::new();
        for (place, entry) in &self.entries {
            let entry = match entry {
                Entry::Folder { mode } => Entry::Folder { mode: *mode },
                Entry::Link { to } => Entry::Link { to: to.clone() },
                Entry::File { mode, from } => {
                    Entry::File { mode: *mode, from: known(from, memory)? }
                }
            };
            contents.insert(place.clone(), entry);
        }
        Ok(Contents(contents))
    }
}

impl Contents {
    /// The name of an archive of this content.
    pub(super) fn name(&self, salt: &str) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut take = |text: &[u8]| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text);
        };
        take(&LAYOUT.to_le_bytes());
        take(salt.as_bytes());
        for (place, entry) in &self.0 {
            take(place.as_bytes());
            match entry {
                Entry::Folder { mode } => take(format!("folder {mode:o}").as_bytes()),
                Entry::Link { to } => take(format!("link {to}").as_bytes()),
                Entry::File { mode, from } => {
                    take(format!("file {mode:o} {}", from.blake3).as_bytes());
                }
            }
        }
        format!("dtlto-{}", &hasher.finalize().to_hex()[..32])
    }

    /// What requests say of the files.
    pub(super) fn shipped(&self) -> Result<Vec<Shipped>> {
        let shipped = |(place, entry): (&String, &Entry<Known>)| {
            let Entry::File { from: Known { source, blake3 }, .. } = entry else { return None };
            let about = match source {
                Source::Bytes(bytes) => Ok((bytes.len() as u64, None)),
                Source::Path(path) => length_and_build_id(path),
            };
            let whole = |(length, build_id)| Shipped {
                path: place.clone(),
                length,
                build_id,
                blake3: *blake3,
            };
            Some(about.map(whole))
        };
        self.0.iter().filter_map(shipped).collect()
    }
}

fn length_and_build_id(path: &Path) -> Result<(u64, Option<String>)> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let length = file.metadata().with_context(|| path.display().to_string())?.len();
    Ok((length, Elf::read(&file).ok().and_then(|elf| elf.build_id)))
}

fn program(path: &Path) -> Result<Elf> {
    let read = || Elf::read(&File::open(path)?);
    read().with_context(|| path.display().to_string())
}

fn file_name(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.with_context(|| format!("{path:?} has no name that is text"))
}

/// An absolute path as a path below the root.
fn below_root(path: &Path) -> Result<String> {
    let part = |component| match component {
        Component::RootDir => None,
        Component::Normal(name) => Some(name.to_str().context("its path is not UTF-8")),
        _ => Some(Err(anyhow::anyhow!("its path goes up"))),
    };
    let parts = path.components().filter_map(part).collect::<Result<Vec<_>>>();
    Ok(parts.with_context(|| path.display().to_string())?.join("/"))
}

/// The same file for every CPU, if this one is for some of them; and for which.
fn without_hwcaps(path: &Path) -> Option<(PathBuf, String)> {
    let mut parts: Vec<_> = path.components().collect();
    let at = parts.iter().position(|part| part.as_os_str() == HWCAPS)?;
    let level = parts.drain(at..=at + 1).nth(1)?.as_os_str().to_string_lossy().into_owned();
    Some((parts.iter().collect(), level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_for_some_cpus_is_known_by_its_folder() {
        let path = Path::new("/usr/lib/glibc-hwcaps/x86-64-v3/libz.so.1");
        assert_eq!(without_hwcaps(path), Some(("/usr/lib/libz.so.1".into(), "x86-64-v3".into())));
        assert_eq!(without_hwcaps(Path::new("/usr/lib/libz.so.1")), None);
    }

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(below_root(Path::new("/lib64/ld.so")).unwrap(), "lib64/ld.so");
        assert!(below_root(Path::new("/lib64/../ld.so")).is_err());
    }
}
