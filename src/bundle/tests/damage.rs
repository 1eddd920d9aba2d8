//! Files that are no bundles, or not whole ones, or other ones than expected; and arbitrary bytes.

use proptest::prelude::*;

use super::*;

fn good() -> Vec<u8> {
    forged(Kind::Request, &manifest(), vec![piece("INDEX"), piece("module")])
}

fn opened(bytes: &[u8]) -> Fault {
    open(Cursor::new(bytes), &Limits::default()).err().expect("it must not be taken")
}

#[test]
fn a_header_reads_back() {
    let bundle = good();
    let header = Header::read(&mut &bundle[..]).unwrap();
    assert_eq!((header.kind, header.format, header.nonce), (Kind::Request, FORMAT, NONCE));
    assert_eq!((header.length, &*header.version), ((bundle.len() - LENGTH) as u64, "0.1.0"));
    assert_eq!(header.bytes(), bundle[..LENGTH]);
}

#[test]
fn garbage_is_no_bundle() {
    let mut garbage = vec![0; 1 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut garbage);
    for bytes in [&garbage[..], &[0; 1 << 16], b"x", b"{\"common\":1}", &good()[1..]] {
        assert!(matches!(opened(bytes), Fault::NotABundle));
    }
}

#[test]
fn a_bundle_that_is_cut_off_anywhere_says_so() {
    let bundle = good();
    for length in 0..bundle.len() {
        match opened(&bundle[..length]) {
            Fault::NoHeader => assert!(length < LENGTH),
            Fault::CutOff { expected, found } => {
                let there = (expected as usize + LENGTH, found as usize + LENGTH);
                assert_eq!(there, (bundle.len(), length));
            }
            other => panic!("{length}: {other}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    let bundle = good();
    for bit in 0..bundle.len() * 8 {
        let mut bytes = bundle.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match opened(&bytes) {
            Fault::NotABundle => assert!(bit < 20 * 8),
            Fault::DamagedHeader => assert!(bit < LENGTH * 8),
            Fault::Damaged => assert!(bit >= LENGTH * 8),
            other => panic!("bit {bit}: {other}"),
        }
    }
}

#[test]
fn what_follows_a_bundle_is_seen() {
    let bytes = [&good()[..], b"x"].concat();
    assert!(matches!(opened(&bytes), Fault::Surplus { bytes: 1 }));
}

#[test]
fn a_response_is_no_request() {
    for kind in [Kind::Response, Kind::CannotRead, Kind::Other(9)] {
        match opened(&bundle_of(kind, b"")) {
            Fault::OtherKind { expected: Kind::Request, found } => assert_eq!(found, kind),
            other => panic!("{other}"),
        }
    }
}

fn of_format(format: u16, oldest: u16) -> Vec<u8> {
    let mut header = Header::read(&mut &bundle_of(Kind::Request, b"?")[..]).unwrap();
    (header.format, header.oldest, header.version) = (format, oldest, "9.0.1".to_owned());
    [&header.bytes()[..], b"?"].concat()
}

#[test]
fn a_format_that_is_not_read_can_be_answered() {
    let Fault::Format(header) = opened(&of_format(9, 8)) else { panic!("another fault") };
    let text = Fault::Format(header.clone()).to_string();
    assert!(text.contains("version 9.0.1 wrote this request in format 9"), "{text}");
    let mut answer = Cursor::new(Vec::new());
    cannot_read(&mut answer, &header, "host").unwrap();

    // A bridge of any version reads the answer, whatever has become of what follows the header.
    for bytes in [&answer.get_ref()[..], &answer.get_ref()[..LENGTH]] {
        let got = received(bytes, Path::new("/nowhere")).unwrap().response;
        assert_eq!(got.answer, Answer::CannotRead { newest: FORMAT, oldest: OLDEST_READ });
        assert_eq!((got.nonce, &*got.worker), (NONCE, env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn a_newer_format_that_old_readers_understand_is_read() {
    let mut bytes = good();
    let mut header = Header::read(&mut &bytes[..]).unwrap();
    (header.format, header.oldest) = (9, FORMAT);
    bytes[..LENGTH].copy_from_slice(&header.bytes());
    unpacked(&bytes).unwrap();
    assert!(matches!(opened(&of_format(0, 0)), Fault::Format(_)));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for kind in [Kind::Request, Kind::Response] {
            let bundle = bundle_of(kind, &bytes);
            prop_assert!(unpacked(&bundle).is_err());
            prop_assert!(received(&bundle, Path::new("/nowhere/x")).is_err());
        }
        prop_assert!(unpacked(&bytes).is_err());
        prop_assert!(received(&bytes, Path::new("/nowhere/x")).is_err());
    }

    /// Damage that its maker gave a true digest.
    #[test]
    fn flipped_bits_of_an_archive_do_no_harm(
        flips in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        packed in any::<bool>(),
    ) {
        let manifest = entry(MANIFEST, manifest().to_string());
        let mut bytes = archive(&[manifest, piece("INDEX"), piece("module")]);
        if packed {
            bytes = compressed(&bytes);
        }
        for flip in flips {
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let body = if packed { bytes } else { compressed(&bytes) };
        let _ = unpacked(&bundle_of(Kind::Request, &body));
        let _ = received(&bundle_of(Kind::Response, &body), Path::new("/nowhere/x"));
    }
}
