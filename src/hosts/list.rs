//! distcc's list of hosts, as `distcc --show-hosts` prints it: one entry a line, as the user wrote it, without
//! comments, `--localslots*` and `--randomize`. It does not know whether a host can be reached.

use anyhow::{bail, ensure};

/// distcc's own default for LIMIT.
const SLOTS: u32 = 4;
/// A larger LIMIT counts as this: distccd takes 200 jobs at most.
const MOST_SLOTS: u32 = 1024;
/// The port that distccd has by default.
const PORT: u16 = 3632;

/// How a host is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A connection to its daemon.
    Tcp,
    /// A daemon started by ssh: each job takes a second longer, and nothing can be told of the host while a
    /// job runs.
    Ssh,
}

/// A host that may get jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As `DISTCC_HOSTS` wants it for this host alone, without `,lzo` and `,cpp`: bundles are compressed.
    pub spec: String,
    /// For people, statistics and blame: `build1`, `10.0.0.1:4801`, `[fe80::1]`, `@build1`.
    pub name: String,
    /// Jobs at once.
    pub slots: u32,
    /// Name or address, without brackets, and port of a daemon.
    pub address: Option<(String, u16)>,
    /// How it is talked to.
    pub kind: Kind,
}

/// An entry that gets no jobs, or another part of the list that people should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The entry.
    pub entry: String,
    /// Why.
    pub reason: &'static str,
}

/// What a list says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// In the list's order, each once.
    pub hosts: Vec<Host>,
    /// For `doctor`.
    pub notes: Vec<Note>,
}

/// How to ask distcc's client for its hosts. It must be asked in the user's own environment and with
/// the user's `DISTCC_DIR`: with another it does not read `~/.distcc/hosts` and prints a default.
pub const QUESTION: [&str; 2] = ["distcc", "--show-hosts"];

/// Reads what [`QUESTION`] printed on its standard output and standard error. It exits with 0 even if it
/// could not read the list, and prints nothing then.
///
/// # Errors
/// There is no list, or an entry makes no sense; it is named.
pub fn read(stdout: &str, stderr: &str) -> anyhow::Result<List> {
    let mut list = List::default();
    let mut entries = stdout.split_whitespace().peekable();
    if entries.peek().is_none() {
        let lines = stderr.lines().map(without_origin).filter(|line| !line.is_empty());
        let why = lines.take(3).collect::<Vec<_>>().join("; ");
        bail!(
            "distcc has no hosts ({why}): set DISTCC_HOSTS or write ~/.distcc/hosts; \
             `distcc --show-hosts` must print them"
        );
    }
    for entry in entries {
        match parse(entry) {
            Ok((Some(host), reason)) => {
                note(&mut list, entry, reason);
                add(&mut list, entry, host);
            }
            Ok((None, reason)) => note(&mut list, entry, reason),
            Err(error) => bail!("distcc's list of hosts has the entry {entry:?}: {error}"),
        }
    }
    Ok(list)
}

/// `distcc[123] (function) ERROR: text` without process and function.
pub(super) fn without_origin(line: &str) -> &str {
    let ours = line.starts_with("distcc[") || line.starts_with("distccd[");
    let after = |mark| line.split_once(mark).map(|(_, text)| text);
    match ours {
        true => after("ERROR: ").or(after("CRITICAL! ")).or(after("Warning: ")).unwrap_or(line),
        false => line,
    }
    .trim()
}

fn note(list: &mut List, entry: &str, reason: Option<&'static str>) {
    list.notes.extend(reason.map(|reason| Note { entry: entry.to_owned(), reason }));
}

/// distcc counts the jobs of two entries for one host together, up to the larger LIMIT.
fn add(list: &mut List, entry: &str, host: Host) {
    match list.hosts.iter_mut().find(|other| other.name == host.name) {
        Some(other) => {
            if host.slots > other.slots {
                *other = host;
            }
            note(list, entry, Some("named more than once: the largest LIMIT counts"));
        }
        None => list.hosts.push(host),
    }
}

