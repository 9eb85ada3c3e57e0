//! Sentences of a run against its rows. `data/disturbed-demo.json` is a run of
//! `plans/demo.toml` by an earlier version on a machine that compiled meanwhile, less what
//! no sentence rests on; its sentences said what one "will not notice". `data/round-trips.json` is
//! a part of a run of an earlier `plans/post-quantum.toml`.

use std::path::Path;

use headroom_lab::run;
use headroom_lab_results::analysis::answer::answer;
use headroom_lab_results::analysis::sentence::read;
use headroom_lab_results::report;
use headroom_lab_results::report::terminal::Detail;
use headroom_lab_results::schema::Results;

/// Prints an answer in full.
const COMMAND: &str = "headroom lab report --full results/demo";

fn disturbed_demo() -> Results {
    kept("disturbed-demo.json")
}

fn kept(name: &str) -> Results {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    report::read_file(&path).expect("the kept results")
}

fn analysed(mut results: Results) -> Results {
    run::reanalyse(&mut results);
    results
}

#[test]
fn finds_the_rows_that_contradict_an_earlier_version() {
    let results = disturbed_demo();
    let found = read::contradictions(&results);
    for (stack, row) in
        [("FTPS adds 8", "on 250mbit"), ("SFTP adds 7", "1 KiB download on 250mbit")]
    {
        let told =
            found.iter().any(|one| one.starts_with(&format!("\"{stack}")) && one.contains(row));
        assert!(told, "{stack}: {found:#?}");
    }
}

#[test]
fn says_nothing_that_a_row_contradicts() {
    let results = analysed(disturbed_demo());
    assert_eq!(read::contradictions(&results), Vec::<String>::new());
    let answer = results.answer.join("\n");
    assert!(answer.starts_with("46 of "), "{answer}");
    assert!(answer.contains("do not quote this run"), "{answer}");
    for stack in ["FTPS", "HTTPS", "SFTP"] {
        assert!(answer.contains(&format!("\n{stack} adds ")), "{answer}");
    }
    assert!(!answer.contains("notice"), "{answer}");
}

#[test]
fn a_round_trip_that_nobody_waits_for_is_none() {
    // its packets change their direction once more, but it takes 8 ms longer at a round trip of 20
    // ms, 6 at 100 and 8 at 200: one side computes while the other sends
    let results = analysed(kept("round-trips.json"));
    let of = |name: &str| results.portable.iter().find(|one| one.stack == name);
    let counted = |name: &str| of(name).and_then(|one| one.round_trips).expect("counted");
    assert_eq!(counted("sftp(sntrup761)"), counted("sftp") + 1);
    let sentence = &results.answer[0];
    assert!(sentence.starts_with("SFTP(SNTRUP761) adds 6.4 to 55 ms per session"), "{sentence}");
    assert_eq!(read::contradictions(&results), Vec::<String>::new());
    // without the links that tell, what was counted stands
    let mut main = kept("round-trips.json");
    main.validation_links.clear();
    main.samples.retain(|sample| sample.link == main.link.name);
    let main = analysed(main);
    assert!(main.answer[0].contains("adds 1 round trip"), "{}", main.answer[0]);
}

/// The main link of `round-trips.json` alone, with this round-trip time, counted round trips of
/// `sftp` and of `sftp(sntrup761)`, and sessions of the latter that take `more_s` longer than they
/// did, which was 8.3 ms [3.9, 12.7] longer than those of `sftp`.
fn on_one_link(rtt_us: f64, counted: [u32; 2], more_s: f64) -> Results {
    let mut results = kept("round-trips.json");
    results.validation_links.clear();
    results.samples.retain(|sample| sample.link == results.link.name);
    results.link.rtt_us = Some(rtt_us);
    for sample in &mut results.samples {
        let [base, stack] = counted;
        let (trips, more_s) = if sample.stack == "sftp" { (base, 0.0) } else { (stack, more_s) };
        if let Some(wire) = &mut sample.wire {
            wire.round_trips = Some(trips);
        }
        sample.session_seconds = sample.session_seconds.map(|seconds| seconds + more_s);
    }
    analysed(results)
}

