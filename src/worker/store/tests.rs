//! The store with every harm that can come to it: a small limit, damage, crashes, many users at once.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

struct Kept {
    place: tempfile::TempDir,
    store: Store,
}

fn kept(limit: u64) -> Kept {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(place.path(), limit).unwrap();
    Kept { place, store }
}

fn piece(content: &[u8]) -> Piece {
    Piece { blake3: Digest::of(content), length: content.len() as u64, held: false }
}

/// A piece of one block, for each number.
fn block(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(1000)
}

impl Kept {
    fn put(&self, content: &[u8]) -> bool {
        let file = tempfile::NamedTempFile::new_in(self.place.path()).unwrap();
        fs::write(file.path(), content).unwrap();
        self.store.put(&piece(content), file.path(), 0).unwrap()
    }

    fn get(&self, content: &[u8]) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        let found = self.store.get(&Digest::of(content), &to).unwrap();
        assert_eq!(fs::read(&to).ok(), found.then(|| content.to_vec()));
        found
    }

    fn file(&self, content: &[u8]) -> PathBuf {
        self.store.place(&Digest::of(content))
    }

    /// Makes a piece look as if it was last used so many seconds ago.
    fn age(&self, content: &[u8], seconds: u64) {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        File::open(self.file(content)).unwrap().set_modified(time).unwrap();
    }

    /// Bytes of all pieces.
    fn size(&self) -> u64 {
        self.store.list().unwrap().iter().map(|(_, bytes, _)| bytes).sum()
    }
}

#[test]
fn what_is_put_in_comes_out_and_nothing_else_does() {
    let kept = kept(1 << 20);
    assert!(!kept.get(b"one"));
    assert!(kept.put(b"one") && kept.put(b"one") && kept.put(b""));
    assert!(kept.get(b"one") && kept.get(b"") && !kept.get(b"two"));
    assert_eq!(kept.store.usage(), (2 * BLOCK, 1 << 20));
    assert!(Store::open(kept.place.path(), 1).unwrap().has(&piece(b"one")));
}

#[test]
fn a_piece_is_taken_from_its_place_in_a_file() {
    let kept = kept(1 << 20);
    let file = kept.place.path().join("file");
    fs::write(&file, "onetwothree").unwrap();
    assert!(kept.store.put(&piece(b"two"), &file, 3).unwrap());
    assert!(kept.get(b"two"));
}

#[test]
fn what_is_not_as_announced_is_not_kept() {
    let kept = kept(1 << 20);
    let file = kept.place.path().join("file");
    for content in ["thre", "threE", ""] {
        fs::write(&file, content).unwrap();
        assert!(!kept.store.put(&piece(b"three"), &file, 0).unwrap());
    }
    fs::remove_file(&file).unwrap();
    assert!(kept.store.put(&piece(b"three"), &file, 0).is_err());
    symlink("/etc/passwd", &file).unwrap();
    assert!(kept.store.put(&piece(b"three"), &file, 0).is_err());
    assert!(!kept.get(b"three"));
    assert_eq!(fs::read_dir(kept.store.folder.join(NEW)).unwrap().count(), 0);
}

#[test]
fn a_damaged_piece_is_removed_and_can_come_again() {
    let kept = kept(1 << 20);
    let harms: [&dyn Fn(&Path); 4] = [
        &|file| fs::write(file, "One").unwrap(),
        &|file| fs::write(file, "").unwrap(),
        &|file| fs::write(file, "one and more").unwrap(),
        &|file| fs::remove_file(file).and_then(|()| symlink("/etc/passwd", file)).unwrap(),
    ];
    for harm in harms {
        assert!(kept.put(b"one"));
        harm(&kept.file(b"one"));
        assert!(!kept.get(b"one"));
        assert!(fs::symlink_metadata(kept.file(b"one")).is_err());
    }
    assert!(kept.put(b"one") && kept.get(b"one"));
}

