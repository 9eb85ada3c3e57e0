//! A plan as results and journals keep it, and the way back. The way back leads
//! through the plan's own file format, so that a record is checked like a plan
//! that somebody wrote.

use std::path::Path;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::schema::{PlanRecord, StackRecord, WorkloadRecord};
use toml::{Table, Value};

use super::{Family, Plan, PlannedStack};
use crate::custom::Custom;
use crate::workload::{ContentKind, Key, Workload, WorkloadKind};

impl Plan {
    /// The record of this plan; where it names no family, of one that is run over IPv6.
    pub fn record(&self) -> PlanRecord {
        // every field by name: one that is forgotten here would be lost on resume
        let Plan {
            name,
            question,
            custom,
            stacks,
            workloads,
            hosts,
            pair,
            repetitions,
            until,
            warmup,
            family,
            mtu,
            offload,
            congestion_control,
            resolver,
            link,
            link_backend,
            validation_links,
            validation_sizes,
            count_packets,
            seed,
            seed_is_random: _,
            scales: _, // a record is of what was run
        } = self;
        PlanRecord {
            name: name.clone(),
            question: question.clone(),
            stacks: stacks.iter().map(stack).collect(),
            workloads: workloads.iter().map(workload).collect(),
            testbed: hosts.clone(),
            pair: pair.clone(),
            repetitions: *repetitions,
            until_ci_pct: until.map(|until| until.half_width_pct),
            max_repetitions: until.map(|until| until.most_blocks),
            warmup: *warmup,
            family: family.unwrap_or(Family::Ipv6).name().to_owned(),
            mtu: *mtu,
            offload: offload.name().to_owned(),
            congestion_control: congestion_control.clone(),
            congestion_controls: stacks.iter().filter_map(own_congestion_control).collect(),
            resolver: resolver.map(|resolver| resolver.name().to_owned()),
            link: link.to_string(),
            link_backend: link_backend.map(|backend| backend.name().to_owned()),
            validation_links: validation_links.iter().map(ToString::to_string).collect(),
            validation_sizes_bytes: validation_sizes.clone(),
            validation_size_bytes: validation_sizes.iter().copied().max().unwrap_or(0),
            count_packets: *count_packets,
            seed: *seed,
            trace_folder: link.traces().next().map(|trace| trace.folder().display().to_string()),
            definitions: custom.records(stacks.iter().flat_map(|planned| planned.stack.names())),
        }
    }

    /// The plan of a record.
    ///
    /// # Errors
    /// [`Error::Plan`]: the record is of no plan that this program could run, or a trace of its
    /// link has changed.
    pub fn of_record(record: &PlanRecord) -> Result<Self> {
        let cannot = |why: String| Error::Plan(format!("the recorded plan cannot be run: {why}"));
        let mut table = to_toml(record);
        Custom::write_to(&mut table, &record.definitions).map_err(cannot)?;
        let text = table.to_string();
        let folder = record.trace_folder.as_deref().map(Path::new);
        let mut plan = super::file::read(&text, &record.name, folder).map_err(|error| {
            // the line is one of a text that nobody has seen
            let error = error.split_once(": ").map_or(error.as_str(), |(_line, rest)| rest);
            cannot(error.to_owned())
        })?;
        // TOML's whole numbers end before a seed's do
        (plan.seed, plan.seed_is_random) = (record.seed, false);
        // and a file names one size for validation links, or leaves it to the downloads
        if !record.validation_sizes_bytes.iter().all(|size| super::file::SIZES.contains(size)) {
            let sentence = "the recorded plan cannot be run: sizes range from 1 B to 1 GiB";
            return Err(Error::Plan(sentence.to_owned()));
        }
        plan.validation_sizes.clone_from(&record.validation_sizes_bytes);
        Ok(plan)
    }

    /// Lists the differences of this plan to the recorded one, as `name: value instead of
    /// value`. Names and the question measure nothing, and traces are told apart by their digests;
    /// a seed that nobody asked for is no difference.
    pub fn differences_from(&self, record: &PlanRecord) -> Vec<String> {
        let mut own = self.record();
        if self.seed_is_random {
            own.seed = record.seed;
        }
        if self.family.is_none() {
            own.family = record.family.clone();
        }
        (own.name, own.question) = (record.name.clone(), record.question.clone());
        own.pair.clone_from(&record.pair);
        own.trace_folder = record.trace_folder.clone();
        let fields = |record: &PlanRecord| match serde_json::to_value(record) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let (recorded, given) = (fields(record), fields(&own));
        let differs = recorded.iter().filter(|(name, value)| given.get(*name) != Some(value));
        differs
            .map(|(name, value)| {
                let given = given.get(name).map_or_else(String::new, ToString::to_string);
                format!("{name}: {given} instead of {value}")
            })
            .collect()
    }
}

