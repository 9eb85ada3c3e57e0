//! Fleets whose queue is at NATS, and whose servers and workers are killed.
//!
//! `scripts/fetch-parts nats-server` fetches the server. Where it is missing the tests are skipped,
//! unless `HEADROOM_TESTS=required`.

use std::fs;

use headroom_testing::{NatsServers, nats_server};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use super::{Hosts, all, children_of, command, make_tree};
use crate::common::HEADROOM;

/// Starts so many NATS servers for hosts.
fn servers(hosts: &Hosts, count: u8) -> Option<NatsServers> {
    let program = nats_server()?;
    let folder = hosts.ground.path("nats");
    fs::create_dir(&folder).expect("a folder");
    Some(NatsServers::start(&program, &folder, count))
}

/// The settings of a job with its queue there, at this rate and in small items.
fn settings(servers: &NatsServers, rate: &str) -> String {
    format!(
        "rate = \"{rate}\"\n[batch]\nfiles = 10\nbytes = \"1MiB\"\n[nats]\nservers = {}",
        servers.list()
    )
}

/// The server that leads the stream of items.
fn leader(servers: &NatsServers) -> Option<usize> {
    (0..servers.len()).find_map(|n| {
        let answer: Value = serde_json::from_str(&servers.monitor(n, "/jsz?streams=1")?).ok()?;
        let accounts = answer["account_details"].as_array()?;
        let streams = accounts.iter().filter_map(|account| account["stream_detail"].as_array());
        let work = streams.flatten().find(|stream| stream["name"] == "headroom-job-work")?;
        let name = work["cluster"]["leader"].as_str().filter(|name| !name.is_empty())?;
        Some(servers.number_of(name))
    })
}

#[test]
fn a_cluster_loses_its_leader_and_a_worker_is_killed_and_each_file_has_one_receipt() {
    let hosts = Hosts::new("fleet-nats-leader");
    let Some(mut servers) = servers(&hosts, 3) else { return };
    let tree = hosts.ground.path("here/tree");
    make_tree(&tree);
    // 4 MiB in at least 16 s, of which the first file needs the least part
    hosts.job(true, &settings(&servers, "2mbit"));
    let mut run = hosts.start();
    hosts.until(&mut run, "a copied file", |status| status["copied_files"] != 0);
    let run_pid = run.pid();
    let victim = run.until("a worker", |_| children_of(run_pid).first().copied());
    let lost = run.until("a leader", |_| leader(&servers));
    servers.kill(lost);
    kill(victim, Signal::SIGKILL).expect("it lives");
    // the others choose a leader meanwhile
    run.until("an answer", |_| {
        (hosts.fleet(&["rate", "none"]).status.code() == Some(0)).then_some(())
    });
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(all(&hosts.ground.path("served/to")), all(&tree));
    hosts.assert_receipts_of(&tree);
    let status = hosts.status().expect("figures");
    assert_eq!((&status["phase"], &status["set_aside"]), (&"done".into(), &0.into()), "{status}");
    // one that comes back has missed it all
    servers.restart(lost);
    hosts.run(0);
    hosts.assert_receipts_of(&tree);
}

#[test]
fn after_everything_was_killed_a_run_resumes_without_listing_again() {
    let hosts = Hosts::new("fleet-nats-all-killed");
    let Some(mut servers) = servers(&hosts, 1) else { return };
    let tree = hosts.ground.path("here/tree");
    make_tree(&tree);
    let before = all(&tree);
    hosts.job(true, &settings(&servers, "2mbit"));
    let mut run = hosts.start();
    let is_on_its_way = |status: &Value| status["listed"] == true && status["copied_files"] != 0;
    hosts.until(&mut run, "a copied file", is_on_its_way);
    let workers = children_of(run.pid());
    run.signal(Signal::SIGKILL);
    for worker in workers {
        // it may have ended with its run
        let _ = kill(worker, Signal::SIGKILL);
    }
    assert_eq!(run.end().code, None);
    servers.kill(0);
    servers.restart(0);

    // a listing would find it
    fs::write(tree.join("late"), "late").expect("a file");
    assert_eq!(hosts.fleet(&["rate", "none"]).status.code(), Some(0));
    hosts.run(0);
    assert_eq!(all(&hosts.ground.path("served/to")), before);
    fs::remove_file(tree.join("late")).expect("it is there");
    hosts.assert_receipts_of(&tree);
}

