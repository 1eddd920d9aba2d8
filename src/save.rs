//! `--save DIR`: all that is needed to run a link's jobs again, on another machine too. Modules get names
//! of their own in the folder, in the order of the old ones, and each index is rewritten to match; the
//! objects' bytes depend on no more than that order. It does not run anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::json;

use crate::bitcode;
use crate::cli::Environment;
use crate::inputs;
use crate::jobfile::{Job, Text};
use crate::plan::Plan;
use crate::run::Jobs;

/// The job file of a saved link.
pub const JOB_FILE: &str = "jobs.json";
const OBJECTS: &str = "objects.json";
const README: &str = "\
A Distributed ThinLTO link that dtlto-bridge kept with --save. Run its jobs again with

    dtlto-bridge replay THIS-FOLDER [--compiler /path/to/clang] [--adapter NAME]

jobs.json     the jobs, as LLD writes them
in/           the bitcode modules; about.json has their names in the link
index/        the summary file of each job, with the names that the modules have here
other/        further inputs, such as a sample profile
out/          where the objects go
objects.json  digests (blake3) of the objects that the link made; a replay compares with them
about.json    where it came from; values of variables only where they are known to be harmless
";

/// What a saved link says of its origin.
pub struct About<'a> {
    /// The link's id.
    pub link: &'a str,
    /// The environment it had.
    pub environment: &'a Environment,
}

/// Saves a link before its jobs run. Returns notices on jobs that cannot be moved.
///
/// # Errors
/// The folder holds something already, or cannot be written.
pub fn save(folder: &Path, plan: &Plan, about: &About<'_>) -> anyhow::Result<Vec<String>> {
    let place = || folder.display().to_string();
    fs::create_dir_all(folder).with_context(place)?;
    if fs::read_dir(folder).with_context(place)?.next().is_some() {
        bail!("{} is not empty", folder.display());
    }
    for part in ["in", "index", "other", "out"] {
        fs::create_dir(folder.join(part)).with_context(place)?;
    }
    let moved = Moved::new(plan);
    let mut notices = Vec::new();
    for (from, to) in moved.modules.iter().chain(&moved.others) {
        fs::copy(&**from, folder.join(to)).with_context(|| from.to_string())?;
    }
    let jobs: Vec<_> = plan
        .file
        .jobs
        .iter()
        .enumerate()
        .map(|(number, job)| moved.job(folder, number, job, &mut notices))
        .collect::<anyhow::Result<_>>()?;
    let common = json!({
        "linker_output": plan.file.linker_output, "args": [plan.file.compiler],
        // What a job names itself, beyond primary and index, is an import.
        "inputs": moved.others.values().collect::<Vec<_>>(),
    });
    let origin = json!({
        "bridge": env!("CARGO_PKG_VERSION"), "link": about.link, "modules": moved.modules,
        "others": moved.others, "environment": about.environment.shown,
    });
    fs::write(folder.join("about.json"), format!("{origin:#}\n")).with_context(place)?;
    fs::write(folder.join("README"), README).with_context(place)?;
    // Last: a folder without it is not taken for a whole one.
    let file = json!({"common": common, "jobs": jobs});
    fs::write(folder.join(JOB_FILE), file.to_string()).with_context(place)?;
    Ok(notices)
}

/// The names that files have in the folder.
struct Moved {
    modules: BTreeMap<Text, String>,
    others: BTreeMap<Text, String>,
}

impl Moved {
    fn new(plan: &Plan) -> Self {
        let jobs = &plan.file.jobs;
        let modules: BTreeSet<&Text> =
            jobs.iter().flat_map(|job| job.imports.iter().chain([&job.primary])).collect();
        let others: BTreeSet<&Text> = jobs.iter().flat_map(|job| &job.other_inputs).collect();
        let width = modules.len().to_string().len().max(4);
        let name = |(n, module): (usize, &Text)| (module.clone(), format!("in/m{n:0width$}"));
        Moved {
            modules: modules.into_iter().enumerate().map(name).collect(),
            others: others
                .into_iter()
                .enumerate()
                .map(|(n, other)| (other.clone(), format!("other/{n}")))
                .collect(),
        }
    }

