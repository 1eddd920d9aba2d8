//! The file in which all jobs of a link are handed to a batch tool, and the log in which the tool tells of them. It
//! knows neither how the tool is started nor what becomes of a job.

mod buildset;
pub mod log;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::adapter::TaskFile;
use crate::quote;

/// Characters of a command line that a task may have; a longer one goes through a response file. Windows itself
/// takes 32,767, `cmd.exe` 8,191.
const LINE_LIMIT: usize = 4000;

/// What all tasks share.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// What the link makes, for people.
    pub title: &'a str,
    /// The compiler; absolute.
    pub compiler: &'a str,
    /// The folder that relative names start from; absolute.
    pub folder: &'a str,
    /// Where response files may lie; absolute.
    pub responses: &'a Path,
    /// Seconds after which a task is to be run elsewhere.
    pub seconds: u64,
}

/// One compile.
#[derive(Debug)]
pub struct Task {
    /// The job's number, by which it is found again in the log.
    pub number: usize,
    /// What people see while it runs.
    pub caption: String,
    /// The arguments behind the compiler.
    pub args: Vec<String>,
    /// The files that must come back; `*` stands for any text.
    pub outputs: Vec<String>,
}

/// Writes the task file to `path`, and the response files that its tasks need.
///
/// # Errors
/// A file cannot be written, or a name cannot be told to the tool.
pub fn write(kind: TaskFile, batch: &Batch<'_>, tasks: &[Task], path: &Path) -> anyhow::Result<()> {
    let TaskFile::BuildSet = kind;
    for (what, name) in [("the compiler", batch.compiler), ("the working folder", batch.folder)] {
        ensure!(Path::new(name).is_absolute(), "{what} {name:?} is not absolute");
        ensure!(is_plain(name), "{what} {name:?}: its name would be taken for a macro");
    }
    let mut lines = Vec::with_capacity(tasks.len());
    for task in tasks {
        lines.push(line(batch, task).with_context(|| task.caption.clone())?);
    }
    let text = buildset::text(batch, tasks, &lines).context("the task file")?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// The tool expands `$(NAME)`.
fn is_plain(text: &str) -> bool {
    !text.contains("$(") && !text.contains(is_unfit)
}

/// Characters that XML does not hold, or that would not stay what they are.
fn is_unfit(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// What stands for a task's arguments: themselves if they are short and plain, else a response file.
fn line(batch: &Batch<'_>, task: &Task) -> anyhow::Result<String> {
    let args = || task.args.iter().map(String::as_str);
    let line = quote::windows_line(args());
    let odd = |c: char| !c.is_ascii() || c.is_control() || "\"'%^&|<>".contains(c);
    if line.len() <= LINE_LIMIT && !line.contains("$(") && !args().any(|arg| arg.contains(odd)) {
        return Ok(line);
    }
    let Some(text) = quote::response_file(args()) else {
        bail!("it has an empty argument beside odd or many ones, which no response file can hold");
    };
    let path: PathBuf = batch.responses.join(format!("job{}.rsp", task.number));
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    let argument = format!("@{}", path.to_str().context("the folder's name is not UTF-8")?);
    ensure!(is_plain(&argument), "{path:?}: its name would be taken for a macro; see --scratch");
    Ok(quote::windows_line([argument.as_str()]))
}

#[cfg(test)]
mod tests;
