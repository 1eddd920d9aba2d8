//! sccache's server: found by connecting to it, else started, once for all links of a user. It knows how such a
//! server lives and dies; it does not know what it is asked for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::shim::{failed, run};
use super::{About, Trouble};
use crate::os::{self, Careful};
use crate::process::{Command, Groups};

/// The variables that name a server's address; users set them for a server of their own.
const SOCKET: &str = "SCCACHE_SERVER_UDS";
const PORT: &str = "SCCACHE_SERVER_PORT";
/// Marks what was started for a server, to end it if it does not come up.
const MARK: &str = "_DTLTO_BRIDGE_SERVER";
/// A server ends after so many seconds without requests, unless the user says otherwise.
const IDLE: (&str, &str) = ("SCCACHE_IDLE_TIMEOUT", "600");
/// A storage for which no server came up is not tried again for so long: each try takes up to 10 s (sccache 0.14
/// to 0.19).
const TROUBLE_LASTS: Duration = Duration::from_secs(60);
/// How long files of a server that does not run are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a link starts a server: one that has died is started again once.
const STARTS: u32 = 2;
/// A server on this machine takes a connection at once.
const CONNECT: Duration = Duration::from_secs(1);
/// In nanoseconds.
const SECOND: i128 = 1_000_000_000;
/// Between two looks at a lock.
const LOOK: Duration = Duration::from_millis(10);
/// A server's environment is its starter's but for these: requests and logs of others, and what would keep it from
/// becoming a daemon.
const NOT_A_SERVERS: [&str; 12] = [
    "CARGO_INCREMENTAL",
    "CARGO_MAKEFLAGS",
    "MAKEFLAGS",
    "SCCACHE_CLIENT_SIDE",
    "SCCACHE_ERROR_LOG",
    "SCCACHE_EXTRAFILES",
    "SCCACHE_LOG",
    "SCCACHE_NO_CACHE",
    "SCCACHE_NO_DAEMON",
    "SCCACHE_RECACHE",
    "SCCACHE_STARTUP_NOTIFY",
    "SCCACHE_START_SERVER",
];

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Socket(String),
    Port(u16),
}

impl Address {
    /// The one that the user's variables name. sccache looks at the socket first.
    fn of_the_user(environment: &BTreeMap<String, String>) -> Result<Option<Self>, Trouble> {
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        if let Some(socket) = set(SOCKET) {
            return Ok(Some(Address::Socket(socket.clone())));
        }
        let port = set(PORT).map(|port| {
            port.parse().map_err(|_| Trouble::Failed(format!("{PORT}={port:?} is no port")))
        });
        Ok(port.transpose()?.map(Address::Port))
    }

    fn variable(&self) -> (String, String) {
        match self {
            Address::Socket(path) => (SOCKET.into(), path.clone()),
            Address::Port(port) => (PORT.into(), port.to_string()),
        }
    }

    fn answers(&self) -> bool {
        match self {
            Address::Port(port) => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
                TcpStream::connect_timeout(&address, CONNECT).is_ok()
            }
            // sccache writes the first byte of an abstract name like this.
            Address::Socket(path) => match path.strip_prefix("\\x00") {
                Some(name) => os::try_abstract_socket(name).is_ok(),
                None => os::try_socket(Path::new(path)).is_ok(),
            },
        }
    }
}

/// A server, running or not.
#[derive(Debug)]
pub(super) struct Server {
    address: Address,
    /// The user has named the address.
    of_the_user: bool,
    /// The start of the names of what is kept about it: a lock, the last trouble, its settings.
    files: PathBuf,
    command: Command,
    starts: AtomicU32,
}

