//! Inputs: are they there, and do they stay as they were? clang makes a wrong object without a word from an
//! index that was emptied under it, so each file is looked at before and after every job that reads it. And
//! does an index belong to its job? A wrong one, too, goes unnoticed by clang.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};

use crate::bitcode::{self, Agreement, Change, Shard};
use crate::jobfile::{Job, JobFile, Text};
use crate::os::{self, Stat};

/// More problems than these are only counted.
const PROBLEMS_SHOWN: usize = 20;

/// What a file looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
}

impl From<Stat> for Stamp {
    fn from(found: Stat) -> Self {
        let Stat { device, inode, size, modified_ns, .. } = found;
        Stamp { device, inode, size, modified_ns }
    }
}

/// All inputs of a link as they were when the job file was read.
#[derive(Debug, Default)]
pub struct Inputs {
    stamps: HashMap<Text, Stamp>,
}

impl Inputs {
    /// Looks at each input once.
    ///
    /// # Errors
    /// Each input that is absent, empty or no regular file, in one line of its own.
    pub fn look(file: &JobFile) -> Result<Self, Vec<String>> {
        let mut inputs = Inputs::default();
        let mut problems = Vec::new();
        for (number, job) in file.jobs.iter().enumerate() {
            for input in job.inputs() {
                if inputs.stamps.contains_key(input) {
                    continue;
                }
                // A bad one is remembered too, so that it is told of once.
                let stamp = look_at(input).unwrap_or_else(|problem| {
                    problems.push(format!("jobs[{number}] ({}): {problem:#}", job.primary));
                    Stamp { device: 0, inode: 0, size: 0, modified_ns: 0 }
                });
                inputs.stamps.insert(input.clone(), stamp);
            }
        }
        inputs.find_endangered(file, &mut problems);
        if problems.is_empty() {
            return Ok(inputs);
        }
        let more = problems.len().saturating_sub(PROBLEMS_SHOWN);
        problems.truncate(PROBLEMS_SHOWN);
        if more > 0 {
            problems.push(format!("and {more} more inputs like these"));
        }
        Err(problems)
    }

    /// An old output that is an input under another name would be removed before the job reads it.
    fn find_endangered(&self, file: &JobFile, problems: &mut Vec<String>) {
        // Windows has no numbers for files on some network drives.
        let numbered = self.stamps.iter().filter(|(_, stamp)| stamp.inode != 0);
        let known: HashMap<(u64, u64), &Text> =
            numbered.map(|(name, stamp)| ((stamp.device, stamp.inode), name)).collect();
        for (number, job) in file.jobs.iter().enumerate() {
            for output in job.outputs() {
                let found = os::lstat(Path::new(&**output)).ok();
                if let Some(input) = found.and_then(|f| known.get(&(f.device, f.inode))) {
                    problems
                        .push(format!("jobs[{number}]: the output {output} is the input {input}"));
                }
            }
        }
    }

    /// The size of an input, in bytes.
    pub fn size(&self, input: &Text) -> u64 {
        self.stamps.get(input).map_or(0, |stamp| stamp.size)
    }

    /// The bytes of all jobs' inputs, and of the distinct files among them.
    pub fn bytes(&self, file: &JobFile) -> (u64, u64) {
        let all = file.jobs.iter().flat_map(Job::inputs).map(|input| self.size(input)).sum();
        (all, self.stamps.values().map(|stamp| stamp.size).sum())
    }

    /// Makes sure that a job's inputs are still what they were.
    ///
    /// # Errors
    /// One is not; the text names it.
    pub fn check(&self, job: &Job) -> anyhow::Result<()> {
        for input in job.inputs() {
            let now = os::stat(Path::new(&**input)).ok().map(Stamp::from);
            match (now, self.stamps.get(input)) {
                (Some(now), Some(then)) if now == *then => {}
                (None, _) => bail!("{input}: this input vanished while the link ran"),
                _ => bail!("{input}: this input changed while the link ran"),
            }
        }
        Ok(())
    }
}

fn look_at(input: &str) -> anyhow::Result<Stamp> {
    let found = match os::stat(Path::new(input)) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound && is_lld21_member(input) => bail!(
            "{input}: LLD 21 names this archive member but never extracts it; \
             use LLD 22 or newer, or a thin archive (ar --thin), or the objects themselves"
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{input}: there is no such input")
        }
        Err(error) => return Err(error).context(input.to_owned()),
    };
    if !found.is_file {
        bail!("{input}: this input is not a regular file");
    }
    if found.size == 0 {
        bail!("{input}: this input is empty; is the disk full, or was its maker interrupted?");
    }
    Ok(found.into())
}

/// `lib.a(b.o at 108)`: from 22 on LLD extracts such members and adds to the name.
fn is_lld21_member(input: &str) -> bool {
    let offset = input.strip_suffix(')').and_then(|rest| rest.rsplit_once(" at "));
    offset.is_some_and(|(_, digits)| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The index that a job is to read in place of its own, if LLD damaged the names in that: up to LLD 22 those
/// that are not ASCII are wrong there (llvm#194318), and clang would silently make a wrong object.
///
/// # Errors
/// The index names other modules than the job does, or cannot be repaired.
pub fn repaired_index(job: &Job) -> anyhow::Result<Option<Vec<u8>>> {
    let bytes = fs::read(Path::new(&*job.index)).with_context(|| job.index.to_string())?;
    // What is no shard that we understand is for clang to judge.
    let Ok(shard) = Shard::read(&bytes) else { return no_repair(job) };
    let mut names: Vec<&str> = job.imports.iter().map(|name| &**name).collect();
    names.push(&job.primary);
    names.sort_unstable();
    names.dedup();
    // Damage can reach the hash behind a name that looks right.
    let in_doubt = || names.iter().any(|name| bitcode::hash_in_doubt(name.as_bytes()));
    match bitcode::names_agree(&shard, &names) {
        Agreement::Same if !in_doubt() => Ok(None),
        Agreement::Same | Agreement::DamagedNonAscii => {
            let changes =
                names.iter().map(|name| renamed(name, name)).collect::<anyhow::Result<Vec<_>>>()?;
            Ok(Some(bitcode::rewrite(&bytes, &changes).with_context(|| damaged(job))?))
        }
        Agreement::Different { .. } => {
            bail!(
                "{}: this index names other modules than the job does: is it another job's?",
                job.index
            )
        }
    }
}

/// The entry of the module `name` in an index, to be called `new` there. Where LLD's damage may have reached
/// its hash, the true one is put in: names of promoted symbols are made from it.
///
/// # Errors
/// The module cannot be read.
pub fn renamed<'n>(name: &str, new: &'n str) -> anyhow::Result<Change<'n>> {
    let mut hash = None;
    if bitcode::hash_in_doubt(name.as_bytes()) {
        let module = fs::read(name).with_context(|| name.to_owned())?;
        hash = bitcode::module_hash(&module).with_context(|| name.to_owned())?;
    }
    Ok(Change { name: new.as_bytes(), hash })
}

/// An index that could not be read may be one of those that LLD damaged beyond reading.
fn no_repair(job: &Job) -> anyhow::Result<Option<Vec<u8>>> {
    let ascii = job.imports.iter().chain([&job.primary]).all(|name| name.is_ascii());
    if ascii { Ok(None) } else { bail!(damaged(job)) }
}

fn damaged(job: &Job) -> String {
    format!(
        "{}: LLD up to 22 damages module names that are not ASCII (llvm#194318), and these cannot be \
         repaired; use ASCII names for object files and their folders, or LLD 23",
        job.index
    )
}