    /// Saves a job's index; returns the job as it stands in the saved job file.
    fn job(
        &self,
        folder: &Path,
        number: usize,
        job: &Job,
        notices: &mut Vec<String>,
    ) -> anyhow::Result<serde_json::Value> {
        let bytes = fs::read(&*job.index).with_context(|| job.index.to_string())?;
        let names: BTreeSet<&Text> = job.imports.iter().chain([&job.primary]).collect();
        let changes = names
            .iter()
            .map(|name| inputs::renamed(name, &self.modules[*name]))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let renamed = bitcode::rewrite(&bytes, &changes);
        let movable = renamed.is_ok();
        let renamed = renamed.unwrap_or_else(|refusal| {
            let module = &job.primary;
            notices.push(format!(
                "--save: {module} (jobs[{number}]) runs again only where its files have their old \
                 names: {refusal}"
            ));
            bytes
        });
        let index = format!("index/{number}.thinlto.bc");
        fs::write(folder.join(&index), renamed).with_context(|| index.clone())?;
        let modules = names;
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        if movable {
            names.extend(modules.iter().map(|old| (&***old, self.modules[*old].clone())));
        }
        names.extend(job.other_inputs.iter().map(|old| (&**old, self.others[old].clone())));
        names.insert(&job.index, index);
        for (n, output) in job.outputs().enumerate() {
            names.insert(output, saved_output(number, n, output));
        }
        let new = |old: &Text| names.get(&**old).cloned().unwrap_or_else(|| old.to_string());
        let inputs = [&job.primary, &job.index].into_iter().chain(&job.imports);
        Ok(json!({
            "args": job.args.iter().map(|arg| renamed_in(arg, &names)).collect::<Vec<_>>(),
            "inputs": inputs.map(new).collect::<Vec<_>>(),
            "outputs": job.outputs().map(new).collect::<Vec<_>>(),
        }))
    }
}

/// What the `n`th output of a job is called in the folder.
fn saved_output(job: usize, n: usize, output: &str) -> String {
    let ending = Path::new(output).extension().and_then(|e| e.to_str()).unwrap_or("o");
    format!("out/{job}.{n}.{ending}")
}

/// An argument that is one of the names, or an option with `=` and one of them.
fn renamed_in(arg: &str, names: &BTreeMap<&str, String>) -> String {
    if let Some(new) = names.get(arg) {
        return new.clone();
    }
    let option = arg.split_once('=').and_then(|(option, old)| Some((option, names.get(old)?)));
    option.map_or_else(|| arg.to_owned(), |(option, new)| format!("{option}={new}"))
}

/// Adds what the link made of the jobs.
///
/// # Errors
/// The file cannot be written.
pub fn finish(folder: &Path, plan: &Plan, jobs: &Jobs) -> anyhow::Result<()> {
    let digests: BTreeMap<String, &str> = plan
        .file
        .jobs
        .iter()
        .zip(jobs.iter())
        .enumerate()
        .filter_map(|(number, (job, progress))| {
            let object = progress.outputs.iter().find(|output| *output.path == *job.object)?;
            Some((saved_output(number, 0, &job.object), object.blake3.as_str()))
        })
        .collect();
    if digests.is_empty() {
        return Ok(());
    }
    let path = folder.join(OBJECTS);
    fs::write(&path, format!("{:#}\n", json!(digests))).with_context(|| path.display().to_string())
}

/// Compares the objects of a replay with those of the saved link: a line for people, and whether all of
/// them agree.
///
/// # Errors
/// The folder holds no digests that can be read.
pub fn compare(folder: &Path) -> anyhow::Result<(String, bool)> {
    let path = folder.join(OBJECTS);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(("the saved link made no objects to compare with".into(), true));
        }
        text => text.with_context(|| path.display().to_string())?,
    };
    let expected: BTreeMap<String, String> =
        serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let mut differing = Vec::new();
    for (object, digest) in &expected {
        let bytes = fs::read(folder.join(object)).with_context(|| object.clone())?;
        if blake3::hash(&bytes).to_string() != *digest {
            differing.push(object.as_str());
        }
    }
    let (all, same) = (expected.len(), expected.len() - differing.len());
    let mut line = format!("{same} of {all} objects are those of the saved link");
    if !differing.is_empty() {
        line += &format!("; different: {}", differing.join(", "));
    }
    Ok((line, differing.is_empty()))
}
