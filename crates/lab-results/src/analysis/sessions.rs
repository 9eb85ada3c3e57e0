//! Sessions of a closed loop: rate and percentiles of a sample, and of the samples of a cell
//! (docs/results.md, "Sessions").

use super::stats;
use crate::schema::{Cpu, Sample, SessionSummary, Sessions};

/// Of fewer sessions nobody can say how long the slowest in a hundred takes.
pub const LEAST_FOR_P99: usize = 100;

/// What one client of a closed loop did.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientSessions {
    /// Duration of each session that succeeded, in seconds.
    pub session_s: Vec<f64>,
    /// From the start of the loop to the end of its last session, in seconds.
    pub elapsed_s: f64,
    /// Sessions that failed.
    pub failed: u32,
}

/// Merges the sessions of all clients; `None` if none succeeded.
pub fn of_clients(clients: &[ClientSessions], first_failure: Option<String>) -> Option<Sessions> {
    let all: Vec<f64> = clients.iter().flat_map(|client| &client.session_s).copied().collect();
    let rate = |client: &ClientSessions| client.session_s.len() as f64 / client.elapsed_s.max(1e-9);
    let p99_s = stats::percentile(&all, 99).filter(|_| all.len() >= LEAST_FOR_P99);
    Some(Sessions {
        clients: clients.len() as u32,
        count: all.len() as u32,
        failed: clients.iter().map(|client| client.failed).sum(),
        first_failure,
        per_s: clients.iter().map(rate).sum(),
        mean_s: stats::mean(&all)?.mean,
        p50_s: stats::median(&all)?,
        p99_s,
        max_s: all.iter().copied().reduce(f64::max)?,
    })
}

/// Summarises the samples of a cell; `None` where they have no sessions.
pub fn summarise(samples: &[&Sample]) -> Option<SessionSummary> {
    let all: Vec<&Sessions> = samples.iter().filter_map(|s| s.sessions.as_ref()).collect();
    let clients = all.first()?.clients;
    let rates: Vec<f64> = all.iter().map(|sessions| sessions.per_s).collect();
    let rate = stats::positive_mean(&rates)?;
    // samples that have one are the faster ones: without the others it would be too low
    let p99: Option<Vec<f64>> = all.iter().map(|sessions| sessions.p99_s).collect();
    let p99 = p99.and_then(|all| stats::positive_mean(&all));
    let cpu = |side: fn(&Cpu) -> f64| {
        let seconds = samples.iter().filter_map(|sample| sample.cpu_seconds.as_ref().map(side));
        stats::positive_mean(&seconds.collect::<Vec<f64>>())
    };
    let (client, server) = (cpu(|cpu| cpu.client), cpu(|cpu| cpu.server));
    Some(SessionSummary {
        clients,
        count: all.iter().map(|sessions| u64::from(sessions.count)).sum(),
        failed: all.iter().map(|sessions| u64::from(sessions.failed)).sum(),
        per_s_mean: rate.mean,
        per_s_ci95: rate.ci95,
        p99_mean_s: p99.map(|p99| p99.mean),
        p99_ci95_s: p99.and_then(|p99| p99.ci95),
        max_s: all.iter().map(|sessions| sessions.max_s).reduce(f64::max)?,
        client_cpu_mean_s: client.map(|cpu| cpu.mean),
        client_cpu_ci95_s: client.and_then(|cpu| cpu.ci95),
        server_cpu_mean_s: server.map(|cpu| cpu.mean),
        server_cpu_ci95_s: server.and_then(|cpu| cpu.ci95),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(sessions: u32, elapsed_s: f64) -> ClientSessions {
        let session_s = (1..=sessions).map(|ms| f64::from(ms) / 1e3).collect();
        ClientSessions { session_s, elapsed_s, failed: 1 }
    }

    #[test]
    fn merges_the_sessions_of_all_clients() {
        let clients = [client(60, 2.0), client(40, 1.0)];
        let why = Some("refused".to_owned());
        let sessions = of_clients(&clients, why.clone()).expect("sessions");
        assert_eq!((sessions.clients, sessions.count, sessions.failed), (2, 100, 2));
        assert!((sessions.per_s - 70.0).abs() < 1e-9, "30 and 40 a second: {sessions:?}");
        // 1 to 40 ms twice and 41 to 60 ms once: 25 and 26 ms are in the middle
        assert!((sessions.p50_s - 0.0255).abs() < 1e-9, "{sessions:?}");
        assert_eq!((sessions.p99_s, sessions.max_s), (Some(0.059), 0.06));
        assert_eq!(sessions.first_failure, why);
    }

    #[test]
    fn has_no_p99_of_fewer_than_a_hundred_sessions() {
        let p99_s = |count| of_clients(&[client(count, 1.0)], None).expect("sessions").p99_s;
        assert_eq!((p99_s(99), p99_s(100), p99_s(101)), (None, Some(0.099), Some(0.1)));
        assert_eq!(of_clients(&[client(0, 1.0)], None), None);
        assert_eq!(of_clients(&[], None), None);
    }

    fn sample(p99_s: Option<f64>, per_s: f64) -> Sample {
        let sessions = of_clients(&[client(200, 1.0)], None);
        let sessions = sessions.map(|sessions| Sessions { p99_s, per_s, ..sessions });
        Sample { sessions, ok: true, ..Sample::default() }
    }

    #[test]
    fn a_cell_has_the_geometric_means_of_its_samples() {
        let samples = [sample(Some(0.1), 100.0), sample(Some(0.4), 400.0)];
        let [one, other] = &samples;
        let cell = summarise(&[one, other]).expect("sessions");
        assert_eq!((cell.count, cell.failed, cell.clients), (400, 2, 1));
        assert!((cell.per_s_mean - 200.0).abs() < 1e-9, "{cell:?}");
        assert!(cell.p99_mean_s.is_some_and(|p99| (p99 - 0.2).abs() < 1e-9), "{cell:?}");
        assert!(cell.p99_ci95_s.is_some_and(|[lo, hi]| lo < 0.2 && 0.2 < hi), "{cell:?}");
        assert_eq!((cell.max_s, cell.server_cpu_mean_s), (0.2, None));
        let few = sample(None, 100.0);
        let cell = summarise(&[one, &few]).expect("sessions");
        assert_eq!((cell.p99_mean_s, cell.p99_ci95_s), (None, None), "{cell:?}");
        assert_eq!(summarise(&[&Sample::default()]), None);
    }
}
