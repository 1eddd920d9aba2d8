//! Outputs: old ones out of the way, new ones checked and moved into place. "Made by this attempt" is
//! decided by fresh names, never by clocks. It does not know who made them.

pub mod object;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{MAIN_SEPARATOR as SEPARATOR, Path, PathBuf};

use anyhow::{Context, bail};

use crate::jobfile::{Job, Text};
use crate::os;

/// clang says these and exits 0 nevertheless, with an empty object (llvm#75441).
const FALSE_SUCCESS: [&str; 3] =
    ["Error loading index file", "Error loading imported file", "Error running ThinLTO backend"];

/// The words of a failure in what a compiler printed, although it may have exited 0.
pub fn false_success(printed: &[u8]) -> Option<&'static str> {
    let holds = |words: &&str| printed.windows(words.len()).any(|part| part == words.as_bytes());
    if printed.is_empty() { None } else { FALSE_SUCCESS.into_iter().find(holds) }
}

/// The folders in which attempts write: one beside each place that outputs go to, so that a rename within
/// one file system brings them there.
#[derive(Debug)]
pub struct Scratch {
    name: String,
    folders: BTreeMap<PathBuf, PathBuf>,
    /// The one for bundles and for what a tool keeps.
    bundles: PathBuf,
    /// Where the user wants that one.
    asked: Option<PathBuf>,
}

impl Scratch {
    /// Names the folders that `outputs` need; makes none yet. Bundles go to one in `bundles`, else beside
    /// the outputs.
    pub fn new<'a>(
        link: &str,
        outputs: impl Iterator<Item = &'a str>,
        bundles: Option<&Path>,
    ) -> Self {
        let name = format!(".dtlto-bridge-{link}");
        let mut folders = BTreeMap::new();
        for output in outputs {
            let place = folder_of(output);
            if !folders.contains_key(place) {
                folders.insert(place.to_owned(), place.join(&name));
            }
        }
        if let Some(place) = bundles {
            folders.insert(place.to_owned(), place.join(&name));
        }
        let first = || folders.values().next().cloned().unwrap_or_default();
        let asked = bundles.map(Path::to_owned);
        let bundles = bundles.map_or_else(first, |place| place.join(&name));
        Scratch { name, folders, bundles, asked }
    }

    /// Makes the folders.
    ///
    /// # Errors
    /// One cannot be made.
    pub fn make(&self) -> anyhow::Result<()> {
        for (place, folder) in &self.folders {
            let what = match &self.asked {
                Some(asked) if asked == place => "the folder of --scratch",
                _ => "the output folder",
            };
            match fs::create_dir(folder) {
                // This link's own: the place has two names.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
            .with_context(|| format!("cannot write into {what} {place:?}"))?;
        }
        Ok(())
    }

    /// The folders, to be removed when the link ends.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.values().map(PathBuf::as_path)
    }

    /// The folder for what an adapter's tool keeps while it runs; absolute.
    ///
    /// # Errors
    /// The current folder has no name.
    pub fn private(&self) -> io::Result<PathBuf> {
        std::path::absolute(self.bundles.join("tool"))
    }

    /// The folder for entries of a cache while they are used; absolute. It is not made yet.
    ///
    /// # Errors
    /// The current folder has no name.
    pub fn cache(&self) -> io::Result<PathBuf> {
        std::path::absolute(self.bundles.join("cache"))
    }

    /// The names of the bundles that go to and come from a worker in an attempt; absolute, since the clients of
    /// farms need the whole path, and with a suffix that distcc and icecream ship unread.
    /// The folder of the bundles of the link that makes `output`; absolute. Monitors of farms show its last part.
    ///
    /// # Errors
    /// The current folder has no name.
    pub fn requests(&self, output: &str) -> io::Result<PathBuf> {
        let name = Path::new(output).file_name().and_then(|name| name.to_str());
        std::path::absolute(self.bundles.join(plain(name.unwrap_or("link"))))
    }

    /// The names of the bundles that go to and come from a worker in an attempt of the job that compiles `module`,
    /// in the folder of the [`requests`](Scratch::requests): with an ending that distcc and icecream ship unread,
    /// and none of the names that icecream keeps here.
    ///
    /// # Errors
    /// The current folder has no name.
    pub fn bundles(
        &self,
        (job, attempt): (usize, usize),
        module: &str,
        output: &str,
    ) -> io::Result<[PathBuf; 2]> {
        let folder = self.requests(output)?;
        let again = if attempt > 1 { format!("a{attempt}") } else { String::new() };
        let module = Path::new(module).file_name().and_then(|name| name.to_str());
        let stem = format!("j{job}{again}.{}", plain(module.unwrap_or("module")));
        Ok(["i", "out"].map(|end| folder.join(format!("{stem}.{end}"))))
    }

    /// A name for this attempt at `output`, with the same ending.
    pub fn fresh(&self, output: &str, job: usize, attempt: usize) -> String {
        let end = output.len() - Path::new(output).file_name().map_or(0, |name| name.len());
        let ending = Path::new(output).extension().and_then(|e| e.to_str()).unwrap_or("o");
        // Built from the text as it is: `./a.o` stays beside `./`.
        format!("{}{}{SEPARATOR}{job}.{attempt}.{ending}", &output[..end], self.name)
    }
}

/// A name that nothing on its way needs to quote.
fn plain(name: &str) -> String {
    const LONGEST: usize = 80;
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.chars().take(LONGEST).map(|c| if harmless(c) { c } else { '_' }).collect()
}

