//! A network of a client and hosts, each in a namespace of its own, with a wire from the client to each host.
//! Only root can make one; the machine's own network is not touched. It does not know what is sent.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::distccd::Plan;
use super::{Host, Run};

/// All of it goes when this is dropped.
pub(crate) struct Network {
    /// The client's namespace; those of hosts have its name and a number.
    name: String,
    hosts: usize,
}

/// A direction on a wire.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    There,
    Back,
}

impl Network {
    /// Places for a client and `hosts` hosts; none if they cannot be made here.
    pub(crate) fn new(hosts: usize) -> Option<Network> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let may = |words: &[&str]| Run::new("ip").args(words).go().status.success();
        if !rustix::process::geteuid().is_root() || !may(&["netns", "list"]) {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dtlto-test-{}-{number}", std::process::id());
        let made = Network { name, hosts };
        ip(&format!("netns add {}", made.name));
        for n in 0..hosts {
            let (client, host) = (&made.name, made.space(n));
            ip(&format!("netns add {host}"));
            ip(&format!("-n {client} link add wire{n} type veth peer name wire netns {host}"));
            ip(&format!("-n {client} addr add 10.0.{n}.1/24 dev wire{n}"));
            ip(&format!("-n {client} link set wire{n} up"));
            ip(&format!("-n {host} addr add 10.0.{n}.2/24 dev wire"));
            ip(&format!("-n {host} link set wire up"));
        }
        Some(made)
    }

    fn space(&self, host: usize) -> String {
        format!("{}-{host}", self.name)
    }

    /// The end of a wire from which bytes go this way: its namespace and its name there.
    fn end(&self, host: usize, way: Way) -> (String, String) {
        match way {
            Way::There => (self.name.clone(), format!("wire{host}")),
            Way::Back => (self.space(host), "wire".to_owned()),
        }
    }

    /// `run` at the client's place.
    pub(crate) fn client(&self, run: Run) -> Run {
        run.within(&["ip", "netns", "exec", &self.name])
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.0.{host}.2")
    }

    /// A daemon at the place of a host, whose administrator has done as `edit` says.
    #[track_caller]
    pub(crate) fn host(&self, host: usize, edit: impl FnOnce(&mut Plan)) -> Host {
        Host::with(|plan| {
            plan.before = ["ip", "netns", "exec", &self.space(host)].map(str::to_owned).to_vec();
            (plan.address, plan.allow) = (self.address(host), format!("10.0.{host}.1"));
            edit(plan);
        })
    }

    /// The wire breaks.
    pub(crate) fn cut(&self, host: usize) {
        ip(&format!("-n {} link set wire down", self.space(host)));
    }

    /// What the host sends gets lost from now on.
    pub(crate) fn swallow(&self, host: usize) {
        ip(&format!("-n {} route add blackhole 10.0.{host}.1/32", self.space(host)));
    }

    /// The wire carries no more than 100 kB a second this way.
    pub(crate) fn throttle(&self, host: usize, way: Way) {
        let (space, wire) = self.end(host, way);
        let words =
            format!("-n {space} qdisc add dev {wire} root tbf rate 800kbit burst 16kb latency 60s");
        Run::new("tc").args(words.split(' ')).go().ok();
    }

    /// Bytes that the wire has carried this way.
    pub(crate) fn carried(&self, host: usize, way: Way) -> u64 {
        let (space, wire) = self.end(host, way);
        let file = format!("/sys/class/net/{wire}/statistics/tx_bytes");
        let output = Run::new("ip").args(["netns", "exec", &space, "cat", &file]).go().ok();
        output.stdout.trim().parse().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A wire goes with either end, a namespace with its last process.
        for n in 0..self.hosts {
            let words = format!("-n {} link del wire{n}", self.name);
            let _ = Command::new("ip")
                .args(words.split(' '))
                .stderr(std::process::Stdio::null())
                .status();
        }
        let spaces = (0..self.hosts).map(|n| self.space(n)).chain([self.name.clone()]);
        for space in spaces {
            let _ = Command::new("ip").args(["netns", "del", &space]).status();
        }
    }
}

#[track_caller]
fn ip(words: &str) {
    Run::new("ip").args(words.split(' ')).go().ok();
}