impl Server {
    /// The server of the user, if one is named by `SCCACHE_SERVER_UDS` or `SCCACHE_SERVER_PORT`, else one of the
    /// bridge's own for each storage that the user's settings may mean. Starts nothing.
    ///
    /// The default port is shared by all users of a machine, and the server there may have been started by anybody
    /// with any settings.
    pub(super) fn new(about: &About) -> Result<Self, Trouble> {
        let folder = folder()?;
        let given = Address::of_the_user(&about.environment)?;
        let config = Config::find(&about.environment);
        let id = match &given {
            Some(address) => digest([address.variable().1.as_bytes()]),
            None => storage(about, &config),
        };
        let files = folder.join(id);
        let of_the_user = given.is_some();
        let mut set = about.environment.clone();
        if given.is_none()
            && let Some(text) = config.without_farm()
        {
            let path = files.with_extension("conf");
            write_private(&path, &text).map_err(|error| failed(&path, &error))?;
            set.insert("SCCACHE_CONF".into(), path.display().to_string());
        }
        let own = || Address::Socket(files.with_extension("sock").display().to_string());
        let address = given.unwrap_or_else(own);
        Ok(Server { of_the_user, ..Server::at(address, files, set, about) })
    }

    /// A server that has the user's farm, and a log: always the bridge's own.
    pub(super) fn for_farm(about: &About) -> Result<Self, Trouble> {
        let config = Config::find(&about.environment);
        let files = folder()?.join(format!("farm-{}", storage(about, &config)));
        let own = Address::Socket(files.with_extension("sock").display().to_string());
        let mut server = Server::at(own, files, about.environment.clone(), about);
        let log = server.file("log").display().to_string();
        let settings = [("SCCACHE_LOG", "sccache=debug"), ("SCCACHE_ERROR_LOG", &*log)];
        for (name, value) in settings {
            server.command.unset.retain(|unset| unset != name);
            server.command.set.push((name.to_owned(), value.to_owned()));
        }
        Ok(server)
    }

    fn at(
        address: Address,
        files: PathBuf,
        mut set: BTreeMap<String, String>,
        about: &About,
    ) -> Self {
        // sccache looks at the socket first.
        set.remove(PORT);
        set.extend([address.variable()]);
        set.entry(IDLE.0.into()).or_insert_with(|| IDLE.1.into());
        NOT_A_SERVERS.iter().for_each(|name| drop(set.remove(*name)));
        let command = Command {
            program: about.tool.clone(),
            args: vec!["--start-server".into()],
            set: set.into_iter().collect(),
            unset: NOT_A_SERVERS.map(str::to_owned).into(),
            clear: false,
        };
        Server { address, of_the_user: false, files, command, starts: AtomicU32::new(0) }
    }

    /// One of the files that are kept about it.
    pub(super) fn file(&self, ending: &str) -> PathBuf {
        self.files.with_extension(ending)
    }

    /// What tells a client where the server is.
    pub(super) fn variable(&self) -> (String, String) {
        self.address.variable()
    }

    /// The same for people.
    pub(super) fn shown(&self) -> String {
        let (name, place) = self.variable();
        let whose = if self.of_the_user { "the user's own" } else { "the bridge's own" };
        format!("server: {whose}, {name}={place}")
    }

    /// Whether it takes connections.
    pub(super) fn answers(&self) -> bool {
        self.address.answers()
    }

    /// Finds it, or starts it. Calls and links that come at the same time wait for the first one's.
    pub(super) fn find_or_start(&self, groups: &Groups, deadline: Instant) -> Result<(), Trouble> {
        if self.answers() {
            return Ok(());
        }
        let lock = self.file("lock");
        let _turn = locked(&lock, deadline)?;
        if self.answers() {
            return Ok(());
        }
        self.recent_trouble().map_or(Ok(()), Err)?;
        if self.starts() == STARTS {
            return Err(Trouble::Failed("its server has died".into()));
        }
        self.starts.fetch_add(1, Ordering::Relaxed);
        let started = self.start(groups, deadline);
        if let Err(trouble @ (Trouble::Failed(_) | Trouble::TimedOut)) = &started {
            // Whoever cannot note it pays again.
            let _ = write_private(&self.trouble(), trouble.to_string().as_bytes());
        }
        started
    }

    /// How often this link has started it.
    pub(super) fn starts(&self) -> u32 {
        self.starts.load(Ordering::Relaxed)
    }

    /// The last start failed a short time ago: why.
    fn recent_trouble(&self) -> Option<Trouble> {
        let path = self.trouble();
        let noted = fs::metadata(&path).and_then(|found| found.modified()).ok()?;
        let age = SystemTime::now().duration_since(noted).unwrap_or_default();
        let words = fs::read_to_string(&path).ok()?;
        let again = TROUBLE_LASTS.checked_sub(age)?.as_secs() + 1;
        Some(Trouble::Failed(format!(
            "{words} (seen {} s ago, tried again in {again} s)",
            age.as_secs()
        )))
    }