fn to_toml(record: &PlanRecord) -> Table {
    let names = |names: &[String]| {
        Value::Array(names.iter().map(|name| Value::String(name.clone())).collect())
    };
    let stacks: Vec<String> = record.stacks.iter().map(|stack| stack.name.clone()).collect();
    let baselines: Table = record
        .stacks
        .iter()
        .map(|stack| {
            let baseline = stack.baseline.as_deref().unwrap_or(super::file::NO_BASELINE);
            (stack.name.clone(), Value::String(baseline.to_owned()))
        })
        .collect();
    let own = |(stack, name): (&String, &String)| (stack.clone(), Value::String(name.clone()));
    let congestion_controls: Table = record.congestion_controls.iter().map(own).collect();
    let until = record.until_ci_pct.map(|pct| Value::String(format!("ci<{pct}%")));
    let most = record.max_repetitions.map(|most| Value::Integer(most.into()));
    let backend = record.link_backend.clone().map(Value::String);
    // real hosts have the offloads that they have
    let offload = Value::String(record.offload.clone());
    let offload = Some(offload).filter(|_| record.testbed.is_none());
    let has_testbed = record.testbed.is_some() || record.pair.is_some();
    let testbed = has_testbed
        .then(|| super::testbed::to_value(record.testbed.as_ref(), record.pair.as_deref()));
    let optional = [
        ("offload", offload),
        ("until", until),
        ("max-repetitions", most),
        ("resolver", record.resolver.clone().map(Value::String)),
        ("link-backend", backend),
        ("testbed", testbed),
    ];
    let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let fields = [
        ("question", Value::String(record.question.clone())),
        ("stacks", names(&stacks)),
        ("baselines", Value::Table(baselines)),
        ("repetitions", Value::Integer(record.repetitions.into())),
        ("warmup", Value::Integer(record.warmup.into())),
        ("count-packets", Value::Boolean(record.count_packets)),
        ("family", Value::String(record.family.clone())),
        ("mtu", Value::Integer(record.mtu.into())),
        ("congestion-control", Value::String(record.congestion_control.clone())),
        ("congestion-controls", Value::Table(congestion_controls)),
        ("link", Value::String(record.link.clone())),
        ("validation-links", names(&record.validation_links)),
        ("workload", Value::Array(record.workloads.iter().map(workload_to_toml).collect())),
    ];
    fields.into_iter().chain(optional).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn stack(planned: &PlannedStack) -> StackRecord {
    StackRecord { name: planned.stack.name.clone(), baseline: planned.baseline.clone() }
}

/// A stack's name and the congestion control that it alone has.
fn own_congestion_control(planned: &PlannedStack) -> Option<(String, String)> {
    Some((planned.stack.name.clone(), planned.congestion_control.clone()?))
}

fn workload(workload: &Workload) -> WorkloadRecord {
    let Workload {
        kind,
        sizes,
        stacks,
        files,
        clients,
        commands,
        seconds,
        content,
        transfers_per_sample,
        rate,
        cross_traffic,
    } = workload;
    WorkloadRecord {
        kind: kind.name().to_owned(),
        sizes_bytes: sizes.clone(),
        stacks: stacks.clone(),
        files: workload.takes(Key::Files).then_some(*files),
        clients: workload.takes(Key::Clients).then_some(*clients),
        commands: commands.clone(),
        seconds: kind.is_timed().then_some(*seconds),
        content: (*content != ContentKind::default()).then(|| content.name().to_owned()),
        transfers_per_sample: *transfers_per_sample,
        rate: rate.map(|rate| rate.to_string()),
        cross_traffic: cross_traffic.map(|traffic| traffic.to_string()),
    }
}

fn workload_to_toml(workload: &WorkloadRecord) -> Value {
    let texts = |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::String).collect());
    let stream = workload.kind == WorkloadKind::Stream.name();
    let sizes = workload.sizes_bytes.iter().filter(|&&size| size > 0 && !stream);
    let sizes: Vec<String> = sizes.map(ToString::to_string).collect();
    let number = |number: u32| Value::Integer(number.into());
    let fields = [
        ("kind", Some(Value::String(workload.kind.clone()))),
        ("sizes", (!sizes.is_empty()).then(|| texts(sizes))),
        ("stacks", Some(texts(workload.stacks.clone()))),
        ("files", workload.files.map(number)),
        ("clients", workload.clients.map(number)),
        ("commands", workload.commands.clone().map(texts)),
        ("seconds", workload.seconds.map(number)),
        ("content", workload.content.clone().map(Value::String)),
        ("transfers-per-sample", workload.transfers_per_sample.map(number)),
        ("rate", workload.rate.clone().map(Value::String)),
        ("cross-traffic", workload.cross_traffic.clone().map(Value::String)),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Table(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: &str = r#"
question = "All \"of\" it?"
stacks = ["ftp", "ftp#again", "ftps", "ssh", "iperf3", "udp", "rtp"]
repetitions = 11
until = "ci<2.5%"
link-backend = "emulator"
max-repetitions = 40
warmup = 2
family = "ipv4"
mtu = 1400
offload = "off"
congestion-control = "reno"
resolver = "silent"
link = "100mbit,delay=5ms,jitter=1ms,loss=0.5%,queue=9"
validation-links = ["10mbit"]
validation-size = "3MB"
count-packets = false
seed = 5
[baselines]
"ftp#again" = "ftp"
ftps = "none"
[[workload]]
kind = "download"
sizes = ["1KiB", "1MiB"]
stacks = ["ftp", "ftps"]
[[workload]]
kind = "download"
content = "text"
transfers-per-sample = 9
stacks = ["ftp"]
[[workload]]
kind = "many"
files = 30
stacks = ["ftp"]
[[workload]]
kind = "parallel"
clients = 3
stacks = ["ftp#again"]
[[workload]]
kind = "commands"
stacks = ["ssh"]
commands = ["uptime", "echo 'a \"b\"'"]
[[workload]]
kind = "stream"
stacks = ["iperf3"]
seconds = 2
[[workload]]
kind = "echo"
sizes = ["64B"]
stacks = ["udp"]
[[workload]]
kind = "packets"
rate = "100pps"
stacks = ["udp"]
[[workload]]
kind = "realtime"
rate = "2mbit"
cross-traffic = "bulk:1-3"
stacks = ["rtp"]
seconds = 4
[[workload]]
kind = "sessions"
clients = 8
seconds = 2
stacks = ["ftps"]
"#;

    fn written() -> Plan {
        Plan::from_toml(EVERYTHING, "my plan").expect("a good plan")
    }

    #[test]
    fn a_plan_comes_back_from_its_record() {
        let mut fewer = written();
        fewer.keep_only("ssh").expect("ssh is there");
        fewer.validation_sizes = vec![1, 2];
        let largest = Plan { seed: u64::MAX, ..written() };
        for (plan, seed) in [(written(), 5), (largest, u64::MAX), (fewer, 5)] {
            let json = serde_json::to_string(&plan.record()).expect("JSON");
            let record: PlanRecord = serde_json::from_str(&json).expect("a record");
            let again = Plan::of_record(&record).expect("the same plan");
            assert_eq!(format!("{again:?}"), format!("{plan:?}"));
            assert_eq!(again.seed, seed);
        }
    }

    #[test]
    fn a_plan_whose_link_follows_a_trace_comes_back_from_its_record() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../link-spec/tests/data");
        let text = "stacks = [\"http\"]\nseed = 1\nfamily = \"ipv6\"\n\
                    link = \"trace=cellular-down.trace,delay=20ms,up-rate=5mbit\"\n\
                    [[workload]]\nkind = \"download\"\n";
        let plan = super::super::file::read(text, "x", Some(folder.as_path()));
        let plan = plan.expect("a good plan");
        let record = plan.record();
        assert!(record.link.starts_with("trace=cellular-down.trace@"), "{}", record.link);
        let again = Plan::of_record(&record).expect("the same plan");
        assert_eq!(again.link, plan.link);
        assert!(again.differences_from(&record).is_empty());
        let mut moved = record.clone();
        moved.trace_folder = Some("/elsewhere".to_owned());
        assert!(plan.differences_from(&moved).is_empty(), "the same trace elsewhere");
        let error = Plan::of_record(&moved).expect_err("it is not there").to_string();
        assert!(
            error.contains("the trace `cellular-down.trace`: cannot read /elsewhere/"),
            "{error}"
        );
        let mut changed = record;
        changed.link = "trace=cellular-down.trace@0123456789ab,delay=20ms,up-rate=5mbit".to_owned();
        let error = Plan::of_record(&changed).expect_err("another digest").to_string();
        assert!(error.contains("the file has changed"), "{error}");
        assert_eq!(plan.differences_from(&changed).len(), 1, "the link");
    }

    /// A record names the family that a run had, also where its plan named none.
    fn of_a_run(plan: Plan) -> Plan {
        Plan { family: plan.family.or(Some(Family::Ipv6)), ..plan }
    }

    #[test]
    fn baselines_with_baselines_come_back_from_a_record() {
        let text = "stacks = [\"ftp\", \"sftp\", \"sftp/tls\"]\nseed = 1\n[[workload]]\nkind = \"download\"\n";
        let plan = Plan::from_toml(text, "chain").expect("a good plan");
        let baselines = plan.stacks.iter().map(|planned| planned.baseline.as_deref());
        assert_eq!(baselines.collect::<Vec<_>>(), [None, Some("ftp"), Some("sftp")]);
        let mut fewer = plan.clone();
        fewer.keep_only("sftp/tls").expect("it is there");
        for plan in [plan, fewer] {
            let again = Plan::of_record(&plan.record()).expect("the same plan");
            assert_eq!(format!("{again:?}"), format!("{:?}", of_a_run(plan)));
        }
    }

    #[test]
    fn a_plan_of_two_machines_comes_back_from_its_record() {
        let text = "stacks = [\"http\", \"sftp/tls\"]\n[testbed]\nkind = \"ssh\"\nclient = \"a\"\nserver = \"b\"\n\
                    ssh = [\"ssh\", \"-F\", \"a b\"]\n[[workload]]\nkind = \"download\"\n";
        let plan = Plan::from_toml(text, "two").expect("a good plan");
        let record = plan.record();
        let again = Plan::of_record(&record).expect("the same plan");
        assert_eq!(
            format!("{again:?}"),
            format!("{:?}", of_a_run(plan))
                .replace("seed_is_random: true", "seed_is_random: false")
        );
        let elsewhere = Plan::from_toml(&text.replace("\"b\"", "\"c\""), "two");
        let differences = elsewhere.expect("a good plan").differences_from(&record);
        assert!(
            differences.len() == 1 && differences[0].starts_with("testbed: "),
            "{differences:?}"
        );
    }

    #[test]
    fn congestion_controls_of_single_stacks_come_back_from_a_record() {
        let text = "stacks = [\"https\", \"https#bbr\"]\nseed = 1\nfamily = \"ipv4\"\n\
                    [congestion-controls]\n\"https#bbr\" = \"bbr\"\n[[workload]]\nkind = \"download\"\n";
        let plan = Plan::from_toml(text, "x").expect("a good plan");
        let chosen = plan.stacks.iter().map(|planned| planned.congestion_control.as_deref());
        assert_eq!(chosen.collect::<Vec<_>>(), [None, Some("bbr")]);
        let record = plan.record();
        let again = Plan::of_record(&record).expect("the same plan");
        assert_eq!(format!("{again:?}"), format!("{plan:?}"));
        let other = Plan::from_toml(&text.replace("= \"bbr\"", "= \"reno\""), "x");
        let differences = other.expect("a good plan").differences_from(&record);
        assert!(
            differences.len() == 1 && differences[0].starts_with("congestion_controls: "),
            "{differences:?}"
        );
    }

    #[test]
    fn the_name_of_a_pair_comes_back_from_a_record_and_is_no_difference() {
        let text = "stacks = [\"http\"]\nseed = 1\nfamily = \"ipv4\"\n[[workload]]\nkind = \"download\"\n\
                    [testbed]\nkind = \"netns\"\nname = \"here\"\n";
        let plan = Plan::from_toml(text, "x").expect("a good plan");
        assert_eq!((plan.pair.as_deref(), &plan.hosts), (Some("here"), &None));
        let record = plan.record();
        let again = Plan::of_record(&record).expect("the same plan");
        assert_eq!(format!("{again:?}"), format!("{plan:?}"));
        let unnamed = Plan::from_toml(&text.replace("name = \"here\"\n", ""), "x");
        assert!(unnamed.expect("a good plan").differences_from(&record).is_empty());
    }

    #[test]
    fn a_record_is_checked_like_a_plan() {
        let mut record = written().record();
        record.workloads[2].files = Some(u32::MAX);
        let error = Plan::of_record(&record).expect_err("too many files").to_string();
        assert_eq!(
            error,
            "the recorded plan cannot be run: `files` is 4294967295: it must be from 1 to 100000"
        );
        let mut record = written().record();
        record.validation_sizes_bytes.push(u64::MAX);
        assert!(
            Plan::of_record(&record).is_err_and(|error| error.to_string().contains("1 B to 1 GiB"))
        );
        let mut record = written().record();
        record.stacks[0].name = "gopher".to_owned();
        assert!(
            Plan::of_record(&record).is_err_and(|error| error.to_string().contains("`gopher`"))
        );
    }

    #[test]
    fn what_differs_is_named_and_a_seed_of_chance_is_not() {
        let record = written().record();
        let other =
            EVERYTHING.replace("repetitions = 11", "repetitions = 12").replace("All", "None");
        let other = Plan::from_toml(&other, "renamed").expect("a good plan");
        assert_eq!(other.differences_from(&record), ["repetitions: 12 instead of 11"]);
        let unseeded = Plan::from_toml(&EVERYTHING.replace("seed = 5", ""), "x");
        assert!(unseeded.expect("a good plan").differences_from(&record).is_empty());
        let reseeded = Plan::from_toml(&EVERYTHING.replace("seed = 5", "seed = 6"), "x");
        let differences = reseeded.expect("a good plan").differences_from(&record);
        assert_eq!(differences, ["seed: 6 instead of 5"]);
    }
}
