//! What a campaign does next. Pure: the caller says what time it is, and what runs.

use std::collections::{BTreeMap, BTreeSet};

use headroom_lab_results::schema::SshHosts;

use super::Campaign;
use super::schedule::{Schedule, UnixTime};

/// One run: its round, and which of the campaign's combinations of plan and pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub(super) round: u32,
    pub(super) combination: usize,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Start this run.
    Start(Job),
    /// Give this run up: the next round is due.
    Miss(Job),
    /// Wait until then, or until a run ends; none: until a run ends.
    Wait(Option<UnixTime>),
    /// Nothing is left.
    Done,
}

/// Runs that are left. A round may begin from the time when it is due, and until the next one is.
#[derive(Debug)]
pub(super) struct Queue {
    schedule: Schedule,
    began: UnixTime,
    rounds: u32,
    at_once: usize,
    /// The hosts of each combination; none: this machine.
    hosts: Vec<Option<[String; 2]>>,
    /// All rounds before it are settled.
    first: u32,
    settled: BTreeMap<u32, BTreeSet<usize>>,
}

impl Queue {
    pub(super) fn new(campaign: &Campaign, began: UnixTime) -> Self {
        let hosts = campaign.combinations().map(|(plan, pair)| {
            let hosts = pair.map_or(plan.plan.hosts.as_ref(), |pair| pair.hosts.as_ref());
            hosts.map(machines)
        });
        Self {
            schedule: campaign.schedule.clone(),
            began,
            rounds: campaign.rounds,
            at_once: campaign.at_once,
            hosts: hosts.collect(),
            first: 0,
            settled: BTreeMap::new(),
        }
    }

    /// Returns what to do now, while these runs go on.
    pub(super) fn next(&self, now: UnixTime, running: &[Job]) -> Next {
        for round in self.first..self.rounds {
            if let Some(due) = self.schedule.due(round, self.began)
                && now < due
            {
                return Next::Wait(Some(due));
            }
            let end = self.end_of(round);
            let is_over = end.is_some_and(|end| now >= end);
            let mut is_settled = true;
            for job in self.of_round(round).filter(|job| !self.is_settled(*job)) {
                is_settled = false;
                if running.contains(&job) {
                    continue;
                }
                if is_over {
                    return Next::Miss(job);
                }
                if self.may_run_beside(job, running) {
                    return Next::Start(job);
                }
            }
            // what is left of a round that is over goes on beside the next one
            if !is_settled && !is_over {
                return Next::Wait(end);
            }
        }
        if running.is_empty() { Next::Done } else { Next::Wait(None) }
    }

    /// Notes that a run is over, or will not begin. Returns whether its round is complete.
    pub(super) fn settle(&mut self, job: Job) -> bool {
        if job.round < self.first {
            return false;
        }
        let of_round = self.settled.entry(job.round).or_default();
        of_round.insert(job.combination);
        let is_complete = of_round.len() == self.hosts.len();
        while self.settled.get(&self.first).is_some_and(|all| all.len() == self.hosts.len()) {
            self.settled.remove(&self.first);
            self.first += 1;
        }
        is_complete
    }

    /// Returns when a round ends, because the next one is due; none: when all of it is settled.
    pub(super) fn end_of(&self, round: u32) -> Option<UnixTime> {
        self.schedule.due(round.saturating_add(1), self.began)
    }

    pub(super) fn is_settled(&self, job: Job) -> bool {
        job.round < self.first
            || self.settled.get(&job.round).is_some_and(|all| all.contains(&job.combination))
    }

    /// The runs of a round. Each round begins with another one: where not all of them fit into a
    /// period, it is not always the same that are missed.
    fn of_round(&self, round: u32) -> impl Iterator<Item = Job> + use<> {
        let count = self.hosts.len();
        let shift = usize::try_from(round).unwrap_or(0);
        (0..count).map(move |n| Job { round, combination: (n + shift) % count })
    }

    /// Whether a run disturbs none of these: nothing is measured on this machine meanwhile, and no
    /// host takes part in two runs.
    fn may_run_beside(&self, job: Job, running: &[Job]) -> bool {
        if running.is_empty() {
            return true;
        }
        let Some(own) = &self.hosts[job.combination] else { return false };
        let is_apart = |other: &Job| match &self.hosts[other.combination] {
            Some(hosts) => hosts.iter().all(|host| !own.contains(host)),
            None => false,
        };
        running.len() < self.at_once && running.iter().all(is_apart)
    }
}

