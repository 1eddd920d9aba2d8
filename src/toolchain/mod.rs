//! Which compiler a job really runs, and all that decides about the bytes of its objects: the program behind
//! symbolic links, its libraries, its config files, its libm and the variants that this picks by the CPU. It reads
//! no environment of its own and does not know what the identity is used for.

mod ask;
mod config;
mod elf;
mod identity;
mod math;
mod memory;
mod name;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use config::Config;
pub use elf::Elf;
pub use identity::{Identity, MATH_CLASS};
pub use memory::Memory;
use memory::{Seen, Stamp};
pub use name::is_multicall;

use crate::os;

/// The environment variables that can change what a compiler is made of; others are of no interest here.
pub const VARIABLES: [&str; 5] = crate::cli::TOOLCHAIN;
/// Libraries whose names start so hold the compiler's own code.
const CODE: [&str; 3] = ["libLLVM", "libclang", "liblld"];

/// Whether last-bit differences of folded mathematics count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Math {
    /// They do: the same libm and the same class, or another compiler.
    #[default]
    Strict,
    /// They do not.
    Any,
}

/// How a compiler is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The `ld.lld` beside the compiler counts as well: split code generation runs it.
    pub with_ld_lld: bool,
    /// Where digests are remembered; none: nowhere.
    pub cache_folder: Option<&'a Path>,
    /// The compiler lies in an unpacked environment, and the cache folder as well.
    pub in_environment: bool,
    /// What the digests count.
    pub math: Math,
    /// The value of the job's `--target=`, by which config files are named; none: the compiler's own.
    pub target: Option<&'a str>,
    /// The job says `--no-default-config`.
    pub no_default_config: bool,
    /// Those of `VARIABLES` that the compiler will have, with their values. Others are ignored.
    pub variables: &'a [(String, String)],
}

/// A library that the loader loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// As it is asked for, such as `libLLVM.so.22.1`.
    pub name: String,
    /// Where it was found; absolute, links not followed.
    pub path: PathBuf,
}

/// A compiler, looked through.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// As named; absolute.
    pub compiler: PathBuf,
    /// The ELF program behind it.
    pub binary: PathBuf,
    /// It is LLVM's multicall binary, whose first argument is `clang`.
    pub prepended: bool,
    /// What it loads; empty for a static program.
    pub libraries: Vec<Library>,
    /// What loads them; none for a static program.
    pub loader: Option<PathBuf>,
    /// What it runs on, as `uname -m` says it; none: an unknown machine.
    pub platform: Option<&'static str>,
    /// What it reads unasked, in its order.
    pub config_files: Vec<PathBuf>,
    /// The one beside `binary`, if it was asked for and is there.
    pub ld_lld: Option<PathBuf>,
    /// What that one loads.
    pub linker_libraries: Vec<Library>,
    /// What its objects depend on.
    pub identity: Identity,
    /// What was seen of each file; none: it was not there.
    seen: BTreeMap<PathBuf, Option<Seen>>,
}

/// Why a program is not looked through: its jobs have to stay here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The program.
    pub compiler: PathBuf,
    /// The reason, a clause of which the program is the subject (`it is ...`).
    pub reason: String,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot tell which clang {} is: {}", self.compiler.display(), self.reason)
    }
}

impl std::error::Error for Unknown {}

/// A file of the compiler is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The file.
    pub file: PathBuf,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        write!(f, "the compiler changed during the link ({file}): link again when it is whole")
    }
}

impl std::error::Error for Changed {}

/// Looks through `compiler`, an absolute path; `first_arg` is the first argument of its jobs.
///
/// # Errors
/// It is not clang itself (but a script or ccache, say), or something about it cannot be found out.
pub fn identify(
    compiler: &Path,
    first_arg: Option<&str>,
    options: &Options<'_>,
) -> Result<Toolchain, Unknown> {
    look_through(compiler, first_arg, options)
        .map_err(|error| Unknown { compiler: compiler.to_owned(), reason: format!("{error:#}") })
}

fn look_through(
    compiler: &Path,
    first_arg: Option<&str>,
    options: &Options<'_>,
) -> Result<Toolchain> {
    ensure!(compiler.is_absolute(), "its path is not absolute");
    let binary = compiler.canonicalize().context("it cannot be found")?;
    let call = name::call(compiler, &binary, first_arg)?;
    let variables: Vec<_> = options
        .variables
        .iter()
        .filter(|(name, _)| VARIABLES.contains(&name.as_str()))
        .cloned()
        .collect();
    let mut files = Files::new(options);
    let program = Program::open(&binary, &variables)?;
    let class = math::class(program.elf.machine, program.elf.loader.as_deref(), &variables);
    let mut parts = BTreeMap::from([
        ("clang".to_owned(), files.digest(compiler)?),
        (MATH_CLASS.to_owned(), class),
    ]);
    let mut others = BTreeMap::new();
    files.sort(&program, &mut parts, &mut others)?;

    // A broken program is not run: all its files were there and read.
    let words: Vec<_> = first_arg.filter(|_| call.prepended).into_iter().collect();
    let key = key_of_banner(compiler, &words, options, &variables, [&parts, &others]);
    let ask = || ask::banner(compiler, &words, options.target, &variables);
    let banner = files.memory.banner(key, ask)?;

    let ld_lld = options.with_ld_lld.then(|| binary.with_file_name("ld.lld"));
    let ld_lld = ld_lld.filter(|path| path.exists());
    let mut linker_libraries = Vec::new();
    if let Some(path) = &ld_lld {
        let (digest, libraries) = files.linker(path, &variables, &mut others)?;
        parts.insert("ld.lld".into(), digest);
        linker_libraries = libraries;
    }
    let set = |name| variables.iter().any(|(found, value)| found == name && !value.is_empty());
    let config = if options.no_default_config || set("CLANG_NO_DEFAULT_CONFIG") {
        Config::default()
    } else {
        Config::find(&banner.config_folders, &banner.target, call.mode)
    };
    files.configs(&config, &mut parts)?;

    files.memory.keep();
    Ok(Toolchain {
        compiler: compiler.to_owned(),
        binary,
        prepended: call.prepended,
        libraries: program.libraries,
        platform: program.elf.platform(),
        loader: program.elf.loader,
        config_files: config.files,
        ld_lld,
        linker_libraries,
        identity: Identity::new(banner.version, parts, &others, options.math),
        seen: files.seen,
    })
}

