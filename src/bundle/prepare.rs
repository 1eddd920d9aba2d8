//! Makes a request of a job: which files travel under which names, and then the bundle itself. Reads the
//! job's files. Does not know where the bundle goes, nor whether the job may travel.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::write::Writer;
use super::{
    Content, Digest, FILES_LIMIT, File, Kind, Library, Limits, Names, Nonce, NotPacked, Piece,
    Request, Shipped, args, name,
};
use crate::bitcode::{self, Agreement, Change, Shard};
use crate::jobfile::{Job, Text};
use crate::toolchain::Identity;

/// What a request says of its link.
#[derive(Clone, Debug)]
pub struct About {
    /// The link's id.
    pub link: String,
    /// Who links.
    pub user: String,
    /// On which host.
    pub host: String,
    /// The compiler of all jobs.
    pub compiler: Identity,
    /// The files of the environment that the bridge sends with the jobs; empty if it sends none.
    pub environment: Vec<Shipped>,
    /// Seconds that a compiler may take.
    pub time_limit_s: u64,
}

/// The pieces that a request does without. Those that its job does not read mean nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaveOut<'a> {
    /// The host has said that it holds them.
    pub held: &'a [Digest],
    /// Another request is carrying them to the host now.
    pub in_flight: &'a [Digest],
}

/// A request that can be packed, as often as it is tried.
#[derive(Debug)]
pub struct Prepared {
    /// What is sent. Its nonce is new for each call of [`Prepared::pack`].
    pub request: Request,
    /// Where the content of each of its files is.
    pub(super) sources: Vec<Source>,
}

#[derive(Debug)]
pub(super) enum Source {
    Path(Text),
    Bytes(Vec<u8>),
}

/// Prepares the `number`th job of a link, which takes `weight` slots of a host.
///
/// # Errors
/// [`NotPacked::StaysHere`] where the job's arguments or its index are not of the known form, or an input
/// cannot be read; [`NotPacked::Failed`] where the index cannot.
pub fn prepare(
    job: &Job,
    (number, weight): (usize, u32),
    (names, library): (&Names, &Library),
    about: &About,
) -> Result<Prepared, NotPacked> {
    let stays = NotPacked::StaysHere;
    let new =
        |module: &Text| names.get(module).ok_or_else(|| stays(format!("{module} has no name")));
    let moved = args::moved(job, &new(&job.primary)?).map_err(stays)?;

    let modules: Vec<(&Text, String)> = modules(job)
        .into_iter()
        .map(|old| Ok((old, new(old)?)))
        .collect::<Result<_, NotPacked>>()?;
    let index = fs::read(Path::new(&*job.index)).map_err(NotPacked::io(&*job.index))?;
    let index =
        renamed(&index, &modules, library).map_err(|why| stays(format!("{}: {why}", job.index)))?;

    let (mut files, mut sources) = (Vec::new(), Vec::new());
    let mut add = |name: String, content: Content, source| {
        let Content { blake3, length } = content;
        files.push(File { name, pieces: vec![Piece { blake3, length, held: false }] });
        sources.push(source);
    };
    add(args::INDEX.to_owned(), Content::of(&index), Source::Bytes(index));
    let others = job.other_inputs.iter().zip((0..).map(args::other));
    for (old, new) in modules.into_iter().chain(others) {
        add(new, library.content(old).map_err(stays)?, Source::Path(old.clone()));
    }
    if files.len() > FILES_LIMIT {
        return Err(stays(format!(
            "it reads {} files, and a bundle takes {FILES_LIMIT}",
            files.len()
        )));
    }
    name::check(files.iter().map(|file| &file.name).chain(&moved.outputs).map(String::as_str))
        .map_err(|fault| stays(fault.to_string()))?;

    let request = Request {
        job: number,
        module: job.primary.to_string(),
        files,
        outputs: moved.outputs,
        weight,
        ..probe(about, moved.args).request
    };
    Ok(Prepared { request, sources })
}

/// Prepares a request that asks only whether a host would do jobs like those of its link; of `args` the target
/// and the like decide about config files.
pub fn probe(about: &About, args: Vec<String>) -> Prepared {
    let About { link, user, host, compiler, environment, time_limit_s } = about.clone();
    let request = Request {
        nonce: Nonce::NONE,
        bridge: env!("CARGO_PKG_VERSION").to_owned(),
        link,
        user,
        host,
        job: 0,
        module: String::new(),
        args,
        files: Vec::new(),
        outputs: Vec::new(),
        compiler,
        time_limit_s,
        weight: 1,
        environment,
        in_flight: Vec::new(),
    };
    Prepared { request, sources: Vec::new() }
}

/// The modules that a job reads.
fn modules(job: &Job) -> BTreeSet<&Text> {
    job.imports.iter().chain([&job.primary]).collect()
}

/// The pieces that `job` may share with others, each once, with their lengths in bytes: all of its inputs
/// but the index, which no other job has.
///
/// # Errors
/// The first of `content`.
pub fn pieces<E>(
    job: &Job,
    content: impl Fn(&Text) -> Result<Content, E>,
) -> Result<Vec<(Digest, u64)>, E> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for input in modules(job).into_iter().chain(&job.other_inputs) {
        let Content { blake3, length } = content(input)?;
        if seen.insert(blake3) {
            found.push((blake3, length));
        }
    }
    Ok(found)
}

