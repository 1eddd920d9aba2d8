//! Which of the compilers that the owner allowed makes the bytes that a request wants, and what that one
//! needs to run. No path comes from a request. It starts none of them on a request's files.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::sandbox::Rules;
use super::settings::{Allowed, Found, Program};
use crate::toolchain::{Identity, MATH_CLASS, Math, Options, Toolchain, identify};

/// The part of an identity that stands for a program known by its bytes alone.
pub const PROGRAM: &str = "program";
/// Where the system keeps its programs and libraries.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/alternatives"];
const LIBRARIES: [&str; 4] = ["/usr/lib", "/lib", "/lib32", "/lib64"];
/// The loader's list of libraries.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// A compiler that fits a request.
#[derive(Debug)]
pub struct Chosen {
    /// The program, as the settings name it.
    pub program: PathBuf,
    /// Its version, for people.
    pub version: String,
    /// It is the multicall `llvm`, which wants the word `clang` first.
    pub prepended: bool,
    /// It has no config files, and is to look for none.
    pub no_config: bool,
    /// It starts programs of its own.
    pub starts_others: bool,
    /// What it must be able to reach, but for the job's folder.
    pub rules: Rules,
    toolchain: Option<Toolchain>,
}

impl Chosen {
    /// Why what it made cannot be trusted, if its files have changed meanwhile.
    pub fn changed(&self) -> Option<String> {
        Some(self.toolchain.as_ref()?.still_same().err()?.to_string())
    }
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub enum NoCompiler {
    /// Each differs in this.
    Other(String),
    /// None can be used at all.
    Missing(String),
}

/// Looks at the allowed compilers.
#[derive(Debug)]
pub struct Compilers<'a> {
    /// The settings.
    pub found: &'a Found,
    /// Where digests are remembered.
    pub memory: &'a Path,
    /// The variables that the compiler will have.
    pub variables: &'a [(String, OsString)],
}

/// What a job says about its compiler.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its identity.
    pub identity: &'a Identity,
    /// Its arguments.
    pub args: &'a [String],
    /// It will start the `ld.lld` beside it.
    pub ld_lld: bool,
}

impl Compilers<'_> {
    /// The first that fits.
    ///
    /// # Errors
    /// None does; the text names what differs.
    pub fn choose(&self, wanted: &Wanted<'_>) -> Result<Chosen, NoCompiler> {
        let (mut differences, mut unusable) = (Vec::new(), Vec::new());
        for allowed in &self.found.settings.compilers {
            let tried = match allowed {
                Allowed::Clang(path) => self.clang(path, wanted),
                Allowed::Program(program) => program_by_bytes(program, wanted),
            };
            match tried {
                Ok(Ok(chosen)) => return Ok(chosen),
                Ok(Err(difference)) => differences.push(difference),
                Err(error) => unusable.push(format!("{error:#}")),
            }
        }
        differences.dedup();
        match differences.is_empty() {
            true => Err(NoCompiler::Missing(unusable.join("; "))),
            false => Err(NoCompiler::Other(differences.join("; or: "))),
        }
    }

    /// The compiler at `path`, or how it differs from the one that is wanted.
    fn clang(&self, path: &Path, wanted: &Wanted<'_>) -> anyhow::Result<Result<Chosen, String>> {
        let toolchain = self.identify(path, wanted.args, wanted.ld_lld)?;
        // A link that takes any mathematics leaves its class out.
        let strict = wanted.identity.parts.contains_key(MATH_CLASS);
        let math = if strict { Math::Strict } else { Math::Any };
        if let Some(difference) = wanted.identity.difference(&toolchain.identity, math) {
            return Ok(Err(difference));
        }
        if wanted.ld_lld && toolchain.ld_lld.is_none() {
            return Ok(Err("this host's clang has no ld.lld beside it".to_owned()));
        }
        Ok(Ok(Chosen {
            program: path.to_owned(),
            version: toolchain.identity.form(),
            prepended: toolchain.prepended,
            no_config: toolchain.config_files.is_empty(),
            starts_others: wanted.ld_lld,
            rules: rules(&toolchain),
            toolchain: Some(toolchain),
        }))
    }

    /// Looks through the compiler at `path`.
    ///
    /// # Errors
    /// It is no clang, or not there.
    pub fn identify(
        &self,
        path: &Path,
        args: &[String],
        with_ld_lld: bool,
    ) -> anyhow::Result<Toolchain> {
        let text =
            |(name, value): &(String, OsString)| Some((name.clone(), value.to_str()?.into()));
        let variables: Vec<(String, String)> = self.variables.iter().filter_map(text).collect();
        let options = Options {
            with_ld_lld,
            cache_folder: Some(self.memory),
            in_environment: self.found.environment,
            math: Math::Strict,
            target: args.iter().rev().find_map(|arg| arg.strip_prefix("--target=")),
            no_default_config: args.iter().any(|arg| arg == "--no-default-config"),
            variables: &variables,
        };
        Ok(identify(path, Some("clang"), &options)?)
    }
}

