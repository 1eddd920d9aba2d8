//! The scheduler's text port, on which people ask it for its nodes. What it answers is not written down anywhere:
//! what is not understood is left out.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::scheduler::Address;

/// What a connection may take.
const CONNECT: Duration = Duration::from_secs(1);
/// What an answer may take: a busy scheduler looks at this port now and then.
const ANSWER: Duration = Duration::from_secs(4);
/// No farm has so much to say.
const LONGEST: u64 = 4 << 20;
/// Bounds for jobs in flight.
const IN_FLIGHT: (usize, usize) = (4, 256);

/// A node, as its scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where its daemon listens; port 0: it takes no jobs of others.
    pub address: String,
    /// What programs it runs, as `uname -m` says it.
    pub platform: String,
    /// Jobs at once.
    pub slots: usize,
    /// Jobs now.
    pub running: usize,
    /// Of 1000; then it gets no jobs.
    pub load: u32,
    /// It is this machine, as its address tells.
    pub here: bool,
}

impl Node {
    /// It takes jobs of other machines.
    pub fn takes_jobs(&self) -> bool {
        self.slots > 0 && !self.address.ends_with(":0")
    }

    /// It takes jobs of this machine for `platform`, and is another one.
    pub fn is_of_use(&self, platform: &str) -> bool {
        self.takes_jobs() && !self.here && self.platform == platform
    }
}

/// Asks a scheduler for all that it knows of its nodes.
///
/// # Errors
/// It cannot be reached, or does not answer as one.
pub fn nodes(scheduler: &Address) -> anyhow::Result<Vec<Node>> {
    let (text, own) = ask(scheduler, "listcs")?;
    Ok(text.lines().filter_map(|line| node(line, own)).collect())
}

/// Asks what a node's own daemon says of itself, as lines for people.
///
/// # Errors
/// As [`nodes`].
pub fn internals(scheduler: &Address, node: &str) -> anyhow::Result<String> {
    Ok(ask(scheduler, &format!("internals {node}"))?.0)
}

/// The answer, and this machine's address as the scheduler sees it.
fn ask((host, port): &Address, command: &str) -> anyhow::Result<(String, IpAddr)> {
    let port = port.checked_add(1).context("the scheduler's port leaves none for its text")?;
    let what = || format!("the scheduler's text port {host}:{port}");
    let mut found = (&**host, port).to_socket_addrs().with_context(what)?;
    let address = found.next().with_context(what)?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT).with_context(what)?;
    let own = stream.local_addr().with_context(what)?.ip().to_canonical();
    let until = Instant::now() + ANSWER;
    stream.write_all(format!("{command}\nquit\n").as_bytes()).with_context(what)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "{} does not answer", what());
        stream.set_read_timeout(Some(left)).with_context(what)?;
        match stream.read(&mut buffer).with_context(what)? {
            0 => break,
            read => answer.extend_from_slice(&buffer[..read]),
        }
        ensure!((answer.len() as u64) < LONGEST, "{} says more than is believed", what());
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    ensure!(text.starts_with("200-ICECC"), "{} is not one of icecream", what());
    Ok((text, own))
}

/// ` n1 (127.0.0.1:10346) [x86_64] speed=0.00 jobs=0/2 load=750`
fn node(line: &str, own: IpAddr) -> Option<Node> {
    let (name, rest) = line.strip_prefix(' ')?.split_once(" (")?;
    let (address, rest) = rest.split_once(") [")?;
    let (platform, rest) = rest.split_once(']')?;
    let value = |key: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(key));
    let (running, slots) = value("jobs=")?.split_once('/')?;
    let ip = address.rsplit_once(':').and_then(|(ip, _)| ip.parse::<IpAddr>().ok());
    Some(Node {
        here: ip.is_some_and(|ip| ip.to_canonical() == own),
        name: name.trim().to_owned(),
        address: address.to_owned(),
        platform: platform.to_owned(),
        slots: slots.parse().ok()?,
        running: running.parse().ok()?,
        load: value("load=")?.parse().ok()?,
    })
}

/// How many jobs may be in flight: what all other nodes of the platform do at once, and what each one takes ahead.
pub fn in_flight(nodes: &[Node], platform: &str) -> usize {
    let usable = nodes.iter().filter(|node| node.is_of_use(platform));
    let all: usize = usable.map(|node| node.slots + 1 + node.slots / 4).sum();
    all.clamp(IN_FLIGHT.0, IN_FLIGHT.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ANSWERED: &str = "200-ICECC 1.4.0: 11s uptime, 3 hosts, 0 jobs in queue (0 total).
200 Use 'help' for help and 'quit' to quit.
 n1 (10.0.0.7:10346) [x86_64] speed=0.00 jobs=1/2 load=750
   3 COMP sub:sub on:n1 tmp/ic/j1.x.i
 big (10.0.0.9:10245) [x86_64] speed=312.5 jobs=0/32 load=0 busy installing since 3s
 arm (10.0.0.8:10245) [aarch64] speed=1.0 jobs=0/8 load=12
 sub (127.0.0.1:10245) [x86_64] speed=0.00 jobs=0/4 load=751
 small (10.0.0.6:0) [x86_64] speed=0.00 jobs=0/2 load=7
200 done
200 Good Bye!
";

    /// A scheduler that says `text` to whoever asks.
    fn scheduler(text: &'static str) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 64];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(text.as_bytes());
        });
        ("127.0.0.1".to_owned(), port - 1)
    }

    #[test]
    fn nodes_are_told_from_jobs_and_from_talk() {
        let nodes = nodes(&scheduler(ANSWERED)).unwrap();
        let names: Vec<_> = nodes.iter().map(|node| (&*node.name, node.slots)).collect();
        assert_eq!(names, [("n1", 2), ("big", 32), ("arm", 8), ("sub", 4), ("small", 2)]);
        assert_eq!((nodes[0].running, nodes[0].load, nodes[4].takes_jobs()), (1, 750, false));
        // The one that the scheduler sees at our own address is this machine.
        assert_eq!((nodes[3].takes_jobs(), nodes[3].here, nodes[0].here), (true, true, false));
        let of_use = nodes.iter().filter(|node| node.is_of_use("x86_64"));
        assert_eq!(of_use.map(|node| &*node.name).collect::<Vec<_>>(), ["n1", "big"]);
    }

    #[test]
    fn as_many_jobs_are_in_flight_as_nodes_take() {
        let nodes: Vec<Node> = ANSWERED.lines().filter_map(|line| node(line, LOCALHOST)).collect();
        assert_eq!(in_flight(&nodes, "x86_64"), 2 + 1 + 32 + 1 + 8);
        assert_eq!(in_flight(&nodes, "aarch64"), 8 + 1 + 2);
        assert_eq!((in_flight(&[], "x86_64"), in_flight(&nodes[..1], "x86_64")), (4, 4));
        let many = vec![nodes[1].clone(); 40];
        assert_eq!(in_flight(&many, "x86_64"), 256);
    }

    #[test]
    fn what_is_no_scheduler_is_an_error() {
        let error = nodes(&scheduler("SSH-2.0\r\n")).unwrap_err();
        assert!(error.to_string().ends_with("is not one of icecream"), "{error}");
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = format!("{:#}", nodes(&("127.0.0.1".to_owned(), closed - 1)).unwrap_err());
        assert!(error.contains(&format!("127.0.0.1:{closed}: ")), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line: String, rest: String) {
            let _ = node(&line, LOCALHOST);
            let line = format!(" n ({line}) [{rest}] jobs={line}/{rest} load={line}");
            let _ = node(&line, LOCALHOST);
        }
    }
}
