//! The arithmetic of a published study: Farrington et al., *Commercial Solutions for
//! Classified Layering Costs*. Its Table 1 (times) must give its Table 2 (ratios), and
//! what its text says of them; and what is left of it without ten seconds of waiting.

const TIMES: &str = include_str!("../../../plans/studies/published/layering-times.csv");
const RATIOS: &str = include_str!("../../../plans/studies/published/layering-ratios.csv");
const LESS_TEN: &str =
    include_str!("../../../plans/studies/published/layering-less-ten-seconds.csv");

/// What the interactive rows waited for.
const WAITING_S: f64 = 10.0;

#[test]
fn table_1_gives_table_2() {
    for line in rows(RATIOS) {
        let (stack, workload) = (line[0], line[1]);
        let bases =
            [base(stack), &format!("{}/tls", base(stack)), &format!("{}/ipsec", base(stack))];
        for (printed, other) in line[2..].iter().zip(bases) {
            if printed.is_empty() {
                continue;
            }
            let computed = 100.0 * seconds(stack, workload) / seconds(other, workload);
            let printed: f64 = printed.parse().expect("a number");
            let error = (computed - printed).abs();
            assert!(error <= 0.005, "{stack} {workload} against {other}: {computed}, {printed}");
        }
    }
}

#[test]
fn the_gains_of_the_text_are_swapped() {
    // "upload 3.65 % faster, download 2.02 %", of three layers against SFTP over IPsec
    let gain = |workload| {
        let ratio = seconds("sftp/tls/ipsec", workload) / seconds("sftp/ipsec", workload);
        (100.0 * (1.0 - ratio) * 100.0).round() / 100.0
    };
    assert_eq!((gain("download"), gain("upload")), (3.65, 2.02));
}

#[test]
fn a_tunnel_cannot_halve_the_packets_of_what_it_carries() {
    let packets = |stack: &str| number(stack, "commands", 3);
    assert_eq!((packets("ssh/tls"), packets("ssh/tls/ipsec")), (101.0, 50.19));
    // everywhere else in interactive work IPsec changes nothing
    for stack in ["ssh", "sftp", "sftp/tls"] {
        let ratio = packets(&format!("{stack}/ipsec")) / packets(stack);
        assert!((0.99..1.01).contains(&ratio), "{stack}: {ratio}");
    }
}

#[test]
fn ten_seconds_hide_what_layers_cost() {
    for line in rows(LESS_TEN) {
        let (stack, of_base) = (line[0], line[2]);
        let own = seconds(stack, "commands") - WAITING_S;
        assert_eq!(format!("{own:.5}"), line[1], "{stack}");
        let bare = seconds(base(stack), "commands") - WAITING_S;
        assert_eq!(format!("{:.2}", 100.0 * own / bare), of_base, "{stack}");
    }
    let printed = |stack| {
        let mut all = rows(LESS_TEN);
        all.find(|line| line[0] == stack).expect("a row")[2].parse::<f64>().expect("a number")
    };
    assert!(printed("ssh/tls") > 111.0 && printed("ssh/tls/ipsec") > 116.0);
}

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().skip(1).map(|line| line.split(',').collect())
}

/// The application of a stack.
fn base(stack: &str) -> &str {
    stack.split('/').next().unwrap_or(stack)
}

fn seconds(stack: &str, workload: &str) -> f64 {
    number(stack, workload, 2)
}

fn number(stack: &str, workload: &str, column: usize) -> f64 {
    let row = rows(TIMES).find(|line| line[0] == stack && line[1] == workload);
    row.unwrap_or_else(|| panic!("no {stack} {workload}"))[column].parse().expect("a number")
}