    fn trouble(&self) -> PathBuf {
        self.file("trouble")
    }

    fn start(&self, groups: &Groups, deadline: Instant) -> Result<(), Trouble> {
        os::keep_descriptors();
        sweep(self.files.parent());
        let _ = fs::remove_file(self.trouble());
        let mark = format!("{}-{}", std::process::id(), self.files.display());
        let mut command = self.command.clone();
        command.set.push((MARK.into(), mark.clone()));
        let (code, said) = run(groups, &command, deadline).inspect_err(|_| give_up(&mark))?;
        if code == Some(0) && self.answers() {
            return Ok(());
        }
        give_up(&mark);
        Err(Trouble::Failed(format!("its server does not start: {said}")))
    }
}

/// Removes the files of servers that are gone: settings change, and each change is another server.
fn sweep(folder: Option<&Path>) {
    let Some(Ok(files)) = folder.map(fs::read_dir) else { return };
    for path in files.flatten().map(|entry| entry.path()) {
        let answers = Address::Socket(path.with_extension("sock").display().to_string()).answers();
        let age = fs::metadata(&path).and_then(|found| found.modified()).map(|time| time.elapsed());
        if !answers && age.is_ok_and(|age| age.is_ok_and(|age| age > KEPT)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// What a failed start has left would come up later, or hang in its storage.
fn give_up(mark: &str) {
    os::end_carrying(&format!("{MARK}={mark}"));
}

/// Where servers' files are: this user's alone, and short, since a socket's path has 107 bytes at most.
fn folder() -> Result<PathBuf, Trouble> {
    let make = || {
        let folder = os::own_folder()?.join("sccache");
        os::own(&folder)?;
        Ok(folder)
    };
    make().map_err(|error: anyhow::Error| Trouble::Failed(format!("{error:#}")))
}

/// Waits for the lock on the file `path`.
fn locked(path: &Path, deadline: Instant) -> Result<File, Trouble> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).private().no_follow();
    let lock = options.open(path).map_err(|error| failed(path, &error))?;
    loop {
        match os::try_lock(&lock) {
            Ok(true) => return Ok(lock),
            Ok(false) if Instant::now() < deadline => thread::sleep(LOOK),
            Ok(false) => return Err(Trouble::TimedOut),
            Err(error) => return Err(failed(path, &error)),
        }
    }
}

/// Writes a file that nobody else may read, as a whole.
fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, text)?;
    file.persist(path)?;
    Ok(())
}

/// What decides where a server's entries are: its program, the user's variables, the user's file. Other settings are
/// another server, which is how a new token, say, comes into force.
fn storage(about: &About, config: &Config) -> String {
    let program = os::stat(&about.tool);
    let version =
        program.map(|found| format!("{} {}", found.size, found.modified_ns.div_euclid(SECOND)));
    let counts = |name: &str| match name {
        "XDG_CACHE_HOME" | "XDG_CONFIG_HOME" => true,
        "PATH" | "TMPDIR" => false,
        _ => {
            !["CCACHE_", "XDG_"].iter().any(|prefix| name.starts_with(prefix))
                && !NOT_A_SERVERS.contains(&name)
        }
    };
    let variables = about.environment.iter().filter(|(name, _)| counts(name));
    let parts = [about.tool.as_os_str().as_encoded_bytes().to_vec()]
        .into_iter()
        .chain(version.map(String::into_bytes))
        .chain([config.text.clone()])
        .chain(variables.flat_map(|(name, value)| [name.clone().into(), value.clone().into()]));
    digest(parts)
}

/// 16 hex digits for `parts`.
fn digest<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.as_ref().len() as u64).to_le_bytes()).update(part.as_ref());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// The user's settings file, if there is one.
struct Config {
    text: Vec<u8>,
}

impl Config {
    fn find(environment: &BTreeMap<String, String>) -> Self {
        let set = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let named = set("SCCACHE_CONF").map(PathBuf::from);
        let in_folder = || {
            let folder = set("XDG_CONFIG_HOME").map(PathBuf::from);
            let folder = folder.or_else(|| Some(Path::new(set("HOME")?).join(".config")))?;
            Some(folder.join("sccache/config"))
        };
        let path = named.or_else(in_folder);
        Config { text: path.and_then(|path| fs::read(path).ok()).unwrap_or_default() }
    }

