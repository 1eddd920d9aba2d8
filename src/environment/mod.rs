//! The environment that icecream sends to its nodes: an archive that becomes the root of a job there. It holds the
//! worker, the link's own compiler and exactly what this one loads, so that nothing need be installed on a node. It
//! does not know how icecream is told of it.

mod archive;
mod check;
mod layout;
mod shelf;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::bundle::Shipped;
use crate::cli;
use crate::toolchain::{Elf, Memory, Toolchain};
pub use check::{Checked, check};
use layout::Layout;
pub use shelf::ENDING;
use shelf::Shelf;

/// An archive that is there to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The archive, in the folder `icecc` of the user's cache.
    pub file: PathBuf,
    /// Its name without ending, made from its content: by it nodes know an environment again.
    pub name: String,
    /// What it runs on, as `uname -m` says it, such as `x86_64`; from clang's own ELF header.
    pub platform: String,
    /// The archive's length in bytes.
    pub bytes: u64,
    /// Bytes of all its files on a node.
    pub unpacked: u64,
    /// Its files, for the requests of jobs that run in it.
    pub files: Vec<Shipped>,
    /// It was not there before.
    pub made: bool,
}

/// The environment of `toolchain`, with the static program `worker`; made if it is not there yet. `folder` is the
/// user's cache folder, where digests are remembered too: a second call reads no file. Another `salt` makes
/// another name, and so leaves behind an environment that was altered on nodes.
///
/// # Errors
/// The compiler cannot run where only its own files are, or the archive cannot be written.
pub fn make(
    toolchain: &Toolchain,
    worker: &Path,
    salt: &str,
    folder: &Path,
) -> Result<Environment> {
    let layout = Layout::of(toolchain, worker);
    let layout = layout.with_context(|| {
        format!("{} cannot be sent to other hosts", toolchain.compiler.display())
    })?;
    let mut memory = Memory::recall(Some(folder));
    let contents = layout.contents(&mut memory)?;
    memory.keep();
    let name = contents.name(salt);
    let shelf = Shelf::open(folder.join("icecc"))?;
    let (file, bytes, made) = shelf.take(&name, |to| archive::write(&contents, to))?;
    let files = contents.shipped()?;
    Ok(Environment {
        file,
        name,
        platform: layout.platform.to_owned(),
        bytes,
        unpacked: files.iter().map(|file| file.length).sum(),
        files,
        made,
    })
}

/// The program that can be the worker of an environment: `own_program` if it is linked statically, else a static
/// `dtlto-worker` beside it or on `PATH`.
///
/// # Errors
/// There is none; the text says what to do.
pub fn worker(own_program: &Path) -> Result<PathBuf> {
    let beside = own_program.with_file_name("dtlto-worker");
    let on_path = cli::find_program("dtlto-worker").ok();
    let mut places = [own_program.to_owned(), beside].into_iter().chain(on_path);
    match places.find(|path| is_static(path)) {
        Some(found) => Ok(found),
        None => bail!(
            "icecream's nodes need a worker that is linked statically, and {} is not: use the released \
             program (scripts/release makes it), or put a static one beside it or on PATH as dtlto-worker",
            own_program.display()
        ),
    }
}

fn is_static(program: &Path) -> bool {
    File::open(program).is_ok_and(|file| Elf::read(&file).is_ok_and(|elf| elf.loader.is_none()))
}
