//! LLD's JSON job file, whichever dialect it is in, as one [`JobFile`].
//! Checks what the file alone can show. Touches no other file: whether inputs exist, and whether two spellings name the
//! same file, is for later phases. Does not know what the arguments mean, nor how a job is run.

mod gen1;
mod json;
mod landed;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail, ensure};
use json::{At, Node, Reader, Record};
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::iter::once;
use std::path::Path;
use std::sync::Arc;

/// A string of the job file. Equal ones share memory: LLD names the same import in many jobs.
pub type Text = Arc<str>;

/// Bytes. Far above the job file of any program known, and it is all held in memory.
const MAX_FILE: u64 = 1 << 32;

/// Copies of what all jobs have in common: 64 arguments for half a million jobs.
const MAX_COPIES: usize = 1 << 25;

/// What LLD asks for: the backend compiles of one link.
#[derive(Debug)]
pub struct JobFile {
    /// The program or library being linked, spelled as on the link line; `-` is standard output.
    pub linker_output: Text,
    /// The compiler of all jobs: the first of the common arguments.
    pub compiler: Text,
    /// The compiles, in LLD's order.
    pub jobs: Vec<Job>,
    /// What users should be told though the file can be used, such as unknown fields.
    pub notices: Vec<String>,
}

/// One backend compile. Paths are relative to the linker's working directory.
#[derive(Clone, Debug)]
pub struct Job {
    /// The whole command without the compiler.
    pub args: Vec<Text>,
    /// The module to compile.
    pub primary: Text,
    /// The index shard, a summary file made for this job.
    pub index: Text,
    /// The modules that functions may be taken from. LLD sorts them by their bytes.
    pub imports: Vec<Text>,
    /// Further files that the compiler may read, such as a sample profile.
    pub other_inputs: Vec<Text>,
    /// The object that LLD reads afterwards.
    pub object: Text,
    /// Further files that LLD expects.
    pub other_outputs: Vec<Text>,
}

impl Job {
    /// Everything that the job may read: primary, index, imports, others.
    pub fn inputs(&self) -> impl Iterator<Item = &Text> {
        [&self.primary, &self.index].into_iter().chain(&self.imports).chain(&self.other_inputs)
    }

    /// Everything that the job has to make, the object first.
    pub fn outputs(&self) -> impl Iterator<Item = &Text> {
        once(&self.object).chain(&self.other_outputs)
    }
}

impl JobFile {
    /// Reads the job file at `path`.
    ///
    /// # Errors
    /// A file that cannot be read, and all that [`JobFile::parse`] finds; the message begins with the path.
    pub fn read(path: &Path) -> Result<JobFile> {
        bytes(path)
            .and_then(|bytes| JobFile::parse(&bytes))
            .with_context(|| format!("job file {}", path.display()))
    }

    /// Reads a job file from its bytes.
    ///
    /// # Errors
    /// What is no job file, or one that could not be run to a right end. The message names the place in the file, as in
    /// `jobs[1].outputs`.
    pub fn parse(bytes: &[u8]) -> Result<JobFile> {
        let mut top = Record::new(json::tree(bytes)?, At::Top)?;
        ensure!(
            top.has("common") || top.has("jobs"),
            r#"top level: expected "common" and "jobs", as LLD 21 and newer write them"#
        );
        let mut common = Record::new(top.required("common")?, At::Common)?;
        ensure!(
            !common.has("codegen-tool"),
            "common.codegen-tool: a draft of the job file whose compiler was never released; use \
             LLD 21 or newer"
        );
        let jobs = (top.list("jobs", "objects")?.into_iter().enumerate())
            .map(|(i, job)| Record::new(job, At::Job(i)))
            .collect::<Result<Vec<_>>>()?;
        let dialect = match jobs.first() {
            Some(job) if job.has("primary_input") => gen1::jobs,
            Some(job) if !["args", "inputs", "outputs"].iter().any(|name| job.has(name)) => bail!(
                r#"jobs[0]: expected "args", "inputs" and "outputs", as LLD 21 and newer write them"#
            ),
            _ => landed::jobs,
        };

        let mut reader = Reader::default();
        reader.note_unknown(top);
        let linker_output = common.required("linker_output")?;
        let linker_output = reader.text(&linker_output, format_args!("common.linker_output"))?;
        let mut args = common.list("args", "strings")?.into_iter().enumerate();
        let compiler = compiler(args.next(), &mut reader)?;
        let args: Vec<_> = args.collect();
        affordable("common.args", args.len(), jobs.len())?;
        let jobs = dialect(common, &args, jobs, &mut reader)?;
        keep_apart(&jobs)?;
        Ok(JobFile { linker_output, compiler, jobs, notices: reader.notices })
    }
}

/// The content of a regular file: another could block for ever (a pipe) or never end (a device).
fn bytes(path: &Path) -> Result<Vec<u8>> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("no such file; LLD writes it and names it as the last argument")
        }
        about => about.context("cannot be read")?,
    };
    ensure!(!about.is_dir(), "a directory; LLD names the job file as the last argument");
    ensure!(about.is_file(), "a pipe or device, not a regular file; copy it into one");
    ensure!(about.len() <= MAX_FILE, "larger than 4 GiB; LLD does not write such job files");
    fs::read(path).context("cannot be read")
}

fn compiler(first: Option<(usize, Node<'_>)>, reader: &mut Reader) -> Result<Text> {
    let Some((_, first)) = first else {
        bail!("common.args: expected the compiler first, found an empty list");
    };
    ensure!(
        !matches!(&first, Node::Text(text) if text.is_empty()),
        "common.args[0]: the linker was not told the compiler; give \
         --thinlto-remote-compiler=/path/to/clang to ld.lld, /thinlto-remote-compiler: to \
         lld-link; the clang driver gives it by itself"
    );
    reader.path(&first, format_args!("common.args[0]"))
}

/// Each job gets a copy of what is common: two long lists must not become a product of their lengths.
fn affordable(place: &str, common: usize, jobs: usize) -> Result<()> {
    ensure!(
        common.saturating_mul(jobs) <= MAX_COPIES,
        "{place}: {common} entries for {jobs} jobs are more than this program can hold"
    );
    Ok(())
}

/// No two outputs share a path, and none is an input: outputs are deleted before a job runs.
fn keep_apart(jobs: &[Job]) -> Result<()> {
    const WHY: &str = "LLD does not write such job files, was it edited?";
    let mut makers = HashMap::new();
    for (i, job) in jobs.iter().enumerate() {
        for output in job.outputs() {
            match makers.insert(output, i) {
                Some(first) if first == i => bail!("jobs[{i}] makes {output:?} twice; {WHY}"),
                Some(first) => bail!("jobs[{first}] and jobs[{i}] both make {output:?}; {WHY}"),
                None => {}
            }
        }
    }
    for (i, job) in jobs.iter().enumerate() {
        for input in job.inputs() {
            if let Some(maker) = makers.get(input) {
                bail!("jobs[{i}] reads {input:?}, which jobs[{maker}] would overwrite; {WHY}");
            }
        }
    }
    Ok(())
}