    /// The same settings without the tables of sccache-dist, if there are any: a server that has a farm sends it
    /// each call that is not a hit, and the compiler that it would send is the shim.
    fn without_farm(&self) -> Option<Vec<u8>> {
        let mut farm = false;
        let mut any = false;
        let kept = self.text.split_inclusive(|byte| *byte == b'\n').filter(|line| {
            if let Some(name) = table(line) {
                farm = name == "dist" || name.starts_with("dist.");
            }
            any |= farm;
            !farm
        });
        let kept: Vec<u8> = kept.flatten().copied().collect();
        any.then_some(kept)
    }
}

/// The name of the table that a line of TOML begins.
fn table(line: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?.split('#').next()?.trim();
    let name = line.strip_prefix('[')?.strip_suffix(']')?;
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let known = |c: char| c.is_ascii_alphanumeric() || " .-_'\"".contains(c);
    (!name.is_empty() && name.chars().all(known)).then(|| name.replace([' ', '"', '\''], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_farm(text: &str) -> Option<String> {
        let kept = Config { text: text.into() }.without_farm()?;
        Some(String::from_utf8(kept).unwrap())
    }

    #[test]
    fn a_file_without_a_farm_is_left_alone() {
        assert_eq!(without_farm(""), None);
        assert_eq!(without_farm("[cache.redis]\nendpoint = \"redis://dist\"\n"), None);
    }

    #[test]
    fn the_tables_of_the_farm_are_left_out() {
        let text = "server_startup_timeout_ms = 7\n\n[dist] # ours\nscheduler_url = \"http://x\"\n\
                    [dist.auth]\ntype = \"token\"\n[[dist.toolchains]]\na = [\n[\"b\"],\n]\n\
                    [cache.redis]\nendpoint = \"redis://y\"\n[ \"dist\".auth ]\ntoken = \"z\"";
        let kept = "server_startup_timeout_ms = 7\n\n[cache.redis]\nendpoint = \"redis://y\"\n";
        assert_eq!(without_farm(text).unwrap(), kept);
    }

    #[test]
    fn a_failed_start_is_remembered_for_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server {
            address: Address::Port(1),
            of_the_user: true,
            files: folder.path().join("x"),
            command: Command { program: "/bin/false".into(), ..Command::default() },
            starts: AtomicU32::new(0),
        };
        let groups = Groups::new(None);
        let find = || server.find_or_start(&groups, Instant::now() + CONNECT).unwrap_err();
        assert!(find().to_string().starts_with("its server does not start"));
        assert!(find().to_string().contains("tried again in"));
        let noted = File::options().append(true).open(server.trouble()).unwrap();
        noted.set_modified(SystemTime::now() - TROUBLE_LASTS - CONNECT).unwrap();
        assert!(!find().to_string().contains("tried again in"));
    }

    #[test]
    fn files_of_servers_that_are_gone_are_swept_after_a_week() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _listens = std::os::unix::net::UnixListener::bind(path("b.sock")).unwrap();
        for name in ["a.lock", "a.log", "b.lock", "c.lock"] {
            let file = File::create(path(name)).unwrap();
            if name != "c.lock" {
                file.set_modified(SystemTime::now() - KEPT - CONNECT).unwrap();
            }
        }
        sweep(Some(folder.path()));
        let left = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, ["b.lock", "b.sock", "c.lock"]);
    }

    #[test]
    fn the_users_address_is_taken_as_sccache_takes_it() {
        let of = |set: &[(&str, &str)]| {
            let set = set.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            Address::of_the_user(&set.collect())
        };
        assert_eq!(of(&[(SOCKET, "")]), Ok(None));
        assert_eq!(of(&[(PORT, "4226")]), Ok(Some(Address::Port(4226))));
        let both = of(&[(PORT, "4226"), (SOCKET, "/s")]);
        assert_eq!(both, Ok(Some(Address::Socket("/s".into()))));
        assert!(of(&[(PORT, "many")]).is_err());
    }
}
