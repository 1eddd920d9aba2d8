//! Links simulated with a clock of their own. It knows nothing of how a host is chosen.

use super::*;

const MB: u64 = 1 << 20;

struct Job {
    pieces: Vec<(Hash, u64)>,
    work: u64,
    avoid: Vec<HostId>,
}

fn job(work: u64, pieces: &[u32]) -> Job {
    let hash = |n: &u32| (blake3::hash(&n.to_le_bytes()), MB);
    Job { pieces: pieces.iter().map(hash).collect(), work, avoid: Vec::new() }
}

impl Job {
    fn needs(&self) -> JobNeeds<'_> {
        JobNeeds {
            pieces: &self.pieces,
            work: self.work,
            slots: 1,
            avoid: &self.avoid,
            whole: false,
        }
    }
}

#[derive(Clone, Copy)]
struct Machine {
    slots: u32,
    /// None: it fails after a tenth of a second.
    seconds_per_mb: Option<f64>,
}

#[derive(Default, Debug)]
struct Result {
    done: Vec<usize>,
    attempts: Vec<usize>,
    sent: u64,
    seconds: f64,
    homeless: usize,
}

fn placement(slots: &[u32]) -> Placement {
    let known = |&slots: &u32| Known { slots, seconds_per_byte: None };
    Placement::new(&slots.iter().map(known).collect::<Vec<_>>())
}

/// Runs all jobs, eight of them in view.
fn simulate(machines: &[Machine], mut queue: Vec<Job>) -> Result {
    let mut placement = placement(&machines.iter().map(|m| m.slots).collect::<Vec<_>>());
    let start = Instant::now();
    let (mut now, mut running) = (start, Vec::<(Instant, Attempt, Job)>::new());
    let mut result = Result {
        done: vec![0; machines.len()],
        attempts: vec![0; machines.len()],
        ..Result::default()
    };
    loop {
        let needs: Vec<_> = queue.iter().take(8).map(Job::needs).collect();
        let wake = match placement.pick(now, &needs, |_, _| true) {
            Pick::Start { job, host } => {
                let job = queue.remove(job);
                let attempt = placement.started(now, host, &job.needs());
                result.sent += attempt.send.len() as u64 * MB;
                result.attempts[host.0] += 1;
                let seconds = machines[host.0]
                    .seconds_per_mb
                    .map_or(0.1, |s| s * job.work as f64 / MB as f64);
                running.push((now + Duration::from_secs_f64(seconds), attempt, job));
                let used = running.iter().filter(|(_, attempt, _)| attempt.host == host).count();
                assert!(used <= machines[host.0].slots as usize);
                continue;
            }
            Pick::NoHost { job } => {
                queue.remove(job);
                result.homeless += 1;
                continue;
            }
            Pick::Wait(wake) => wake,
        };
        let ends = running.iter().map(|(ends, ..)| *ends).min();
        let Some(next) = ends.into_iter().chain(wake).min() else { break };
        now = next;
        while let Some(at) = running.iter().position(|(ends, ..)| *ends <= now) {
            let (_, attempt, mut job) = running.remove(at);
            let host = attempt.host;
            if machines[host.0].seconds_per_mb.is_some() {
                result.done[host.0] += 1;
                placement.ended(now, attempt, Ending::Done);
            } else {
                job.avoid.push(host);
                placement.ended(now, attempt, Ending::Fault);
                queue.insert(0, job);
            }
        }
    }
    result.seconds = (now - start).as_secs_f64();
    result
}

fn machine(slots: u32, seconds_per_mb: f64) -> Machine {
    Machine { slots, seconds_per_mb: Some(seconds_per_mb) }
}

#[test]
fn faster_hosts_get_more() {
    let machines = [machine(2, 4.0), machine(2, 2.0), machine(2, 1.0)];
    let result = simulate(&machines, (0..700).map(|_| job(MB, &[])).collect());
    for (done, share) in result.done.iter().zip([100.0, 200.0, 400.0]) {
        let ratio = *done as f64 / share;
        assert!((0.85..1.15).contains(&ratio), "{result:?}");
    }
}