#[test]
fn a_copy_is_nobody_elses() {
    let kept = kept(1 << 20);
    assert!(kept.put(b"one"));
    let to = kept.place.path().join("to");
    assert!(kept.store.get(&Digest::of(b"one"), &to).unwrap());
    assert_ne!(to.metadata().unwrap().ino(), kept.file(b"one").metadata().unwrap().ino());
    fs::write(to, "evil").unwrap();
    assert!(kept.get(b"one"));
    for path in [kept.store.path(), &kept.file(b"one")] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o077, 0, "{path:?}");
    }
}

#[test]
fn the_limit_is_kept_and_the_least_recently_used_goes() {
    let kept = kept(16 * BLOCK);
    for number in 0..16 {
        assert!(kept.put(&block(number)));
        kept.age(&block(number), 1000 - u64::from(number));
    }
    // One is read, and one is put in again.
    assert!(kept.get(&block(0)) && kept.put(&block(1)));
    assert!(kept.put(&block(16)));
    assert_eq!(kept.size(), 13 * BLOCK);
    assert_eq!(kept.store.usage().0, 13 * BLOCK);
    let left: Vec<u32> = (0..17).filter(|&number| kept.store.has(&piece(&block(number)))).collect();
    let expected: Vec<u32> = [0, 1].into_iter().chain(6..17).collect();
    assert_eq!(left, expected);
}

#[test]
fn a_piece_that_would_take_too_much_of_the_store_is_not_kept() {
    let kept = kept(16 * BLOCK);
    assert!(kept.put(b"one"));
    assert!(kept.put(&[1; 4 * BLOCK as usize]));
    assert!(!kept.put(&[1; 4 * BLOCK as usize + 1]));
    assert!(kept.get(b"one"));
}

#[test]
fn what_killed_workers_left_goes_when_room_is_made() {
    let kept = kept(16 * BLOCK);
    let left = kept.store.folder.join(NEW).join(".tmpabc");
    // It was counted before it was written, and a size that was cut off is not believed.
    for size in ["00000000000000065536", "000000", "", "a lot"] {
        fs::write(&left, block(99)).unwrap();
        fs::write(kept.store.folder.join(SIZE), size).unwrap();
        assert!(kept.put(format!("piece {size}").as_bytes()));
        assert!(!left.exists());
    }
    assert_eq!(kept.store.usage().0, 4 * BLOCK);
    fs::remove_dir_all(kept.store.path()).unwrap();
    let store = Store::open(kept.place.path(), 16 * BLOCK).unwrap();
    assert!(!store.has(&piece(b"piece ")) && kept.put(b"piece "));
}

#[test]
fn a_piece_is_put_without_a_look_at_the_others() {
    let kept = kept(1 << 30);
    assert!(kept.put(b"one"));
    // Were it looked through, its size would be known again.
    fs::write(kept.store.folder.join(SIZE), format!("{:020}", 7 * BLOCK)).unwrap();
    assert!(kept.put(b"two"));
    assert_eq!(kept.store.usage().0, 8 * BLOCK);
}

#[test]
fn many_threads_share_it() {
    let kept = kept(32 * BLOCK);
    thread::scope(|scope| {
        for thread in 0..4 {
            let kept = &kept;
            scope.spawn(move || {
                for number in 0..150 {
                    let content = block((number * (thread + 1)) % 60);
                    assert!(kept.put(&content));
                    kept.get(&content);
                }
            });
        }
    });
    assert!(kept.size() <= kept.store.usage().0 && kept.store.usage().0 <= 32 * BLOCK);
    assert!((0..60).any(|number| kept.get(&block(number))));
}

#[test]
fn a_piece_that_is_to_come_is_waited_for() {
    let kept = kept(1 << 20);
    let (to, begun) = (kept.place.path().join("to"), Instant::now());
    let until = |ms| begun + Duration::from_millis(ms);
    assert!(!kept.store.get_until(until(50), &Digest::of(b"one"), &to).unwrap());
    assert!(begun.elapsed() >= Duration::from_millis(50));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            kept.put(b"one")
        });
        assert!(kept.store.get_until(until(20_000), &Digest::of(b"one"), &to).unwrap());
    });
    assert_eq!(fs::read(to).unwrap(), b"one");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_folder_that_others_can_write_to_is_no_store() {
    let kept = kept(1 << 20);
    fs::set_permissions(kept.store.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Store::open(kept.place.path(), 1 << 20).is_err());
}