fn folder_of(output: &str) -> &Path {
    match Path::new(output).parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Removes what an earlier link left under the names of a job's outputs.
///
/// # Errors
/// Something is there that cannot be removed.
pub fn remove_old(job: &Job) -> anyhow::Result<()> {
    for output in job.outputs() {
        match os::patiently(|| fs::remove_file(&**output)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("{output}: an old output cannot be removed"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks a job's outputs; its object lies at `object`, the others at their own names.
///
/// # Errors
/// One is not as it must be; the text names it and says why.
pub fn check(job: &Job, object: &str) -> anyhow::Result<()> {
    let others = job.other_outputs.iter().map(|other| (&**other, other));
    check_made([(object, &job.object)].into_iter().chain(others))
}

/// Checks outputs, the object first; each lies at the first of its two names, and is called by the second.
///
/// # Errors
/// As for [`check`].
pub fn check_made<'a>(made: impl Iterator<Item = (&'a str, &'a Text)>) -> anyhow::Result<()> {
    for (n, (at, name)) in made.enumerate() {
        let path = Path::new(at);
        let checked =
            if n == 0 { object::check_object(path) } else { object::check_file(path).map(drop) };
        checked.with_context(|| name.to_string())?;
    }
    Ok(())
}

/// Moves a checked object into its place.
///
/// # Errors
/// The rename failed.
pub fn deliver(from: &str, to: &str) -> io::Result<()> {
    if from == to { Ok(()) } else { os::patiently(|| fs::rename(from, to)) }
}

/// Removes what clang leaves beside `object` when it is killed: `<stem>-<8 hex digits><ending>.tmp`.
pub fn remove_leavings(object: &str) {
    let Some((stem, ending)) = split_name(object) else { return };
    let Ok(beside) = fs::read_dir(folder_of(object)) else { return };
    for entry in beside.flatten() {
        let name = entry.file_name();
        let middle = name
            .to_str()
            .and_then(|name| name.strip_prefix(stem)?.strip_suffix(".tmp")?.strip_suffix(ending))
            .and_then(|middle| middle.strip_prefix('-'));
        if middle.is_some_and(|m| m.len() == 8 && m.bytes().all(|b| b.is_ascii_hexdigit())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn split_name(path: &str) -> Option<(&str, &str)> {
    let name = Path::new(path).file_name()?.to_str()?;
    Some(name.rfind('.').map_or((name, ""), |dot| name.split_at(dot)))
}

/// Makes sure, before anything runs, that a job's outputs can be made where they are asked for.
///
/// # Errors
/// A folder is missing, or something that is no file has an output's name.
pub fn check_places(job: &Job) -> anyhow::Result<()> {
    for output in job.outputs() {
        let folder = folder_of(output);
        if !folder.is_dir() {
            bail!("{output}: there is no folder {folder:?} for it");
        }
        if fs::symlink_metadata(&**output).is_ok_and(|found| found.is_dir()) {
            bail!("{output}: a folder has the name of this output");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_success_is_seen_in_the_middle_of_the_output() {
        let printed = b"warning: x\nError loading index file 'a': no\n";
        assert_eq!(false_success(printed), Some("Error loading index file"));
        assert_eq!(false_success(b"warning: loading\n"), None);
        assert_eq!(false_success(b""), None);
    }

    #[test]
    fn attempts_lie_beside_their_output() {
        let scratch = Scratch::new("7f", ["a.o", "./b.obj", "/x y/c"].into_iter(), None);
        assert_eq!(scratch.fresh("a.o", 3, 1), ".dtlto-bridge-7f/3.1.o");
        assert_eq!(scratch.fresh("./b.obj", 4, 2), "./.dtlto-bridge-7f/4.2.obj");
        assert_eq!(scratch.fresh("/x y/c", 5, 1), "/x y/.dtlto-bridge-7f/5.1.o");
        let folders: Vec<&Path> = scratch.folders().collect();
        assert_eq!(folders, ["/x y/.dtlto-bridge-7f", "./.dtlto-bridge-7f"].map(Path::new));
    }

    #[test]
    fn bundles_lie_where_they_are_wanted() {
        let scratch = Scratch::new("7f", ["a.o"].into_iter(), Some(Path::new("/fast")));
        let bundles = |attempt| scratch.bundles((3, attempt), "o/a b(ü.o", "out/app").unwrap();
        let expected =
            ["i", "out"].map(|end| format!("/fast/.dtlto-bridge-7f/app/j3.a_b__.o.{end}"));
        assert_eq!(bundles(1), expected.map(PathBuf::from));
        assert_eq!(bundles(2)[0], Path::new("/fast/.dtlto-bridge-7f/app/j3a2.a_b__.o.i"));
        assert_eq!(scratch.private().unwrap(), Path::new("/fast/.dtlto-bridge-7f/tool"));
        assert_eq!(scratch.folders().count(), 2);
        let beside = Scratch::new("7f", ["/o/a.o"].into_iter(), None);
        assert_eq!(beside.requests("/").unwrap(), Path::new("/o/.dtlto-bridge-7f/link"));
    }

    #[test]
    fn only_what_clang_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a.1-0123abcd.o.tmp", "a.1-0123abcd.o", "a.1-xyz.o.tmp", "b.1-0123abcd.o.tmp"]
        {
            fs::write(path(name), "").unwrap();
        }
        remove_leavings(path("a.1.o").to_str().unwrap());
        assert!(!path("a.1-0123abcd.o.tmp").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
