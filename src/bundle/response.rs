//! The response: packed by a worker, and read by the bridge that waits for it. The bridge believes no
//! more of it than that it answers the request of this nonce. Does not check objects, nor run anything.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::body::Body;
use super::fault::shown;
use super::write::Writer;
use super::{
    Answer, Content, Digest, FORMAT, Fault, Header, Kind, Limits, Nonce, OLDEST_READ, Output,
    Response, STREAM_LIMIT, name,
};
use crate::os::Careful;

const STREAMS: [&str; 2] = ["stdout", "stderr"];
/// Bytes of a stream that may come in: the limit and the note.
const STREAM_MOST: u64 = STREAM_LIMIT as u64 + 100;

/// Packs `response` into `to`, from its beginning, with what the compiler printed and those of `outputs`
/// that are plain files in `folder`; they are listed in the response. Returns the length in bytes.
///
/// # Errors
/// An output cannot be read or changes meanwhile, or `to` cannot be written.
pub fn answer<W: Write + Seek>(
    to: W,
    response: &mut Response,
    [stdout, stderr]: [&[u8]; 2],
    (folder, outputs): (&Path, &[String]),
) -> io::Result<u64> {
    response.outputs.clear();
    let mut files = Vec::new();
    for name in outputs {
        let Some(mut file) = plain_file(&folder.join(name))? else { continue };
        let content = Content::read(&mut file)?;
        file.rewind()?;
        let Content { blake3, length } = content;
        response.outputs.push(Output { name: name.clone(), length, blake3 });
        files.push((content, file));
    }
    let streams = [cut(stdout), cut(stderr)];
    let lengths = streams.iter().map(|stream| stream.len() as u64);
    let lengths = lengths.chain(files.iter().map(|(content, _)| content.length));
    let mut writer = Writer::new(to, (Kind::Response, response.nonce), response, lengths)?;
    for (name, stream) in STREAMS.iter().zip(&streams) {
        writer.entry(name, Content::of(stream), &mut &stream[..])?;
    }
    for (number, (content, file)) in files.iter_mut().enumerate() {
        if !writer.entry(&entry_name(number), *content, file)? {
            let name = &response.outputs[number].name;
            return Err(io::Error::other(format!("{name} changed while it was packed")));
        }
    }
    writer.finish(None)
}

/// Packs the answer to a request in a format that is not read here; `request` is its header.
///
/// # Errors
/// `to` cannot be written.
pub fn cannot_read<W: Write + Seek>(to: W, request: &Header, host: &str) -> io::Result<u64> {
    let answer = Answer::CannotRead { newest: FORMAT, oldest: OLDEST_READ };
    let response = from_header(request.nonce, env!("CARGO_PKG_VERSION"), host, answer);
    // For people; programs of any version take it from the header.
    let about = (Kind::CannotRead, request.nonce);
    let mut writer = Writer::new(to, about, &response, [0, 0].into_iter())?;
    for name in STREAMS {
        writer.entry(name, Content::of(b""), &mut io::empty())?;
    }
    writer.finish(Some((Kind::CannotRead, FORMAT, OLDEST_READ)))
}

fn from_header(nonce: Nonce, worker: &str, host: &str, answer: Answer) -> Response {
    Response {
        nonce,
        worker: worker.to_owned(),
        host: host.to_owned(),
        link: String::new(),
        job: 0,
        answer,
        outputs: Vec::new(),
        ms: 0,
        peak_kb: 0,
        holds: Vec::new(),
        stores: false,
    }
}

/// Opens the plain file at `path`; `None` if there is none.
fn plain_file(path: &Path) -> io::Result<Option<fs::File>> {
    let mut old = fs::OpenOptions::new();
    old.read(true).no_follow_no_wait();
    match old.open(path) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A stream without its middle, if it is longer than a response takes.
fn cut(stream: &[u8]) -> Cow<'_, [u8]> {
    let Some(left_out) = stream.len().checked_sub(STREAM_LIMIT).filter(|&count| count > 0) else {
        return stream.into();
    };
    let half = STREAM_LIMIT / 2;
    let note = format!("\n[dtlto-bridge: {left_out} bytes are left out here]\n");
    [&stream[..half], note.as_bytes(), &stream[stream.len() - half..]].concat().into()
}

fn entry_name(number: usize) -> String {
    format!("out/{number}")
}

/// What the bridge waits for.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Of the request.
    pub nonce: Nonce,
    /// The link of the request.
    pub link: &'a str,
    /// [`Request::outputs`](super::Request::outputs), each with the fresh name that it gets here.
    pub outputs: &'a [(String, PathBuf)],
}