type Parsed = (Option<Host>, Option<&'static str>);

fn parse(entry: &str) -> anyhow::Result<Parsed> {
    ensure!(!entry.starts_with(['-', '+']), "it is no host");
    ensure!(!entry.chars().any(char::is_control), "it holds control characters");
    if entry == "localhost" || entry.starts_with("localhost/") {
        return Ok((None, Some("this machine: the bridge runs jobs here itself")));
    }
    match entry.split_once('@') {
        Some((user, rest)) => ssh(user, rest),
        None => tcp(entry),
    }
}

/// `HOST[/LIMIT][:PORT][/LIMIT][OPTIONS]`; a host in brackets is an IPv6 address.
fn tcp(entry: &str) -> anyhow::Result<Parsed> {
    let (host, rest) = match entry.strip_prefix('[') {
        Some(inner) => {
            let Some((host, rest)) = inner.split_once(']') else { bail!("a ] is missing") };
            (host, rest)
        }
        None => split(entry, &['/', ':', ',']),
    };
    ensure!(is_name(host), "it has no proper host name");
    let (before, rest) = limit(rest)?;
    let (port, rest) = match rest.strip_prefix(':') {
        Some(rest) => {
            let (digits, rest) = split(rest, &['/', ',']);
            let port = digits.parse().ok().filter(|&port| port != 0);
            let Some(port) = port else { bail!("{digits:?} is no port") };
            (port, rest)
        }
        None => (PORT, rest),
    };
    let (after, rest) = limit(rest)?;
    let slots = after.or(before).unwrap_or(SLOTS);
    let options = Options::parse(rest)?;
    let shown = if entry.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let host = Host {
        spec: format!("{shown}:{port}/{slots}{}", options.kept),
        name: if port == PORT { shown } else { format!("{shown}:{port}") },
        slots,
        address: Some((host.to_owned(), port)),
        kind: Kind::Tcp,
    };
    Ok(options.decide(host))
}

/// `[USER]@HOST[/LIMIT][:COMMAND][OPTIONS]`.
fn ssh(user: &str, rest: &str) -> anyhow::Result<Parsed> {
    let (host, rest) = split(rest, &['/', ':', ',']);
    ensure!(is_name(host), "it has no proper host name");
    let (slots, rest) = limit(rest)?;
    let (command, rest) = match rest.strip_prefix(':') {
        Some(rest) => split(rest, &[',']),
        None => ("", rest),
    };
    let slots = slots.unwrap_or(SLOTS);
    let options = Options::parse(rest)?;
    let command = if command.is_empty() { String::new() } else { format!(":{command}") };
    let host = Host {
        spec: format!("{user}@{host}/{slots}{command}{}", options.kept),
        name: format!("{user}@{host}"),
        slots,
        address: None,
        kind: Kind::Ssh,
    };
    Ok(options.decide(host))
}

/// Up to the first of `ends`, and the rest from there on.
fn split<'a>(text: &'a str, ends: &[char]) -> (&'a str, &'a str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// ssh would take a name that begins with a dash for an option; distcc takes `build1=4` for a name.
fn is_name(host: &str) -> bool {
    !host.is_empty() && !host.starts_with('-') && !host.contains('=') && host.len() <= 255
}

/// `/N`, if there is one.
fn limit(text: &str) -> anyhow::Result<(Option<u32>, &str)> {
    let Some(rest) = text.strip_prefix(['/']) else { return Ok((None, text)) };
    let (digits, rest) = split(rest, &[':', ',', '/']);
    let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(number && digits.bytes().any(|byte| byte != b'0'), "{digits:?} is no LIMIT");
    Ok((Some(digits.parse().unwrap_or(MOST_SLOTS).min(MOST_SLOTS)), rest))
}

#[derive(Default)]
struct Options<'a> {
    down: bool,
    auth: bool,
    kept: &'a str,
}

impl<'a> Options<'a> {
    fn parse(text: &'a str) -> anyhow::Result<Self> {
        let mut options = Options::default();
        let Some(list) = text.strip_prefix(',') else {
            ensure!(text.is_empty(), "{text:?} is not understood");
            return Ok(options);
        };
        let mut at = text.len() - list.len();
        for option in list.split(',') {
            match option {
                "lzo" | "cpp" => {}
                "down" => options.down = true,
                _ if option == "auth" || option.starts_with("auth=") => {
                    options.auth = true;
                    options.kept = &text[at - 1..at + option.len()];
                }
                _ => bail!("the option {option:?} is not known"),
            }
            at += option.len() + 1;
        }
        Ok(options)
    }

