//! Makes bundles of a fuzzer's bytes. No mutation finds a digest, so what hangs on one is put right here, as
//! deep as the first byte says, a digit. Does not use the code that packs bundles.
//!
//! ```text
//! 0  the whole bundle follows
//! 1  what stands behind the header: a frame of zstd
//! 2  the archive; its heads get true checksums
//! 3  the manifest, then the contents of the entries, with a NUL between them; in the manifest
//!    "blake3": 0 is the digest of the first content, and a length or nonce that lacks is put in
//! ```

use dtlto_bridge::bundle::{Digest, Hex, Nonce};
use dtlto_bridge::cache::Key;
use serde_json::Value;

/// The nonce that bundles are made with.
pub const NONCE: Nonce = Hex([7; 16]);

/// Contents of a bundle: many would only cost time.
const ENTRIES: usize = 8;

/// A bundle.
pub struct Forged {
    /// The file.
    pub bundle: Vec<u8>,
    /// What can be a piece or an output of it.
    pub contents: Vec<Vec<u8>>,
}

/// The key that entries of a cache are made for.
pub const KEY: Key = Key::new([7; 32]);

/// An entry of a cache. Of what begins with a brace the head is `text` up to the first NUL, with its true digest, and the
/// rest are contents, compressed; "blake3": 0 is the digest of the first content, and so on. All else is taken as it is.
pub fn entry_of_cache(bytes: &[u8]) -> Vec<u8> {
    if bytes.first() != Some(&b'{') {
        return bytes.to_vec();
    }
    let mut parts = bytes.splitn(1 + ENTRIES, |&byte| byte == 0);
    let text = parts.next().unwrap_or_default();
    let contents: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    let text = match serde_json::from_slice::<Value>(text) {
        Ok(mut head) => {
            fill_in(&mut head, &contents);
            head.to_string().into_bytes()
        }
        Err(_) => text.to_vec(),
    };
    let length = (text.len() as u32).to_le_bytes();
    let digest = Digest::of(&text).0;
    let parts: [&[u8]; 6] = [
        b"dtlto-en",
        &1u32.to_le_bytes(),
        &length,
        &digest,
        &text,
        &compressed(&contents.concat()),
    ];
    parts.concat()
}

/// A request.
pub fn request(bytes: &[u8]) -> Forged {
    forge(1, bytes, |_, content| format!("piece/{}", Digest::of(content)))
}

/// A response.
pub fn response(bytes: &[u8]) -> Forged {
    forge(2, bytes, |number, _| match number {
        0 => "stdout".to_owned(),
        1 => "stderr".to_owned(),
        number => format!("out/{}", number - 2),
    })
}

fn forge(kind: u8, bytes: &[u8], name: impl Fn(usize, &[u8]) -> String) -> Forged {
    let (&depth, bytes) = bytes.split_first().unwrap_or((&b'0', &[]));
    let mut contents = Vec::new();
    let bundle = match depth {
        b'1' => with_header(kind, bytes),
        b'2' => with_header(kind, &compressed(&with_checksums(bytes))),
        b'3' => {
            let mut parts = bytes.splitn(1 + ENTRIES, |&byte| byte == 0);
            let text = parts.next().unwrap_or_default();
            contents.extend(parts.map(<[u8]>::to_vec));
            let mut archive = entry("manifest.json", &with_digests(text, &contents));
            for (number, content) in contents.iter().enumerate() {
                archive.extend(entry(&name(number, content), content));
            }
            archive.extend([0; 1024]);
            with_header(kind, &compressed(&archive))
        }
        _ => bytes.to_vec(),
    };
    Forged { bundle, contents }
}

/// A frozen header, then `body`.
fn with_header(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut header = [0; 136];
    let mut put = |at: usize, part: &[u8]| header[at..at + part.len()].copy_from_slice(part);
    put(0, &[0x50, 0x2A, 0x4D, 0x18, 128, 0, 0, 0]);
    put(8, b"dtlto-bridge");
    put(20, &[kind, 0, 1, 0, 1, 0]);
    put(32, &(body.len() as u64).to_le_bytes());
    put(40, blake3::hash(body).as_bytes());
    put(72, &NONCE.0);
    put(88, b"0.1.0");
    let check = blake3::hash(&header[..128]);
    header[128..].copy_from_slice(&check.as_bytes()[..8]);
    [&header, body].concat()
}

fn compressed(archive: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(archive, 1).expect("memory is all that it takes")
}

fn entry(name: &str, content: &[u8]) -> Vec<u8> {
    let mut head = tar::Header::new_ustar();
    head.set_path(name).expect("a short name");
    head.set_size(content.len() as u64);
    head.set_entry_type(tar::EntryType::Regular);
    head.set_cksum();
    let mut bytes = [head.as_bytes(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn with_checksums(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    for block in archive.chunks_exact_mut(512).filter(|block| block[257..].starts_with(b"ustar")) {
        let mut head = tar::Header::new_old();
        head.as_mut_bytes().copy_from_slice(block);
        head.set_cksum();
        block.copy_from_slice(head.as_bytes());
    }
    archive
}

/// The manifest, made to fit.
fn with_digests(text: &[u8], contents: &[Vec<u8>]) -> Vec<u8> {
    let Ok(mut manifest) = serde_json::from_slice::<Value>(text) else { return text.to_vec() };
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.entry("nonce").or_insert_with(|| NONCE.to_string().into());
    }
    fill_in(&mut manifest, contents);
    manifest.to_string().into_bytes()
}

fn fill_in(value: &mut Value, contents: &[Vec<u8>]) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| fill_in(value, contents)),
        Value::Object(members) => {
            members.values_mut().for_each(|value| fill_in(value, contents));
            let number = members.get("blake3").and_then(Value::as_u64);
            if let Some(content) = number.and_then(|n| contents.get(usize::try_from(n).ok()?)) {
                members.insert("blake3".to_owned(), Digest::of(content).to_string().into());
                members.entry("length").or_insert_with(|| content.len().into());
            }
        }
        _ => {}
    }
}