#[test]
fn marks_counted_round_trips_that_session_times_do_not_show() {
    const MARK: &str = " (counted, but not significant in session times)";
    let say = |results: &mut Results, sentence: String| {
        results.answer = vec![sentence];
        read::contradictions(results).join("; ")
    };
    for (counted, more_s, start, end) in [
        // a round trip less should make them 20 ms shorter, and they are longer
        ([16, 15], 0.0, "adds 8.3 ms and saves 1 round trip", " (n = 10)."),
        // they do not differ significantly
        ([16, 15], -0.0083, "saves 1 round trip", "; its time is not significant: -"),
        ([15, 16], -0.0083, "adds 1 round trip", "; its time is not significant: -"),
    ] {
        let mut results = on_one_link(20_000.0, counted, more_s);
        let sentence = results.answer[0].clone();
        let told = format!("SFTP(SNTRUP761) {start}{MARK} per session over SFTP{end}");
        assert!(sentence.starts_with(&told), "{sentence}");
        assert_eq!(read::contradictions(&results), Vec::<String>::new());
        let why = say(&mut results, sentence.replace(MARK, ""));
        assert!(why.contains("session times do not show"), "{sentence}: {why}");
        let why = say(&mut results, sentence.replace("1 round trip", "2 round trips"));
        assert!(why.contains("were counted"), "{sentence}: {why}");
    }
    // what a reader was told who was not warned: 29 ms, less the 20 of a round trip
    let mut results = on_one_link(20_000.0, [16, 15], 0.0);
    let earlier =
        "SFTP(SNTRUP761) adds 29 ms and saves 1 round trip per session over SFTP (n = 10).";
    assert_ne!(say(&mut results, earlier.to_owned()), "");
}

#[test]
fn counted_round_trips_stand_where_session_times_show_them_or_cannot() {
    for (rtt_us, more_s, told) in [
        // 20 ms shorter, of which a round trip explains all
        (20_000.0, -0.0283, "saves 1 round trip per session over SFTP; its further time is not"),
        // no session shows 30 µs
        (30.0, 0.0, "adds 8.3 ms and saves 1 round trip per session over SFTP (n = 10)."),
    ] {
        let mut results = on_one_link(rtt_us, [16, 15], more_s);
        let sentence = results.answer[0].clone();
        assert!(sentence.starts_with(&format!("SFTP(SNTRUP761) {told}")), "{sentence}");
        assert_eq!(read::contradictions(&results), Vec::<String>::new());
        let mark = "1 round trip (counted, but not significant in session times)";
        results.answer = vec![sentence.replace("1 round trip", mark)];
        let found = read::contradictions(&results);
        assert!(found.iter().any(|why| why.contains("do not contradict")), "{found:#?}");
    }
}