#[test]
fn a_worker_with_the_same_job_file_helps_and_a_second_run_is_refused() {
    let hosts = Hosts::new("fleet-nats-worker");
    let Some(servers) = servers(&hosts, 1) else { return };
    let tree = hosts.ground.path("here/tree");
    make_tree(&tree);
    hosts.job(true, &settings(&servers, "100kbit"));
    let helper = || command(&hosts.ground, "client", &["fleet", "worker", "job.toml"]);
    let refused = helper().output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has no job"), "{refused:?}");

    let mut run = hosts.start();
    hosts.until(&mut run, "an item of a worker", |status| status["leased_items"] != 0);
    let mut worker = hosts.ground.start(helper());
    hosts.until(&mut worker, "four workers", |status| status["workers"] == 4);
    let watching = hosts.watch();
    let second = hosts.run(2);
    assert!(second.contains("another `headroom fleet run` uses"), "{second}");
    assert_eq!(hosts.fleet(&["pause"]).status.code(), Some(0));
    hosts.until(&mut run, "the return of all items", |status| {
        status["state"] == "paused" && status["leased_items"] == 0
    });
    assert_eq!(hosts.fleet(&["rate", "none"]).status.code(), Some(0));
    assert_eq!(hosts.fleet(&["resume"]).status.code(), Some(0));
    for ended in [run.end(), worker.end()] {
        assert_eq!(ended.code, Some(0), "{ended}");
    }
    let watched = watching.end();
    assert!(watched.code == Some(0) && watched.stdout.contains("job: done\n"), "{watched}");
    assert_eq!(all(&hosts.ground.path("served/to")), all(&tree));
    hosts.assert_receipts_of(&tree);
}

#[test]
fn workers_start_on_hosts_by_ssh_and_one_that_cannot_is_named() {
    let hosts = Hosts::new("fleet-nats-hosts");
    let Some(servers) = servers(&hosts, 1) else { return };
    let tree = hosts.ground.path("here/tree");
    make_tree(&tree);
    hosts.job(true, &settings(&servers, "100mbit"));
    // it runs on this machine what the other one would run
    let programs = std::path::Path::new(HEADROOM).parent().expect("a folder").display();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*-G*) exit 0 ;;\n*'-- broken'*) echo unreachable >&2; exit 255 ;;\nesac\n\
         for line; do :; done\nPATH='{programs}':$PATH exec sh -c \"$line\"\n"
    );
    let ssh = hosts.ground.script("ssh", &script);
    hosts.ground.write("hosts.txt", "node1 2\nbroken 1 # it is not there\n");
    let run = |hosts_file: &str| {
        let mut run = command(&hosts.ground, "client", &["fleet", "run", "--hosts", hosts_file]);
        run.arg("--ssh-command").arg(&ssh).arg("job.toml").output().expect("it starts")
    };
    let output = run("hosts.txt");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("a worker on broken has failed and is not replaced"), "{said}");
    assert_eq!(all(&hosts.ground.path("served/to")), all(&tree));
    hosts.assert_receipts_of(&tree);

    hosts.ground.write("hosts.txt", "broken\n");
    let restarted = {
        let mut run = command(&hosts.ground, "client", &["fleet", "run", "--restart", "--hosts"]);
        run.args(["hosts.txt", "--ssh-command"]).arg(&ssh).arg("job.toml").output()
    };
    let restarted = restarted.expect("it starts");
    let said = String::from_utf8_lossy(&restarted.stderr).into_owned();
    assert_eq!(restarted.status.code(), Some(1), "{said}");
    assert!(said.contains("no worker is left on broken"), "{said}");
    let status = hosts.status().expect("figures");
    assert_eq!(status["copied_files"], 0, "{status}");
    hosts.job(true, "");
    let refused = run("hosts.txt");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