/// Exactly the files that were identified: whatever else its loader might find it cannot read.
fn rules(toolchain: &Toolchain) -> Rules {
    let mut read: Vec<PathBuf> = vec![LOADER_CACHE.into()];
    read.extend(toolchain.libraries.iter().map(|library| library.path.clone()));
    read.extend(toolchain.config_files.iter().cloned());
    let mut run = vec![toolchain.binary.clone()];
    run.extend(toolchain.loader.clone());
    if let Some(ld_lld) = &toolchain.ld_lld {
        // Its libraries are not listed one by one.
        run.push(ld_lld.clone());
        read.extend(LIBRARIES.map(PathBuf::from));
        let folders = toolchain.libraries.iter().filter_map(|library| library.path.parent());
        read.extend(folders.map(Path::to_owned));
    }
    Rules { read, run, ..Rules::default() }
}

fn program_by_bytes(
    program: &Program,
    wanted: &Wanted<'_>,
) -> anyhow::Result<Result<Chosen, String>> {
    let path = &program.path;
    let digest = check_bytes(program)?;
    let parts = &wanted.identity.parts;
    if parts.len() != 1 || parts.get(PROGRAM) != Some(&digest) {
        return Ok(Err(format!("the link was not made by the program {digest}")));
    }
    let mut run = vec![path.clone()];
    run.extend(SYSTEM.map(PathBuf::from));
    run.extend(program.needs.iter().cloned());
    Ok(Ok(Chosen {
        program: path.clone(),
        version: format!("program {}", &digest[..16]),
        prepended: false,
        no_config: true,
        starts_others: true,
        rules: Rules { read: vec![LOADER_CACHE.into()], run, ..Rules::default() },
        toolchain: None,
    }))
}

/// Makes sure that a program has the bytes that the settings allow; returns their digest.
pub(super) fn check_bytes(program: &Program) -> anyhow::Result<String> {
    let path = program.path.display();
    let digest = digest(&program.path).with_context(|| path.to_string())?;
    anyhow::ensure!(
        digest.eq_ignore_ascii_case(&program.blake3),
        "{path} has other bytes than the worker's settings allow: its blake3 is {digest}"
    );
    Ok(digest)
}

fn digest(path: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The identity of a program that is known by its bytes alone: of a wrapper that nobody looks through.
///
/// # Errors
/// It cannot be read.
pub fn identity_by_bytes(path: &Path) -> std::io::Result<Identity> {
    let digest = digest(path)?;
    Ok(Identity {
        version: format!("program {}", &digest[..16]),
        parts: [(PROGRAM.to_owned(), digest.clone())].into(),
        code: digest.clone(),
        full: digest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::settings::Settings;

    fn choose(compilers: Vec<Allowed>, identity: &Identity) -> Result<Chosen, NoCompiler> {
        let memory = tempfile::tempdir().unwrap();
        let settings = Settings { compilers, ..Settings::default() };
        let found = Found { file: "/s".into(), settings, environment: false };
        let compilers = Compilers { found: &found, memory: memory.path(), variables: &[] };
        compilers.choose(&Wanted { identity, args: &[], ld_lld: false })
    }

    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wrapper");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_script_is_never_looked_through() {
        let (_folder, path) = script("#!/bin/sh\nexec clang \"$@\"\n");
        let identity = identity_by_bytes(&path).unwrap();
        let refused = choose(vec![Allowed::Clang(path)], &identity).unwrap_err();
        assert!(matches!(refused, NoCompiler::Missing(_)), "{refused:?}");
    }

    #[test]
    fn a_script_is_allowed_by_its_bytes() {
        let (_folder, path) = script("#!/bin/sh\n");
        let identity = identity_by_bytes(&path).unwrap();
        let blake3 = identity.code.clone();
        let allowed = Program { path: path.clone(), blake3, needs: vec!["/opt".into()] };
        let chosen = choose(vec![Allowed::Program(allowed.clone())], &identity).unwrap();
        assert!(chosen.starts_others && chosen.rules.run.contains(&PathBuf::from("/opt")));
        std::fs::write(&path, "#!/bin/bash\n").unwrap();
        let refused = choose(vec![Allowed::Program(allowed)], &identity).unwrap_err();
        let NoCompiler::Missing(text) = refused else { panic!("{refused:?}") };
        assert!(text.contains("other bytes than the worker's settings allow"), "{text}");
    }

    #[test]
    fn another_program_than_the_links_is_named() {
        let (_folder, path) = script("#!/bin/sh\n");
        let (_other_folder, other) = script("#!/bin/sh -e\n");
        let blake3 = identity_by_bytes(&path).unwrap().code;
        let allowed = Program { path, blake3, needs: Vec::new() };
        let identity = identity_by_bytes(&other).unwrap();
        let refused = choose(vec![Allowed::Program(allowed)], &identity).unwrap_err();
        assert!(matches!(refused, NoCompiler::Other(_)), "{refused:?}");
    }
}
