//! `icecc-env`: for administrators, the environment that links will send to icecream's nodes, and whether it works.
//! It sends nothing, and does not talk to icecream.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};

use super::hosts::find_compiler;
use crate::cli::{self, Environment};
use crate::environment::{self, Checked};
use crate::exit::{Exit, Failure};
use crate::link::Ending;
use crate::os;
use crate::process::{Command, Groups};
use crate::report::write_stdout;
use crate::toolchain::{self, identify};

/// What icecream's daemons keep of environments, in MB, if they are not told.
const DEFAULT_CACHE: u64 = 256;
/// As a node does it: as an ordinary user.
const USER: &str = "--userspec=65534:65534";
const MB: u64 = 1_000_000;

/// What is asked for.
#[derive(Debug)]
pub struct EnvironmentWanted<'a> {
    /// The environment of this compiler; none: of the one that is here.
    pub compiler: Option<&'a str>,
    /// The salt of its name; empty: none.
    pub salt: &'a str,
    /// Not that of a compiler, but this archive.
    pub check: Option<&'a Path>,
}

/// Makes the environment, or takes the one that is named; checks it, and prints what there is to know.
///
/// # Errors
/// It cannot be made, or does not work.
pub fn icecc_env(
    wanted: &EnvironmentWanted<'_>,
    environment: &Environment,
) -> Result<Ending, Failure> {
    if !os::FARMS {
        return Err(cli::usage(anyhow!(
            "icecream's nodes run Linux: make their environment there"
        )));
    }
    let mut text = String::new();
    let looked = look(wanted, environment, &mut text);
    write_stdout(&text);
    looked.map_err(|error| Failure::new(Exit::Farm, error))?;
    Ok(Ending { exit: Exit::Ok, signal: None })
}

fn look(
    wanted: &EnvironmentWanted<'_>,
    environment: &Environment,
    text: &mut String,
) -> Result<()> {
    let mut line = |name: &str, value: &str| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{name:10} {value}");
    };
    let file = match wanted.check {
        Some(file) => std::path::absolute(file).context("--check")?,
        None => {
            let made = make(wanted, environment, &mut line)?;
            let how = if made.made { "made now" } else { "was there" };
            line("archive", &format!("{} ({how})", made.file.display()));
            made.file
        }
    };
    let root = tempfile::tempdir().context("a folder to unpack it in")?;
    let looked = || -> Result<(Checked, String)> {
        let checked = environment::check(&file, wanted.salt, root.path())?;
        Ok((checked, run(root.path())?))
    };
    let (checked, ran) = looked().with_context(|| file.display().to_string())?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let is_named_so = name.strip_suffix(environment::ENDING) == Some(&*checked.name);
    let remark = if is_named_so {
        ""
    } else {
        ", by its content and --env-salt; the file is named otherwise"
    };
    line("name", &format!("{}{remark}", checked.name));
    line("platform", &checked.platform);
    let packed = fs::metadata(&file).context("its size")?.len();
    let [packed, unpacked] = [packed, checked.unpacked].map(|bytes| bytes.div_ceil(MB));
    line("size", &format!("{packed} MB to send to each node, once; {unpacked} MB there"));
    line("checked", &ran);
    let (platform, file) = (&checked.platform, file.display());
    line("icecream", &format!("ICECC_VERSION={platform}:{file} ICECC_ENV_COMPRESSION=zstd"));
    line(
        "nodes",
        &format!(
            "start iceccd with --cache-limit {}: the default, {DEFAULT_CACHE} MB, has no room for two \
             environments, and each use of one then removes the other",
            (unpacked * 4).next_multiple_of(500)
        ),
    );
    Ok(())
}

fn make(
    wanted: &EnvironmentWanted<'_>,
    environment: &Environment,
    line: &mut impl FnMut(&str, &str),
) -> Result<environment::Environment> {
    let folder = environment.cache.as_deref();
    let folder = folder.context("no folder for it: set XDG_CACHE_HOME or HOME")?;
    // As drivers tell it to the linker: the environment has the compiler's own name.
    let compiler = find_compiler(wanted.compiler)?.canonicalize()?;
    let options = toolchain::Options {
        cache_folder: Some(folder),
        variables: &environment.toolchain,
        ..toolchain::Options::default()
    };
    let toolchain = identify(&compiler, Some("clang"), &options)?;
    let toolchain::Identity { version, code, .. } = &toolchain.identity;
    line("compiler", &format!("{}: {version}; code {}", compiler.display(), &code[..16]));
    let worker = environment::worker(&std::env::current_exe()?)?;
    line("worker", &worker.display().to_string());
    environment::make(&toolchain, &worker, wanted.salt, folder)
}

/// Runs what a node runs before it takes an environment; says what was done.
fn run(root: &Path) -> Result<String> {
    if !os::is_root() {
        return Ok(
            "unpacked and looked through; only root can also run it as a node does".to_owned()
        );
    }
    // The folder is its owner's alone.
    if let Some(mode) = os::mode(0o755) {
        fs::set_permissions(root, mode)?;
    }
    let root = root.to_str().context("the folder to unpack it in has no name that is text")?;
    let command = Command {
        program: cli::find_program("chroot")?,
        args: [USER, root, "/bin/true"].map(str::to_owned).into(),
        clear: true,
        ..Command::default()
    };
    let ended = Groups::new(None).run(&command, &|_| ())?;
    let said = String::from_utf8_lossy(&ended.output);
    ensure!(ended.status.success(), "its compiler does not run: {}", said.trim());
    Ok("unpacked, looked through, and its compiler run as a node does".to_owned())
}