#[test]
fn few_jobs_go_to_the_fast_hosts_once_they_are_known() {
    let known = [4e-6, 1e-6].map(|speed| Known { slots: 4, seconds_per_byte: Some(speed) });
    let mut placement = Placement::new(&known);
    let (now, job) = (Instant::now(), job(MB, &[]));
    for _ in 0..4 {
        let picked = placement.pick(now, &[job.needs()], |_, _| true);
        assert_eq!(picked, Pick::Start { job: 0, host: HostId(1) });
        placement.started(now, HostId(1), &job.needs());
    }
}

#[test]
fn jobs_are_spread_and_an_unknown_host_is_tried_at_once() {
    let result = simulate(&[machine(4, 1.0); 4], (0..4).map(|_| job(MB, &[])).collect());
    assert_eq!(result.done, [1, 1, 1, 1]);
}

#[test]
fn a_dead_host_costs_few_attempts_and_no_job() {
    let dead = Machine { slots: 4, seconds_per_mb: None };
    let result = simulate(
        &[machine(4, 0.5), dead, machine(4, 0.5)],
        (0..200).map(|_| job(MB, &[])).collect(),
    );
    assert_eq!((result.done.iter().sum::<usize>(), result.homeless), (200, 0));
    // One wave, and one attempt after each rest.
    assert!(result.attempts[1] <= 4 + 2, "{result:?}");
}

#[test]
fn a_farm_of_dead_hosts_leaves_no_job_waiting() {
    let dead = Machine { slots: 2, seconds_per_mb: None };
    let result = simulate(&[dead, dead], (0..20).map(|_| job(MB, &[])).collect());
    assert_eq!(result.homeless, 20);
    assert!(result.seconds < 10.0, "{result:?}");
}

#[test]
fn each_piece_goes_once_to_each_host() {
    let jobs = || (0..80u32).map(|n| job(MB, &[n % 10, 100 + n])).collect::<Vec<_>>();
    let one = simulate(&[machine(8, 1.0)], jobs());
    assert_eq!(one.sent, 90 * MB);
    let three = simulate(&[machine(4, 1.0); 3], jobs());
    assert!(three.sent <= (80 + 3 * 10) * MB, "{three:?}");
}

#[test]
fn jobs_go_where_their_pieces_are() {
    // Two families of jobs, each with forty pieces of its own.
    let family = |n: u32| (0..40).map(|piece| n * 1000 + piece).collect::<Vec<_>>();
    let jobs = (0..60).map(|n| job(MB, &family(n % 2))).collect();
    let result = simulate(&[machine(1, 2.0), machine(1, 2.0)], jobs);
    assert_eq!(result.sent, 2 * 40 * MB, "{result:?}");
    assert_eq!(result.done.iter().sum::<usize>(), 60);
}

#[test]
fn no_host_stays_idle_for_the_sake_of_pieces() {
    let result = simulate(&[machine(2, 1.0); 2], (0..40).map(|_| job(MB, &[1, 2])).collect());
    assert!(result.seconds < 10.5, "{result:?}");
}

#[test]
fn a_job_whose_pieces_are_on_the_way_lets_another_pass() {
    let mut placement = placement(&[2]);
    let (now, first) = (Instant::now(), job(MB, &[1]));
    let (same, other) = (job(MB, &[1]), job(MB, &[2]));
    let attempt = placement.started(now, HostId(0), &first.needs());
    assert_eq!((attempt.send.len(), attempt.in_flight.len()), (1, 0));
    let host = HostId(0);
    let both = [same.needs(), other.needs()];
    assert_eq!(placement.pick(now, &both, |_, _| true), Pick::Start { job: 1, host });
    assert_eq!(placement.pick(now, &both[..1], |_, _| true), Pick::Start { job: 0, host });
    let later = now + ON_THE_WAY;
    assert_eq!(placement.pick(later, &both, |_, _| true), Pick::Start { job: 0, host });
    let second = placement.started(now, host, &same.needs());
    assert_eq!((second.send.len(), second.in_flight.len()), (0, 1));
}

#[test]
fn a_failed_attempt_has_brought_nothing_and_a_lost_piece_is_sent_again() {
    let mut placement = placement(&[1]);
    let (now, host, job) = (Instant::now(), HostId(0), job(MB, &[1]));
    for ending in [Ending::GivenUp, Ending::Done] {
        let attempt = placement.started(now, host, &job.needs());
        assert_eq!(attempt.send.len(), 1);
        placement.ended(now, attempt, ending);
    }
    let attempt = placement.started(now, host, &job.needs());
    assert_eq!((attempt.send.len(), attempt.held.len()), (0, 1));
    let pieces = attempt.held.clone();
    placement.ended(now, attempt, Ending::GivenUp);
    placement.lacks(host, &pieces);
    assert_eq!(placement.started(now, host, &job.needs()).send, pieces);
    placement.holds(host, pieces.clone());
    let whole = JobNeeds { whole: true, ..job.needs() };
    assert_eq!(placement.started(now, host, &whole).send, pieces);
}