#[test]
fn holds_every_figure_of_a_sentence_against_rows() {
    let results = analysed(disturbed_demo());
    // a figure that is changed is contradicted, whichever it is
    let sftp = results.answer.iter().find(|one| one.starts_with("SFTP adds")).expect("SFTP");
    let https = results.answer.iter().find(|one| one.starts_with("HTTPS adds")).expect("HTTPS");
    let numbers = |text: &str| {
        let word = |word: &&str| word.parse::<f64>().is_ok();
        text.split(' ').filter(word).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(numbers(sftp).len() >= 3, "{sftp}");
    let changed = |sentence: &str, from: &str, to: &str| {
        let mut results = results.clone();
        results.answer = vec![sentence.replacen(from, to, 1)];
        assert_ne!(results.answer[0], sentence, "`{from}` is in it");
        assert!(!read::contradictions(&results).is_empty(), "{}", results.answer[0]);
    };
    changed(sftp, " round trips", "0 round trips");
    changed(sftp, " ms per session", "0 ms per session");
    changed(https, " % more bytes", " % fewer bytes");
    let compared = results.answer.iter().find(|one| one.starts_with("A session")).expect("one");
    changed(compared, "takes ", "takes 1");
    for sentence in [sftp, https, compared] {
        changed(sentence, "(n = 5)", "(n = 9)");
    }
    let ftps = results.answer.iter().find(|one| one.starts_with("FTPS adds")).expect("FTPS");
    changed(ftps, "(2 for", "(3 for");
    changed(ftps, " (2 for HelloRetryRequests, which depend on client and server)", "");
    changed(ftps, " to 995 ms", " to 1995 ms");
    let mut unknown = results.clone();
    unknown.answer = vec!["Nobody needs to encrypt.".to_owned()];
    assert_eq!(read::contradictions(&unknown).len(), 1, "what no rule reads is no true sentence");
}

#[test]
fn compares_nothing_on_three_runs() {
    let mut results = disturbed_demo();
    let mut kept = std::collections::BTreeMap::new();
    results.samples.retain(|sample| {
        let cell =
            (sample.link.clone(), sample.stack.clone(), sample.workload.clone(), sample.size_bytes);
        let count = kept.entry(cell).or_insert(0);
        *count += 1;
        *count <= 3
    });
    let results = analysed(results);
    let answer = results.answer.join("\n");
    assert!(answer.contains("SFTP adds "), "what was counted stands: {answer}");
    assert!(answer.contains("3 runs support no comparison, 5 are needed"), "{answer}");
    for timed in [" ms ", "A session", "fill"] {
        assert!(!answer.contains(timed), "{timed}: {answer}");
    }
    assert_eq!(read::contradictions(&results), Vec::<String>::new());
}

#[test]
fn a_comparison_of_secured_stacks_counts_the_blocks_that_both_have() {
    let mut results = disturbed_demo();
    // the fastest lacks one block, the others lack another: ten sessions each, nine pairs
    for sample in &mut results.samples {
        let large = sample.workload == "download" && sample.size_bytes == 64 << 20;
        let lacks = match sample.stack.as_str() {
            "https" => 0,
            "ftps" | "sftp" => 1,
            _ => continue,
        };
        sample.ok &= !(large && sample.block == lacks);
    }
    let mut results = analysed(results);
    let large = |one: &&String| one.starts_with("A session with a 64 MiB");
    let compared = results.answer.iter().find(large).expect("a comparison").clone();
    assert!(compared.ends_with("(n = 9)."), "{compared}");
    results.answer = vec![compared.clone()];
    assert_eq!(read::contradictions(&results), Vec::<String>::new());
    results.answer = vec![compared.replace("(n = 9)", "(n = 10)")];
    let found = read::contradictions(&results);
    assert!(found.iter().any(|why| why.contains("fewest blocks has 9")), "{found:#?}");
}

#[test]
fn a_time_that_can_be_nothing_is_not_said_to_be_added() {
    let mut results = analysed(disturbed_demo());
    // its uploads of 1 KiB take +23 % [-73, 473]
    let ftps = results.answer.iter().find(|one| one.starts_with("FTPS adds")).expect("FTPS");
    assert!(ftps.contains("; its further time is not significant: -"), "{ftps}");
    let (counted, _) = ftps.split_once(" per session").expect("a sentence of costs");
    results.answer = vec![format!(
        "{counted} and 21 to 185 ms per session over FTP, and 0.281 to 0.368 % more bytes (n = 5)."
    )];
    let found = read::contradictions(&results);
    assert!(found.iter().any(|why| why.contains("an interval that includes 0")), "{found:#?}");
}

#[test]
fn holds_sentences_of_the_main_link_against_its_rows() {
    let mut results = analysed(disturbed_demo());
    // nothing is known of what stacks cost elsewhere
    results.portable.clear();
    results.clear_text.clear();
    results.answer = answer(&results).0;
    assert_eq!(read::contradictions(&results), Vec::<String>::new());
    let https = results.answer.iter().find(|one| one.starts_with("HTTPS takes")).expect("HTTPS");
    let (of_row, _) = https.split_once(" % [").expect("a comparison");
    let (time, _) = of_row.rsplit_once(", ").expect("a percentage");
    for false_one in [
        format!("{time}, -50.0 % [-60.0, -40.0] against HTTP (n = 5)."),
        format!("{time} (n = 4)."),
        https.replacen("HTTPS takes", "SFTP takes", 1),
        "HTTPS is slower than HTTP.".to_owned(),
        "HTTPS carries more than HTTP.".to_owned(),
    ] {
        results.answer = vec![false_one];
        assert_eq!(read::contradictions(&results).len(), 1, "{}", results.answer[0]);
    }
}

#[test]
fn says_where_only_the_model_knows_what_is_filled() {
    let mut results = disturbed_demo();
    let link = results.link.name.clone();
    results.validation_links.clear();
    results.samples.retain(|sample| sample.link == link);
    let mut results = analysed(results);
    let sftp = results.answer.iter().find(|one| one.starts_with("SFTP adds")).expect("SFTP");
    let model = " by the cost model (no slower link of this run checks it)";
    assert!(sftp.contains("fill links up to ") && sftp.contains(model), "{sftp}");
    assert_eq!(read::contradictions(&results), Vec::<String>::new());
    results.answer = vec![sftp.replacen(model, "", 1)];
    let found = read::contradictions(&results);
    assert!(found.iter().any(|why| why.contains("no link of this run checked")), "{found:#?}");
}

#[test]
fn prints_the_answer_on_one_screen() {
    let results = analysed(disturbed_demo());
    let answer = report::terminal::answer(&results, COMMAND, 80, Detail::Main);
    assert!(answer.lines().count() <= 22, "{answer}");
    assert!(answer.lines().all(|line| line.chars().count() <= 80), "{answer}");
    insta::assert_snapshot!(answer);
}

#[test]
fn prints_many_stacks_with_long_names_on_one_screen() {
    let mut results = analysed(disturbed_demo());
    let (stacks, rows) = (results.plan.stacks.clone(), results.summary.clone());
    for copy in 0..5 {
        let named = |name: &str| format!("{name}/wireguard/esp(transport,aes-128-gcm)#{copy}");
        results.plan.stacks.extend(stacks.iter().map(|stack| {
            let mut stack = stack.clone();
            stack.name = named(&stack.name);
            stack
        }));
        results.summary.extend(rows.iter().map(|row| {
            let mut row = row.clone();
            row.stack = named(&row.stack);
            row
        }));
    }
    let answer = report::terminal::answer(&results, COMMAND, 80, Detail::Main);
    assert!(answer.lines().count() <= 22, "{answer}");
    assert!(answer.lines().all(|line| line.chars().count() <= 80), "{answer}");
    insta::assert_snapshot!(answer);
}

#[test]
fn prints_all_tables_and_notes() {
    let results = analysed(disturbed_demo());
    insta::assert_snapshot!(report::terminal::answer(&results, COMMAND, 100, Detail::Full));
}