/// The machines of a pair: names without users, which ssh does not tell apart by their case.
fn machines(hosts: &SshHosts) -> [String; 2] {
    [&hosts.client, &hosts.server].map(|host| {
        let name = host.rsplit_once('@').map_or(host.as_str(), |(_, name)| name);
        name.to_ascii_lowercase()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: UnixTime = 1_000;

    fn hosts(client: &str, server: &str) -> SshHosts {
        SshHosts {
            client: client.to_owned(),
            server: server.to_owned(),
            server_address: None,
            ports: SshHosts::PORTS,
            ssh: vec!["ssh".to_owned()],
        }
    }

    fn queue(schedule: Schedule, rounds: u32, pairs: &[Option<SshHosts>]) -> Queue {
        Queue {
            schedule,
            began: BEGAN,
            rounds,
            at_once: 2,
            hosts: pairs.iter().map(|pair| pair.as_ref().map(machines)).collect(),
            first: 0,
            settled: BTreeMap::new(),
        }
    }

    fn job(round: u32, combination: usize) -> Job {
        Job { round, combination }
    }

    fn every(seconds: i64) -> Schedule {
        Schedule::Every { seconds, start: None }
    }

    #[test]
    fn runs_of_a_round_follow_each_other_and_rounds_wait_for_their_time() {
        let mut queue = queue(every(100), 2, &[None, None]);
        assert_eq!(queue.next(BEGAN - 1, &[]), Next::Wait(Some(BEGAN)));
        assert_eq!(queue.next(BEGAN, &[]), Next::Start(job(0, 0)));
        assert_eq!(queue.next(BEGAN + 10, &[job(0, 0)]), Next::Wait(Some(BEGAN + 100)));
        assert!(!queue.settle(job(0, 0)));
        assert_eq!(queue.next(BEGAN + 20, &[]), Next::Start(job(0, 1)));
        assert!(queue.settle(job(0, 1)));
        assert_eq!(queue.next(BEGAN + 30, &[]), Next::Wait(Some(BEGAN + 100)));
        // the second round begins with the other one
        assert_eq!(queue.next(BEGAN + 100, &[]), Next::Start(job(1, 1)));
        queue.settle(job(1, 1));
        queue.settle(job(1, 0));
        assert_eq!(queue.next(BEGAN + 110, &[]), Next::Done);
    }

    #[test]
    fn what_has_not_begun_when_the_next_round_is_due_is_missed() {
        let mut queue = queue(every(100), 3, &[None, None]);
        assert_eq!(queue.next(BEGAN + 99, &[]), Next::Start(job(0, 0)));
        // the first takes longer than the period: it goes on, the second is given up
        assert_eq!(queue.next(BEGAN + 100, &[job(0, 0)]), Next::Miss(job(0, 1)));
        queue.settle(job(0, 1));
        assert_eq!(queue.next(BEGAN + 101, &[job(0, 0)]), Next::Wait(Some(BEGAN + 200)));
        queue.settle(job(0, 0));
        assert_eq!(queue.next(BEGAN + 150, &[]), Next::Start(job(1, 1)));
        // the machine was off for a day: all that is past is missed, the last round too
        let mut missed = Vec::new();
        while let Next::Miss(job) = queue.next(BEGAN + 86_400, &[]) {
            queue.settle(job);
            missed.push(job);
        }
        assert_eq!(missed, [job(1, 1), job(1, 0), job(2, 0), job(2, 1)]);
        assert_eq!(queue.next(BEGAN + 86_400, &[]), Next::Done);
    }

    #[test]
    fn rounds_without_times_are_never_late() {
        let mut queue = queue(Schedule::BackToBack, 2, &[None]);
        assert_eq!(queue.next(BEGAN + 1_000_000, &[]), Next::Start(job(0, 0)));
        assert_eq!(queue.next(BEGAN + 2_000_000, &[job(0, 0)]), Next::Wait(None));
        queue.settle(job(0, 0));
        assert_eq!(queue.next(BEGAN + 2_000_000, &[]), Next::Start(job(1, 0)));
    }

    #[test]
    fn the_last_moment_of_a_list_has_no_end() {
        let mut queue = queue(Schedule::At(vec![BEGAN, BEGAN + 10]), 2, &[None]);
        assert_eq!(queue.next(BEGAN + 10, &[]), Next::Miss(job(0, 0)));
        queue.settle(job(0, 0));
        assert_eq!(queue.next(BEGAN + 1_000_000, &[]), Next::Start(job(1, 0)));
    }

    #[test]
    fn only_pairs_without_a_common_host_run_at_once_and_nothing_beside_this_machine() {
        let far = |client, server| Some(hosts(client, server));
        let pairs = [far("a", "b"), far("root@B", "c"), None, far("c", "d"), far("e", "f")];
        let mut queue = queue(every(1_000), 1, &pairs);
        let (ab, bc, here) = (job(0, 0), job(0, 1), job(0, 2));
        let (cd, ef) = (job(0, 3), job(0, 4));
        assert_eq!(queue.next(BEGAN, &[]), Next::Start(ab));
        assert_eq!(queue.next(BEGAN, &[ab]), Next::Start(cd), "b is busy, and this machine waits");
        assert_eq!(queue.next(BEGAN, &[ab, cd]), Next::Wait(Some(BEGAN + 1_000)), "two at once");
        queue.settle(ab);
        assert_eq!(queue.next(BEGAN, &[cd]), Next::Start(ef), "c is busy");
        queue.settle(cd);
        assert_eq!(queue.next(BEGAN, &[ef]), Next::Start(bc));
        queue.settle(ef);
        queue.settle(bc);
        assert_eq!(queue.next(BEGAN, &[]), Next::Start(here));
        assert_eq!(queue.next(BEGAN, &[here]), Next::Wait(Some(BEGAN + 1_000)));
        queue.at_once = 1;
        queue.settled.clear();
        assert_eq!(queue.next(BEGAN, &[ab]), Next::Wait(Some(BEGAN + 1_000)));
    }

    #[test]
    fn settling_twice_changes_nothing() {
        let mut queue = queue(every(100), 1, &[None]);
        assert!(queue.settle(job(0, 0)));
        assert!(!queue.settle(job(0, 0)));
        assert_eq!(queue.next(BEGAN, &[]), Next::Done);
        assert!(queue.is_settled(job(0, 0)) && !queue.is_settled(job(1, 0)));
    }
}