/// A response that was read and found good.
#[derive(Debug)]
pub struct Received {
    /// The manifest.
    pub response: Response,
    /// What the compiler printed.
    pub stdout: Vec<u8>,
    /// What the compiler printed as errors.
    pub stderr: Vec<u8>,
}

/// Reads a response and makes its outputs under their fresh names. If the compiler exited with 0, all are
/// there afterwards; else some may be. The caller removes what it does not want, also after an error.
///
/// # Errors
/// All of [`Fault`].
pub fn receive<R: Read + Seek>(
    mut input: R,
    expected: &Expected<'_>,
    limits: &Limits,
) -> Result<Received, Fault> {
    input.rewind().map_err(Fault::here("reading the bundle"))?;
    let header = Header::read(&mut input)?;
    if header.kind == Kind::CannotRead {
        return unread(&header, expected);
    }
    header.expect(Kind::Response)?;
    let mut body = Body::open(input, &header)?;
    let response: Response = body.manifest()?;
    check(&response, &header, expected, limits)?;
    let lengths = response.outputs.iter().map(|output| output.length);
    body.allow(lengths.chain([STREAM_MOST; 2]));
    let [stdout, stderr] = [body.stream(STREAMS[0])?, body.stream(STREAMS[1])?];
    let places: BTreeMap<&str, &Path> =
        expected.outputs.iter().map(|(name, place)| (&**name, &**place)).collect();
    for (number, output) in response.outputs.iter().enumerate() {
        make(&mut body, number, output, places[&*output.name])?;
    }
    body.end()?;
    Ok(Received { response, stdout, stderr })
}

fn unread(header: &Header, expected: &Expected<'_>) -> Result<Received, Fault> {
    if header.nonce != expected.nonce {
        return Err(Fault::OtherRequest { link: String::new(), job: 0, same_link: false });
    }
    let answer = Answer::CannotRead { newest: header.format, oldest: header.oldest };
    let response = from_header(header.nonce, &header.version, "", answer);
    Ok(Received { response, stdout: Vec::new(), stderr: Vec::new() })
}

fn check(
    response: &Response,
    header: &Header,
    expected: &Expected<'_>,
    limits: &Limits,
) -> Result<(), Fault> {
    if response.nonce != header.nonce {
        return Err(Fault::Manifest("its nonce is not that of the header".to_owned()));
    }
    if response.nonce == Nonce::NONE {
        return Err(Fault::Unaddressed(response.answer.to_string()));
    }
    if response.nonce != expected.nonce {
        let (link, job) = (shown(&response.link), response.job);
        let same_link = response.link == expected.link;
        return Err(Fault::OtherRequest { link, job, same_link });
    }
    let found: Vec<&str> = response.outputs.iter().map(|output| &*output.name).collect();
    name::check(found.iter().copied())?;
    let ran = matches!(response.answer, Answer::Ran { .. });
    let known = |name: &&str| ran && expected.outputs.iter().any(|(known, _)| known == name);
    if let Some(name) = found.iter().find(|name| !known(name)) {
        let (name, why) = ((*name).to_owned(), "this output was not asked for");
        return Err(Fault::Name { name, why });
    }
    let lacking = expected.outputs.iter().find(|(name, _)| !found.contains(&&**name));
    if let (Answer::Ran { code: Some(0), .. }, Some((name, _))) = (&response.answer, lacking) {
        return Err(Fault::NoOutput(name.clone()));
    }
    let total = response.outputs.iter().fold(0, |sum: u64, o| sum.saturating_add(o.length));
    if total > limits.total || !limits.allows_ratio(total, header.length) {
        let packed = header.length;
        return Err(Fault::TooLarge(format!("{total} bytes of outputs in {packed}")));
    }
    Ok(())
}

impl<R: Read> Body<R> {
    fn stream(&mut self, name: &str) -> Result<Vec<u8>, Fault> {
        let length = self.entry(name, None)?;
        if length > STREAM_MOST {
            return Err(Fault::TooLarge(format!("{name} has {length} bytes")));
        }
        let mut bytes = Vec::new();
        self.content(length, &mut |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        Ok(bytes)
    }
}

fn make<R: Read>(
    body: &mut Body<R>,
    number: usize,
    output: &Output,
    place: &Path,
) -> Result<(), Fault> {
    let what = place.display().to_string();
    let mut new = fs::OpenOptions::new();
    new.write(true).create_new(true).no_follow();
    let mut file = new.open(place).map_err(Fault::here(&*what))?;
    let mut hasher = blake3::Hasher::new();
    body.read(&entry_name(number), output.length, &mut |chunk| {
        hasher.update(chunk);
        file.write_all(chunk).map_err(Fault::here(&*what))
    })?;
    if Digest::from(hasher.finalize()) != output.blake3 {
        return Err(Fault::Content { name: output.name.clone() });
    }
    Ok(())
}