    fn decide(&self, host: Host) -> Parsed {
        if self.down {
            (None, Some("the list says that it is down"))
        } else if self.auth {
            (Some(host), Some("GSS-API tells who asks, but encrypts nothing"))
        } else if host.kind == Kind::Ssh {
            let reason = "by ssh each job takes up to a second longer, and a host that dies in \
                          mid-job is noticed only when --timeout is over";
            (Some(host), Some(reason))
        } else {
            (Some(host), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> List {
        read(text, "").unwrap()
    }

    fn one(entry: &str) -> Host {
        let mut hosts = list(entry).hosts;
        assert_eq!(hosts.len(), 1, "{entry}");
        hosts.remove(0)
    }

    fn error(entry: &str) -> String {
        format!("{:#}", read(entry, "").unwrap_err())
    }

    #[test]
    fn each_form_of_an_entry_is_read() {
        for (entry, spec, name, slots) in [
            ("a", "a:3632/4", "a", 4),
            ("10.0.0.1:4801/8,lzo", "10.0.0.1:4801/8", "10.0.0.1:4801", 8),
            ("b/2,lzo,cpp", "b:3632/2", "b", 2),
            ("b/2:70", "b:70/2", "b:70", 2),
            ("[::1]:4801/3", "[::1]:4801/3", "[::1]:4801", 3),
            ("[fe80::1]", "[fe80::1]:3632/4", "[fe80::1]", 4),
            ("b,lzo,auth=host,cpp", "b:3632/4,auth=host", "b", 4),
            ("a/9999999999", "a:3632/1024", "a", 1024),
            ("localhost:4801", "localhost:4801/4", "localhost:4801", 4),
            ("@c/6", "@c/6", "@c", 6),
            ("me@d/3:/usr/bin/distccd,lzo", "me@d/3:/usr/bin/distccd", "me@d", 3),
        ] {
            let host = one(entry);
            assert_eq!((&*host.spec, &*host.name, host.slots), (spec, name, slots), "{entry}");
        }
    }

    #[test]
    fn only_a_daemon_has_an_address() {
        assert_eq!(one("[::1]:4801").address, Some(("::1".into(), 4801)));
        assert_eq!(one("b").address, Some(("b".into(), 3632)));
        assert_eq!((one("@b").address, one("@b").kind), (None, Kind::Ssh));
    }

    #[test]
    fn this_machine_and_hosts_that_are_down_get_no_jobs() {
        let list = list("localhost\nlocalhost/3\na,down\nb/4,lzo,down\nc\n");
        assert_eq!(list.hosts.iter().map(|host| &*host.name).collect::<Vec<_>>(), ["c"]);
        assert_eq!(list.notes.len(), 4);
        assert!(list.notes[2].reason.contains("down"));
    }

    #[test]
    fn a_host_named_twice_is_one_with_the_larger_limit() {
        let list = list("a\na/7\na/2,lzo\na:3633\n");
        let slots: Vec<_> = list.hosts.iter().map(|host| (&*host.name, host.slots)).collect();
        assert_eq!(slots, [("a", 7), ("a:3633", 4)]);
        assert_eq!(list.notes.len(), 2);
    }

    #[test]
    fn nonsense_is_named() {
        for entry in [
            "--foo",
            "-x",
            "+zeroconf",
            "a/0",
            "a/-1",
            "a/x",
            "a/3xyz",
            "a=3",
            "a:",
            "a:0",
            "a:99999",
            "a,foo",
            "a,",
            "@",
            "h@",
            "[::1",
            "[]",
            "::1",
            "/abc",
            "@-oProxyCommand=x",
            "a\u{7}",
        ] {
            let text = error(&format!("good\n{entry}\n"));
            assert!(text.contains(&format!("{entry:?}")), "{entry}: {text}");
        }
    }

    #[test]
    fn no_list_is_an_error_in_the_clients_words() {
        let text = format!(
            "{:#}",
            read(
                "",
                "distcc[9] (dcc_parse_multiplier) ERROR: bad multiplier \"/x\" in host specification\n\
                 distcc[9] (dcc_show_hosts) CRITICAL! Failed to get host list\n"
            )
            .unwrap_err()
        );
        assert!(text.contains("(bad multiplier \"/x\" in host specification; Failed to"), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String, entry in "[a-z@\\[\\]:/=,0-9]{0,20}") {
            let _ = read(&text, &text);
            let _ = read(&entry, "");
        }

        #[test]
        fn a_spec_means_itself(entry in "[a-z]{1,4}(:[1-9][0-9]{0,3})?(/[1-9])?(,lzo)?(,auth)?") {
            if let Ok(List { hosts, .. }) = read(&entry, "") {
                for host in hosts {
                    proptest::prop_assert_eq!(&one(&host.spec), &host);
                }
            }
        }
    }
}
