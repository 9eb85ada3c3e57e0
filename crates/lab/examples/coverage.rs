//! Prints the tables of docs/methodology.md, "Coverage": how often 95 % intervals
//! hold the truth, by simulation, under noise of several shapes.
//!
//!     cargo run --release -p headroom-lab --example coverage

use headroom_lab_results::analysis::simulate::{self, Coverage, NOISES, Noise};
use headroom_lab_results::analysis::stop::Until;

const TRIALS: u32 = 20_000;
const BOOTSTRAPS: u32 = 4_000;
const SEED: u64 = 3;

fn main() {
    println!("{TRIALS} trials a cell ({BOOTSTRAPS} of bootstraps), seed {SEED}.\n");
    println!("Overhead, true value 10 %: share of intervals that hold it (median half-width).\n");
    row(&["noise", "t, 5 blocks", "t, 10 blocks", "t, 100 blocks", "bootstrap, 5 blocks"]);
    rule(5);
    for noise in NOISES {
        let t = |blocks| share(simulate::paired_t(noise, blocks, TRIALS, SEED));
        let bootstrap = share(simulate::bootstrap(noise, 5, BOOTSTRAPS, SEED));
        row(&[noise.name(), &t(5), &t(10), &t(100), &bootstrap]);
    }

    println!(
        "\nThe same with a stop rule in force, 100 blocks at most: share (mean blocks used).\n"
    );
    row(&["noise", "ci<2%, from 3", "ci<2%, from 10", "ci<1%, from 10", "ci<5%, from 10"]);
    rule(5);
    for noise in NOISES {
        let cell = |half_width_pct, least| {
            let until = Until { half_width_pct, most_blocks: 100 };
            let found = simulate::stopped(noise, until, least, TRIALS, SEED);
            format!("{:.1} % ({:.0})", found.covered * 100.0, found.blocks)
        };
        row(&[noise.name(), &cell(2.0, 3), &cell(2.0, 10), &cell(1.0, 10), &cell(5.0, 10)]);
    }

    println!("\nCost model over four sizes, and the size at which two stacks cross.\n");
    row(&[
        "noise",
        "blocks",
        "fixed cost",
        "cost per gigabyte",
        "crossover",
        "fixed cost, bootstrap",
    ]);
    rule(6);
    for noise in NOISES {
        for blocks in [5, 10, 100] {
            models(noise, blocks);
        }
    }
}

fn models(noise: Noise, blocks: usize) {
    let trials = if blocks == 100 { TRIALS / 5 } else { TRIALS };
    let found = simulate::models(noise, blocks, trials, SEED);
    let bootstrap = if blocks == 5 {
        share(simulate::bootstrapped_fixed(noise, blocks, BOOTSTRAPS, SEED))
    } else {
        String::new()
    };
    row(&[
        noise.name(),
        &blocks.to_string(),
        &share(found.fixed),
        &share(found.slope),
        &share(found.crossover),
        &bootstrap,
    ]);
}

fn share(coverage: Coverage) -> String {
    format!("{:.1} % (± {:.1} %)", coverage.covered * 100.0, coverage.half_width_pct)
}

fn row(cells: &[&str]) {
    println!("| {} |", cells.join(" | "));
}

fn rule(columns: usize) {
    println!("|{}", "---|".repeat(columns));
}
