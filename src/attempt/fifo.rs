//! A request through a named pipe. The client opens it only when a host is ready for the job: that is the sign
//! that the job has left, and nothing is packed before it. It does not know what the client is.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::os;

/// The stack of the thread that packs.
const STACK: usize = 1 << 20;
/// Between two looks for a reader: a part of the time that was waited, within bounds.
const LOOK: (u32, Duration, Duration) = (16, Duration::from_millis(1), Duration::from_millis(20));
/// How long the end of a client that does not read may go unseen.
const STALL: Duration = Duration::from_millis(100);

/// What became of the request.
#[derive(Debug)]
pub(super) enum Fed<P, E> {
    /// Nobody opened the pipe.
    Unopened,
    /// The client has taken all of it.
    Whole(P),
    /// The client has opened it and not read to the end.
    Cut(P),
    /// It could not be packed.
    NotPacked(E),
    /// The pipe failed.
    Failed(io::Error),
}

/// Makes the pipe.
///
/// # Errors
/// The system's own.
pub(super) fn make(pipe: &Path) -> io::Result<()> {
    os::make_pipe(pipe)
}

/// Runs `client` to its end, and gives it through `pipe` what `pack` puts into a file as soon as the client reads;
/// `taken` hears of that.
pub(super) fn feed<T, P: Send, E: Send>(
    pipe: &Path,
    pack: &(dyn Fn(&Path) -> Result<P, E> + Sync),
    taken: &(dyn Fn() + Sync),
    client: impl FnOnce() -> T,
) -> (Fed<P, E>, Option<T>) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let feed = || feeder(pipe, pack, taken, &ended);
        let feeder = match thread::Builder::new().stack_size(STACK).spawn_scoped(scope, feed) {
            Ok(feeder) => feeder,
            Err(error) => return (Fed::Failed(error), None),
        };
        let _told = Told(&ended);
        let made = client();
        ended.store(true, Ordering::Release);
        match feeder.join() {
            Ok(fed) => (fed, Some(made)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Lets the feeder end, whatever ends its client's thread.
struct Told<'a>(&'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn feeder<P, E>(
    pipe: &Path,
    pack: &dyn Fn(&Path) -> Result<P, E>,
    taken: &dyn Fn(),
    ended: &AtomicBool,
) -> Fed<P, E> {
    let reader = match await_reader(pipe, ended) {
        Ok(Some(reader)) => reader,
        Ok(None) => return Fed::Unopened,
        Err(error) => return Fed::Failed(error),
    };
    taken();
    let file = pipe.with_extension("bundle");
    let packed = match pack(&file) {
        Ok(packed) => packed,
        Err(error) => return Fed::NotPacked(error),
    };
    let sent = File::open(&file).and_then(|file| send(file, reader, ended));
    let _ = fs::remove_file(&file);
    match sent {
        Ok(true) => Fed::Whole(packed),
        Ok(false) => Fed::Cut(packed),
        Err(error) => Fed::Failed(error),
    }
}

/// The writing end, as soon as there is a reader; none if the client ended before.
fn await_reader(pipe: &Path, ended: &AtomicBool) -> io::Result<Option<File>> {
    let begun = Instant::now();
    let (part, least, most) = LOOK;
    while !ended.load(Ordering::Acquire) {
        match os::open_pipe(pipe) {
            Ok(Some(end)) => return Ok(Some(end)),
            Ok(None) => thread::sleep((begun.elapsed() / part).clamp(least, most)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Says whether all was taken. Never waits for a client that has ended.
fn send(mut from: File, mut to: File, ended: &AtomicBool) -> io::Result<bool> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut left = &buffer[..read];
        while !left.is_empty() {
            match to.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if ended.load(Ordering::Acquire) {
                        return Ok(false);
                    }
                    os::wait_for_room(&to, STALL);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    const LARGE: usize = 1 << 20;

    struct Case {
        _folder: tempfile::TempDir,
        pipe: std::path::PathBuf,
        taken: AtomicU32,
    }

    impl Case {
        fn new() -> Case {
            let folder = tempfile::tempdir().unwrap();
            let pipe = folder.path().join("j0.i");
            make(&pipe).unwrap();
            Case { _folder: folder, pipe, taken: AtomicU32::new(0) }
        }

        fn feed<T>(&self, client: impl FnOnce(&Path) -> T) -> (Fed<usize, ()>, T) {
            let pack = |to: &Path| {
                fs::write(to, vec![7; LARGE]).unwrap();
                Ok(LARGE)
            };
            let taken = || {
                self.taken.fetch_add(1, Ordering::Relaxed);
            };
            let (fed, made) = feed(&self.pipe, &pack, &taken, || client(&self.pipe));
            assert!(!self.pipe.with_extension("bundle").exists());
            (fed, made.unwrap())
        }
    }

    #[test]
    fn a_client_that_reads_gets_all_of_it() {
        let case = Case::new();
        let (fed, read) = case.feed(|pipe| fs::read(pipe).unwrap());
        assert!(matches!(fed, Fed::Whole(LARGE)), "{fed:?}");
        assert!(read == vec![7; LARGE]);
        assert_eq!(case.taken.into_inner(), 1);
    }

    #[test]
    fn for_a_client_that_never_opens_it_nothing_is_packed() {
        let case = Case::new();
        let (fed, ()) = case.feed(|_| thread::sleep(Duration::from_millis(50)));
        assert!(matches!(fed, Fed::Unopened), "{fed:?}");
        assert_eq!(case.taken.into_inner(), 0);
    }

    #[test]
    fn a_client_that_reads_half_of_it_holds_nobody() {
        let case = Case::new();
        let (fed, read) = case.feed(|pipe| {
            let mut some = [0; 9];
            File::open(pipe).unwrap().read_exact(&mut some).unwrap();
            some
        });
        assert!(matches!(fed, Fed::Cut(LARGE)), "{fed:?}");
        assert_eq!(read, [7; 9]);
    }

    #[test]
    fn a_reader_that_outlives_its_client_holds_nobody() {
        let case = Case::new();
        let (fed, _reader) = case.feed(|pipe| {
            let reader = File::open(pipe).unwrap();
            thread::sleep(Duration::from_millis(200));
            reader
        });
        assert!(matches!(fed, Fed::Cut(LARGE)), "{fed:?}");
    }

    #[test]
    fn what_cannot_be_packed_closes_the_pipe() {
        let case = Case::new();
        let pack = |_: &Path| Err::<(), _>("no");
        let (fed, read) = feed(&case.pipe, &pack, &|| (), || fs::read(&case.pipe).unwrap());
        assert!(matches!(fed, Fed::NotPacked("no")), "{fed:?}");
        assert_eq!(read.unwrap(), b"");
    }
}
