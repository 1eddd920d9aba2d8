//! Real caches: a store of a test's own for each tool, the server that it starts, and a redis with a proxy before it
//! that can be slow, silent or gone. They do not know what is stored.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dtlto_bridge::cache::{self, About, Key, Kind, Store, Trouble};
use dtlto_bridge::process::Groups;
use rustix::process::{Signal, kill_process};

use super::{Folder, MARK, Marked, Process, Run, free_port, tool, until};

/// A user who has a cache.
pub(crate) struct User {
    pub(crate) folder: Folder,
    pub(crate) marked: Marked,
    pub(crate) environment: BTreeMap<String, String>,
}

impl User {
    /// With an own home, and storage in it.
    pub(crate) fn new() -> Self {
        let (folder, marked) = (Folder::new(), Marked::new());
        let place = |name: &str| folder.path(name).display().to_string();
        let environment = BTreeMap::from(
            [
                ("HOME", place("home")),
                ("SCCACHE_DIR", place("sccache")),
                ("CCACHE_DIR", place("ccache")),
                ("PATH", std::env::var("PATH").unwrap()),
                (MARK, marked.mark.clone()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        folder.mkdir("home");
        User { folder, marked, environment }
    }

    /// The same with another variable.
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.insert(name.into(), value.to_string());
        self
    }

    /// Whose entries are in a redis.
    pub(crate) fn of_redis(port: u16) -> Self {
        User::new().with("SCCACHE_REDIS_ENDPOINT", format!("redis://127.0.0.1:{port}"))
    }

    /// What a link of this user opens a store with; it must be there within `limit`.
    pub(crate) fn about(&self, kind: Kind, limit: Duration) -> About {
        static LINKS: AtomicU64 = AtomicU64::new(0);
        let link = format!("link{}", LINKS.fetch_add(1, Ordering::Relaxed));
        About {
            tool: tool(&kind.to_string()),
            private: self.folder.mkdir(link),
            kept: Some(self.folder.path("home/.cache/dtlto-bridge")),
            environment: self.environment.clone(),
            groups: Groups::new(None),
            deadline: Instant::now() + limit,
        }
    }

    pub(crate) fn open(&self, kind: Kind) -> Result<Box<dyn Store>, Trouble> {
        cache::open(kind, &self.about(kind, SOON))
    }

    /// The sccache servers that run for this user.
    pub(crate) fn servers(&self) -> Vec<Process> {
        let mut alive = self.marked.alive();
        alive.retain(|process| process.argv.first().is_some_and(|word| word.ends_with("sccache")));
        alive
    }

    /// Ends its only server as a crash does.
    #[track_caller]
    pub(crate) fn kill_server(&self) {
        let servers = self.servers();
        assert_eq!(servers.len(), 1, "{servers:?}");
        kill_process(servers[0].pid, Signal::KILL).unwrap();
        let gone = || self.servers().iter().all(|server| server.pid != servers[0].pid);
        until("the end of the server", gone);
    }
}

/// Enough for anything here.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A deadline far away.
pub(crate) fn soon() -> Instant {
    Instant::now() + SOON
}

/// A key of its own for each `number`.
pub(crate) fn key(number: u32) -> Key {
    Key::new(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// Bytes that do not get smaller.
pub(crate) fn noise(size: usize, seed: u32) -> Vec<u8> {
    let mut bytes = vec![0; size];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// One store, with files to put and to get.
pub(crate) struct Shelf<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) folder: Folder,
}

impl<'a> Shelf<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Self {
        Shelf { store, folder: Folder::new() }
    }

    pub(crate) fn put(&self, number: u32, bytes: &[u8], by: Instant) -> Result<(), Trouble> {
        let entry = self.folder.write(format!("entry{number}"), bytes);
        self.store.put(&key(number), &entry, by)
    }

    /// The entry, if there is one.
    pub(crate) fn get(&self, number: u32, by: Instant) -> Result<Option<Vec<u8>>, Trouble> {
        let into = self.folder.path(format!("into{number}"));
        let _ = std::fs::remove_file(&into);
        let hit = self.store.get(&key(number), &into, by)?;
        Ok(hit.then(|| std::fs::read(&into).unwrap()))
    }
}

/// A redis on a port of loopback, which keeps nothing.
pub(crate) struct Redis {
    pub(crate) port: u16,
    folder: Folder,
    daemon: Child,
}

impl Redis {
    pub(crate) fn new() -> Self {
        Redis::with(&[])
    }

    /// With further words of its command line.
    pub(crate) fn with(words: &[&str]) -> Self {
        let (port, folder) = (free_port(), Folder::new());
        let daemon = Redis::start(port, folder.path(""), words);
        Redis { port, folder, daemon }
    }

    fn start(port: u16, folder: PathBuf, words: &[&str]) -> Child {
        let child = Command::new(tool("redis-server"))
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(words)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("redis", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        child
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }

    /// Empty, at the same place.
    pub(crate) fn start_again(&mut self) {
        self.kill();
        self.daemon = Redis::start(self.port, self.folder.path(""), &[]);
    }

    /// What redis answers.
    pub(crate) fn ask(&self, words: &[&str]) -> Vec<String> {
        let port = self.port.to_string();
        let output = Run::new("redis-cli").args(["-p", &port]).args(words).go().ok();
        output.stdout.lines().map(str::to_owned).collect()
    }

    /// Writes over a part of each entry.
    pub(crate) fn damage(&self) {
        let keys = self.ask(&["keys", "*"]);
        assert!(!keys.is_empty());
        for key in keys {
            self.ask(&["setrange", &key, "40", "damaged"]);
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Stands before a port of loopback, and delays all that goes there.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    delay: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) fn new(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let delay = Arc::new(AtomicU64::new(0));
        let held = delay.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                carry(client.try_clone().unwrap(), server.try_clone().unwrap(), held.clone());
                carry(server, client, Arc::default());
            }
        });
        Proxy { port, delay }
    }

    /// From now on each piece that is sent takes so much longer.
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay.store(delay.as_millis().try_into().unwrap(), Ordering::Relaxed);
    }

    /// From now on nothing arrives.
    pub(crate) fn black_hole(&self) {
        self.delay(Duration::from_secs(3600));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: Arc<AtomicU64>) {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(size @ 1..) = from.read(&mut buffer) {
            thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
            if to.write_all(&buffer[..size]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