/// The index with the new names. LLD up to 22 damages hashes too, where a name is not ASCII near its end,
/// and that does not always show in the name: there the true hash is put in.
fn renamed(
    index: &[u8],
    modules: &[(&Text, String)],
    library: &Library,
) -> Result<Vec<u8>, String> {
    let shard = Shard::read(index).map_err(|refusal| refusal.to_string())?;
    let old: Vec<&str> = modules.iter().map(|(old, _)| &***old).collect();
    if let Agreement::Different { .. } = bitcode::names_agree(&shard, &old) {
        return Err("this index names other modules than the job does".to_owned());
    }
    let change = |(old, new): &'_ (&Text, String)| -> Result<(Vec<u8>, Option<[u32; 5]>), String> {
        let in_doubt = bitcode::hash_in_doubt(old.as_bytes());
        let hash = if in_doubt { library.module_hash(old)? } else { None };
        Ok((new.as_bytes().to_vec(), hash))
    };
    let changes = modules.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    let changes: Vec<_> = changes.iter().map(|(name, hash)| Change { name, hash: *hash }).collect();
    bitcode::rewrite(index, &changes).map_err(|refusal| refusal.to_string())
}

impl Prepared {
    /// Leaves out these pieces, and no others. What is held is not waited for.
    pub fn hold(&mut self, leave_out: &LeaveOut<'_>) {
        let [held, in_flight] =
            [leave_out.held, leave_out.in_flight].map(|list| list.iter().collect::<HashSet<_>>());
        let mut waited_for = BTreeSet::new();
        for piece in self.request.files.iter_mut().flat_map(|file| &mut file.pieces) {
            let is_held = held.contains(&piece.blake3);
            piece.held = is_held || in_flight.contains(&piece.blake3);
            if piece.held && !is_held {
                waited_for.insert(piece.blake3);
            }
        }
        self.request.in_flight = waited_for.into_iter().collect();
    }

    /// Bytes that the job's files take on the far side.
    pub fn unpacked(&self) -> u64 {
        self.request.files.iter().fold(0, |sum, file| sum.saturating_add(file.length()))
    }

    /// Bytes of the pieces that the bundle holds and that other jobs may need too: all but the index.
    pub fn shared_inline(&self) -> u64 {
        let index = |file: usize| self.request.files[file].name == args::INDEX;
        let shared = inline(&self.request).into_iter().filter(|(file, _)| !index(*file));
        shared.map(|(_, piece)| piece.length).sum()
    }

    /// Writes the bundle to `out`, from its beginning, with a new nonce. Returns its length in bytes.
    ///
    /// # Errors
    /// All of [`NotPacked`]. What was written is then to be removed.
    pub fn pack<W: Write + Seek>(&mut self, out: W, limits: &Limits) -> Result<u64, NotPacked> {
        let (unpacked, job) = (self.unpacked(), self.request.job);
        let what = format!("packing jobs[{job}] of link {}", self.request.link);
        let too_large = |why| Err(NotPacked::StaysHere(why));
        if unpacked > limits.total {
            return too_large(format!(
                "its inputs have {unpacked} bytes, and a bundle takes {}",
                limits.total
            ));
        }
        self.request.nonce = Nonce::fresh();
        let bundle = write(&self.request, &self.sources, out).map_err(|error| match error {
            Unwritten::Changed(input) => {
                NotPacked::Changed(format!("{input}: this input changed while the link ran"))
            }
            Unwritten::Io(error) => NotPacked::io(what)(error),
        })?;
        let sent = inline(&self.request).iter().map(|(_, piece)| piece.length).sum();
        if !limits.allows_ratio(sent, bundle) {
            return too_large(format!(
                "its inputs shrink from {sent} to {bundle} bytes, which workers take for an attack"
            ));
        }
        Ok(bundle)
    }
}

pub(super) enum Unwritten {
    Changed(Text),
    Io(std::io::Error),
}

impl From<std::io::Error> for Unwritten {
    fn from(error: std::io::Error) -> Self {
        Unwritten::Io(error)
    }
}

pub(super) fn write<W: Write + Seek>(
    request: &Request,
    sources: &[Source],
    out: W,
) -> Result<u64, Unwritten> {
    let inline = inline(request);
    let lengths = inline.iter().map(|(_, piece)| piece.length);
    let mut writer = Writer::new(out, (Kind::Request, request.nonce), request, lengths)?;
    for (file, piece) in inline {
        let content = Content { blake3: piece.blake3, length: piece.length };
        let mut entry = |input: &mut dyn Read| writer.entry(&entry_name(piece), content, input);
        match &sources[file] {
            Source::Bytes(bytes) => entry(&mut &bytes[..]).map(drop)?,
            Source::Path(path) if !entry(&mut fs::File::open(Path::new(&**path))?)? => {
                return Err(Unwritten::Changed(path.clone()));
            }
            Source::Path(_) => {}
        }
    }
    Ok(writer.finish(None)?)
}

/// The pieces that are in the bundle, each once, with the file that has it first; in their order there.
pub(super) fn inline(request: &Request) -> Vec<(usize, &Piece)> {
    let mut seen = HashSet::new();
    let pieces = request.files.iter().enumerate();
    let pieces = pieces.flat_map(|(number, file)| file.pieces.iter().map(move |p| (number, p)));
    pieces.filter(|(_, piece)| !piece.held && seen.insert(piece.blake3)).collect()
}

/// What the archive calls a piece.
pub(super) fn entry_name(piece: &Piece) -> String {
    format!("piece/{}", piece.blake3)
}
