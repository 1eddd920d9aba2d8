//! What the environment says beside the options: the user's folders, and the variables of tools. With the options'
//! variables, the only place that reads it. It does not know what becomes of any of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::{PREFIX, WRAPPED, option_variables};
use crate::os;

/// Variables with the options' prefix which are no options.
const OTHER_VARIABLES: [&str; 1] = ["DTLTO_BRIDGE_OVERRIDE"];

/// What the environment says beside the options.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The folder for a user's own adapters, if the user has a home.
    pub adapters: Option<PathBuf>,
    /// `DTLTO_BRIDGE_OVERRIDE`, if not empty.
    pub overrides: Option<String>,
    /// Colours are not wanted (`NO_COLOR`).
    pub no_color: bool,
    /// The terminal cannot move its cursor (`TERM=dumb`, or no `TERM`).
    pub dumb_terminal: bool,
    /// A job server may be named in `MAKEFLAGS`.
    pub makeflags: bool,
    /// Every variable's name, and its value where that is known to be harmless.
    pub shown: BTreeMap<String, Option<String>>,
    /// Variables that look like options but are none.
    pub unknown: Vec<String>,
    /// The file of [`WRAPPED`], if we run under a wrapping tool.
    pub wrapped: Option<PathBuf>,
    /// `PATH`.
    pub path: Option<String>,
    /// What the user is called.
    pub user: Option<String>,
    /// The folder for what can be made again, if the user has a home.
    pub cache: Option<PathBuf>,
    /// Variables that can change what a compiler is made of, those that are set.
    pub toolchain: Vec<(String, String)>,
    /// Variables by which tools of caches are set up and find their files.
    pub caches: BTreeMap<String, String>,
    /// What icecream's own variables say.
    pub icecream: Icecream,
}

/// What icecream's own variables say.
#[derive(Clone, Debug, Default)]
pub struct Icecream {
    /// `ICECC_TEST_SOCKET`: the socket of the daemon, if it is not the usual one.
    pub socket: Option<PathBuf>,
    /// `ICECC_SCHEDULER` or `USE_SCHEDULER`: where the scheduler is, as `HOST` or `HOST:PORT`.
    pub scheduler: Option<String>,
    /// `_ICECC_SAFEGUARD`: we were started by a client of icecream, which may hold a slot of this machine.
    pub inside: bool,
    /// `HOME`, where a user's own daemon has its socket.
    pub home: Option<PathBuf>,
}

/// Values of these say nothing of a user's secrets.
const HARMLESS: [&str; 12] = [
    "CCC_OVERRIDE_OPTIONS",
    "GLIBC_TUNABLES",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "NO_COLOR",
    "PATH",
    "PWD",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TMPDIR",
];

/// Whether the value of the variable `name` says nothing of a user's secrets.
pub fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name)
}

/// Libraries, variants of libm and config files are chosen by these.
pub const TOOLCHAIN: [&str; 5] =
    ["CLANG_NO_DEFAULT_CONFIG", "GLIBC_TUNABLES", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD"];

/// What the names of variables for caches begin with.
/// Storages of sccache take their credentials from variables of their own, and go through proxies.
const CACHES: [&str; 20] = [
    "ACTIONS_",
    "ALIBABA_CLOUD_",
    "ALL_PROXY",
    "AWS_",
    "AZURE_",
    "CCACHE_",
    "GOOGLE_",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "PATH",
    "SCCACHE_",
    "SSL_CERT_",
    "TENCENTCLOUD_",
    "TMPDIR",
    "XDG_",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

#[allow(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
pub(super) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Environment {
    /// Reads it once.
    #[allow(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    pub fn read() -> Self {
        let options: Vec<String> = option_variables().into_iter().map(|(name, ..)| name).collect();
        let mut shown = BTreeMap::new();
        let mut unknown = Vec::new();
        for (name, value) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let ours = name.starts_with(PREFIX);
            if ours && !options.contains(&name) && !OTHER_VARIABLES.contains(&name.as_str()) {
                unknown.push(name.clone());
            }
            let harmless = ours || is_harmless(&name);
            shown.insert(name, harmless.then(|| value.to_string_lossy().into_owned()));
        }
        let of_caches = |name: &&str| CACHES.iter().any(|start| name.starts_with(start));
        let caches = shown.keys().map(String::as_str).filter(of_caches);
        let caches =
            caches.filter_map(|name| Some((name.to_owned(), variable(name)?.into_string().ok()?)));
        let caches = caches.collect();
        let home = std::env::home_dir();
        let folder = |(name, in_home)| {
            let named = variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
            named.or_else(|| home.as_ref().map(|home| home.join(in_home)))
        };
        let config = folder(os::CONFIG);
        let text = |name: &str| variable(name)?.into_string().ok();
        let toolchain =
            TOOLCHAIN.iter().filter_map(|name| Some(((*name).to_owned(), text(name)?))).collect();
        Environment {
            adapters: config.map(|folder| folder.join("dtlto-bridge").join("adapters")),
            overrides: variable("DTLTO_BRIDGE_OVERRIDE").map(|v| v.to_string_lossy().into_owned()),
            no_color: variable("NO_COLOR").is_some(),
            dumb_terminal: variable("TERM").map_or(os::TERM_IS_TOLD, |term| term == "dumb"),
            makeflags: variable("MAKEFLAGS").is_some(),
            wrapped: variable(WRAPPED).map(PathBuf::from),
            path: text("PATH"),
            user: text("USER").or_else(|| text("LOGNAME")),
            cache: folder(os::CACHE).map(|cache| cache.join("dtlto-bridge")),
            toolchain,
            caches,
            icecream: Icecream {
                socket: variable("ICECC_TEST_SOCKET").map(PathBuf::from),
                scheduler: text("ICECC_SCHEDULER").or_else(|| text("USE_SCHEDULER")),
                inside: variable("_ICECC_SAFEGUARD").is_some(),
                home: home.clone(),
            },
            shown,
            unknown,
        }
    }
}

/// What a worker takes from the environment of the daemon that starts it.
#[derive(Clone, Debug)]
pub struct WorkerVariables {
    /// `DTLTO_WORKER_CONFIG`: the settings file.
    pub settings: Option<PathBuf>,
    /// `TMPDIR`, or `/tmp`.
    pub temporary: PathBuf,
    /// `GLIBC_TUNABLES`: by it the compiler's libm selects.
    pub tunables: Option<OsString>,
}

impl WorkerVariables {
    /// Reads them.
    pub fn read() -> Self {
        let temporary = variable("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
        WorkerVariables {
            settings: variable("DTLTO_WORKER_CONFIG").map(PathBuf::from),
            temporary: temporary.unwrap_or_else(|| "/tmp".into()),
            tunables: variable("GLIBC_TUNABLES"),
        }
    }
}
