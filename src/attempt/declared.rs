//! An attempt by a tool that ships the files that it is told of, and whose log tells where the object was made. The
//! index gets a name that is the same in the next link, so that the tool knows the job again.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, absolute};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Report, RunCommand, Setup, Verdict, client, failed, judge, refused};
use crate::adapter::Place;
use crate::cache::dist::Dist;
use crate::cli::Fallback;
use crate::collect;
use crate::inputs;
use crate::jobfile::Job;
use crate::outcome::Outcome;
use crate::parcel::{self, HOLDS_NAMES};
use crate::plan::Names;
use crate::process::{Command, Groups};

/// Why a job stays here whose files cannot be listed.
const SPLIT: &str = "the name of a file or folder has a colon or a new line in it";
/// For a server that has died to be there again.
const REVIVED_WITHIN: Duration = Duration::from_secs(12);

/// Runs the client and asks the log what it did.
pub(super) fn tried(
    setup: &Setup,
    (dist, groups): (&Dist, &Groups),
    report: &mut Report,
    run: RunCommand<'_>,
) -> Verdict {
    let job = &setup.plan.file.jobs[report.which.job];
    let (object, last) = object(setup, report);
    let (command, _index) = match prepare(setup, report, &object) {
        Ok(Ok(prepared)) => prepared,
        Ok(Err(why)) => return (Outcome::StaysHere, why),
        Err(error) => return refused(error),
    };
    if let Err(trouble) = dist.revive(groups, Instant::now() + REVIVED_WITHIN) {
        return (Outcome::FarmDown, trouble.to_string());
    }
    report.made.push((object.clone(), job.object.clone()));
    let ended = match run(&command) {
        Ok(ended) => ended,
        Err(verdict) => return verdict,
    };
    report.printed = ended.output;
    if let Err(error) = setup.inputs.check(job) {
        return refused(error);
    }
    report.told = Some(dist.told(&last));
    if !ended.status.success() {
        return failed(setup, Place::Farm, ended.status);
    }
    judge(&report.printed, collect::check(job, &object))
}

/// The object's path, and its last part, which no other attempt of any link has: the log has no more.
fn object(setup: &Setup, report: &Report) -> (String, String) {
    let job = &setup.plan.file.jobs[report.which.job];
    let fresh = setup.scratch.fresh(&job.object, report.which.job, report.which.number);
    let (folder, last) = fresh.rsplit_once('/').unwrap_or((".", &fresh));
    let last = format!("{}-{last}", setup.link);
    (format!("{folder}/{last}"), last)
}

/// The command, and the index that goes with it; or why the job stays here.
fn prepare(
    setup: &Setup,
    report: &Report,
    object: &str,
) -> anyhow::Result<Result<(Command, Option<Index>), String>> {
    let which = report.which;
    let job = &setup.plan.file.jobs[which.job];
    setup.inputs.check(job)?;
    // Else the tool would know what another compiler makes by the digest of this one.
    setup.toolchain.as_ref().map_or(Ok(()), |toolchain| toolchain.still_same())?;
    match parcel::holds_names(job, &setup.library) {
        Ok(false) => {}
        Ok(true) => return Ok(Err(HOLDS_NAMES.into())),
        Err(why) => return Ok(Err(why)),
    }
    let index = Index::new(&setup.plan.file.linker_output, job, object)?;
    collect::remove_old(job)?;
    let path = index.as_ref().map_or(&*job.index, |index| &index.0);
    let beside =
        [path].into_iter().chain(job.imports.iter().chain(&job.other_inputs).map(|t| &**t));
    let beside = beside.map(|file| Ok(absolute(file)?.display().to_string()));
    let beside = beside.collect::<anyhow::Result<Vec<_>>>()?;
    if beside.iter().any(|file| file.contains([':', '\n'])) {
        return Ok(Err(SPLIT.into()));
    }
    let names = Names {
        object: object.to_owned(),
        index: Some(path.to_owned()),
        declared: beside.join(":"),
        ..setup.names()
    };
    let mut command = client(setup, which.job, Place::Farm, &names)?;
    if which.number > 1 && setup.plan.limits.fallback == Fallback::Never {
        // The attempt before may have been made here, and be in the storage now.
        command.set.push(("SCCACHE_RECACHE".into(), "1".into()));
    }
    Ok(Ok((command, index)))
}

/// A job's index under another name, which goes with this.
struct Index(String);

impl Index {
    /// The name that every link of `output` has for this job's index: its text is part of what the tool knows jobs by.
    /// Nothing if somebody else has that name now; a repaired index is then beside `object`.
    fn new(output: &str, job: &Job, object: &str) -> anyhow::Result<Option<Self>> {
        let repaired = inputs::repaired_index(job)?;
        let stable = stable_name(output, job);
        let made = match &repaired {
            None => fs::hard_link(&*job.index, &stable),
            Some(bytes) => create(&stable, bytes),
        };
        match (made, repaired) {
            (Ok(()), _) => Ok(Some(Index(stable))),
            (Err(error), Some(bytes)) if error.kind() == ErrorKind::AlreadyExists => {
                let path = format!("{object}.thinlto.bc");
                create(&path, &bytes).with_context(|| path.clone())?;
                Ok(Some(Index(path)))
            }
            // Some file systems know no links, some folders are read-only: then no later link finds it again.
            (Err(_), None) => Ok(None),
            (Err(error), Some(_)) => Err(error).with_context(|| stable),
        }
    }
}

fn create(path: &str, bytes: &[u8]) -> std::io::Result<()> {
    fs::File::create_new(path)?.write_all(bytes)
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Beside the job's own index, by what is linked and the module.
pub fn stable_name(output: &str, job: &Job) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(output.as_bytes()).update(&[0]).update(job.primary.as_bytes());
    let name = format!(".dtlto-index-{}.thinlto.bc", &hasher.finalize().to_hex()[..16]);
    let folder = job.index.rfind('/').map_or("", |end| &job.index[..=end]);
    Path::new(folder).join(name).display().to_string()
}