#[test]
fn a_host_that_failed_rests_longer_each_time_and_is_out_after_the_third() {
    let mut placement = placement(&[4]);
    let (mut now, host, job) = (Instant::now(), HostId(0), job(MB, &[]));
    for rest in [1, 2] {
        let attempt = placement.started(now, host, &job.needs());
        placement.ended(now, attempt, Ending::Fault);
        let until = now + Duration::from_secs(rest);
        assert_eq!(placement.pick(now, &[job.needs()], |_, _| true), Pick::Wait(Some(until)));
        now = until;
        assert_eq!(placement.pick(now, &[job.needs()], |_, _| true), Pick::Start { job: 0, host });
    }
    let attempt = placement.started(now, host, &job.needs());
    let waiting = placement.pick(now, &[job.needs()], |_, _| true);
    assert_eq!(waiting, Pick::Wait(None), "one at a time");
    placement.ended(now, attempt, Ending::Fault);
    assert!(placement.is_out(host) && placement.slots() == 0);
    assert_eq!(placement.pick(now, &[job.needs()], |_, _| true), Pick::NoHost { job: 0 });
}

#[test]
fn attempts_that_fail_together_are_one_fault_and_a_success_forgives() {
    let mut placement = placement(&[4]);
    let (now, host, job) = (Instant::now(), HostId(0), job(MB, &[]));
    let wave: Vec<_> = (0..4).map(|_| placement.started(now, host, &job.needs())).collect();
    let later = now + Duration::from_secs(1);
    wave.into_iter().for_each(|attempt| placement.ended(later, attempt, Ending::Fault));
    assert!(!placement.is_out(host));
    let attempt = placement.started(later + REST, host, &job.needs());
    placement.ended(later + REST, attempt, Ending::Done);
    for _ in 0..4 {
        let picked = placement.pick(later + REST, &[job.needs()], |_, _| true);
        assert_eq!(picked, Pick::Start { job: 0, host });
        placement.started(later + REST, host, &job.needs());
    }
}

#[test]
fn slots_that_others_use_send_it_to_the_next_host_or_to_wait() {
    let placement = placement(&[1, 1]);
    let (now, job) = (Instant::now(), job(MB, &[]));
    let picked = placement.pick(now, &[job.needs()], |host, _| host == HostId(1));
    assert_eq!(picked, Pick::Start { job: 0, host: HostId(1) });
    let mut asked = 0;
    let picked = placement.pick(now, &[job.needs(), job.needs()], |_, _| {
        asked += 1;
        false
    });
    assert_eq!((picked, asked), (Pick::Wait(Some(now + LOOK)), 2));
}

#[test]
fn a_heavy_job_takes_its_slots_or_all_there_are() {
    let mut placement = placement(&[3]);
    let (now, host, job) = (Instant::now(), HostId(0), job(MB, &[]));
    let heavy = JobNeeds { slots: 2, ..job.needs() };
    placement.started(now, host, &heavy);
    assert_eq!(placement.pick(now, &[heavy], |_, _| true), Pick::Wait(None));
    assert_eq!(placement.pick(now, &[job.needs()], |_, _| true), Pick::Start { job: 0, host });
    let huge = JobNeeds { slots: 9, ..job.needs() };
    let idle = super::tests::placement(&[3]);
    let picked = idle.pick(now, &[huge], |_, slots| slots == 3);
    assert_eq!(picked, Pick::Start { job: 0, host });
}

#[test]
fn the_same_events_make_the_same_choices() {
    let run = || {
        let machines =
            [machine(3, 1.0), machine(2, 0.3), Machine { slots: 2, seconds_per_mb: None }];
        let jobs =
            (0..100u32).map(|n| job(u64::from(n % 7 + 1) * MB, &[n % 5, n % 3 + 50])).collect();
        format!("{:?}", simulate(&machines, jobs))
    };
    assert_eq!(run(), run());
}