/// All that a banner depends on.
fn key_of_banner(
    compiler: &Path,
    words: &[&str],
    options: &Options<'_>,
    variables: &[(String, String)],
    files: [&BTreeMap<String, String>; 2],
) -> String {
    let path = compiler.display().to_string();
    let first = [(path, words.join(" ")), ("--target".into(), format!("{:?}", options.target))];
    let named = first.iter().chain(variables).map(|(name, value)| (name, value));
    identity::digest_of(named.chain(files.into_iter().flatten()))
}

/// An ELF program and what it loads.
struct Program {
    elf: Elf,
    libraries: Vec<Library>,
}

impl Program {
    fn open(binary: &Path, variables: &[(String, String)]) -> Result<Self> {
        let metadata = binary.metadata().context("it cannot be read")?;
        ensure!(os::is_executable(&metadata), "it is not executable");
        let elf = Elf::read(&File::open(binary).context("it cannot be read")?)?;
        let libraries = match &elf.loader {
            Some(loader) => ask::libraries(loader, binary, variables)?,
            None => Vec::new(),
        };
        Ok(Program { elf, libraries })
    }
}

/// The files that were looked at.
struct Files {
    memory: Memory,
    seen: BTreeMap<PathBuf, Option<Seen>>,
}

impl Files {
    fn new(options: &Options<'_>) -> Self {
        let memory = match options.cache_folder {
            Some(folder) if options.in_environment => Memory::of_environment(folder),
            folder => Memory::recall(folder),
        };
        Files { memory, seen: BTreeMap::new() }
    }

    fn digest(&mut self, path: &Path) -> Result<String> {
        if let Some(Some((_, digest))) = self.seen.get(path) {
            return Ok(digest.clone());
        }
        let seen = self.memory.seen(path)?;
        let digest = seen.1.clone();
        self.seen.insert(path.to_owned(), Some(seen));
        Ok(digest)
    }

    /// Digests a program's libraries: those of its own code and its libm into `code`.
    fn sort(
        &mut self,
        program: &Program,
        code: &mut BTreeMap<String, String>,
        others: &mut BTreeMap<String, String>,
    ) -> Result<()> {
        for Library { name, path } in &program.libraries {
            let is_code = CODE.iter().any(|start| name.starts_with(start));
            let parts = if is_code || identity::is_math(name) { &mut *code } else { &mut *others };
            parts.insert(name.clone(), self.digest(path)?);
        }
        if let Some(loader) = &program.elf.loader {
            let name = loader.file_name().unwrap_or_default().to_string_lossy().into_owned();
            others.insert(name, self.digest(loader)?);
        }
        Ok(())
    }

    /// One digest of `ld.lld` and of the libraries that hold its code; and all of its libraries.
    fn linker(
        &mut self,
        path: &Path,
        variables: &[(String, String)],
        others: &mut BTreeMap<String, String>,
    ) -> Result<(String, Vec<Library>)> {
        // Its loader looks for libraries beside the file behind the link.
        let program = path.canonicalize().map_err(Into::into);
        let program = program.and_then(|path| Program::open(&path, variables));
        let program = program.with_context(|| path.display().to_string())?;
        let mut code = BTreeMap::from([("ld.lld".to_owned(), self.digest(path)?)]);
        let mut its_others = BTreeMap::new();
        self.sort(&program, &mut code, &mut its_others)?;
        // It may load another library of a name that clang loads too.
        others.extend(
            its_others.into_iter().map(|(name, digest)| (format!("ld.lld {name}"), digest)),
        );
        code.retain(|name, _| !identity::is_math(name));
        Ok((identity::digest_of(&code), program.libraries))
    }

    fn configs(&mut self, config: &Config, parts: &mut BTreeMap<String, String>) -> Result<()> {
        for path in &config.files {
            config::check(path)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            parts.insert(name, self.digest(path)?);
        }
        self.seen.extend(config.absent.iter().map(|path| (path.clone(), None)));
        Ok(())
    }
}

impl Toolchain {
    /// Looks whether all files of the compiler are still what they were, and no config file has appeared. Only
    /// a file whose inode or times have changed is read again.
    ///
    /// # Errors
    /// The first file that is not.
    pub fn still_same(&self) -> Result<(), Changed> {
        let changed = self.seen.iter().find(|(path, seen)| !same(path, seen.as_ref()));
        changed.map_or(Ok(()), |(file, _)| Err(Changed { file: file.clone() }))
    }
}

fn same(path: &Path, seen: Option<&Seen>) -> bool {
    match (os::stat(path), seen) {
        (Ok(found), Some((stamp, digest))) => {
            Stamp::from(found) == *stamp
                || memory::digest(path).is_ok_and(|(_, now)| now == *digest)
        }
        (Err(_), None) => true,
        _ => false,
    }
}
