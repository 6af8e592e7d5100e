//! The library without a command line: compare two arms in a file of rows and read the result as
//! plain values. Needs none of the default features:
//!
//! `cargo run --release --no-default-features --example compare_rows -- tests/fixtures/stats/partial_credit.csv`

use rederive::compare::{self, Options};

fn main() -> rederive::Result<()> {
    let rows = std::env::args().nth(1).unwrap_or_else(|| "tests/fixtures/stats/partial_credit.csv".into());
    let comparison = compare::run(&Options {
        rows: vec![rows.into()],
        bootstrap_key: "example".into(),
        ..Options::default()
    })?;
    println!("{} paired tasks, difference {:+.3}", comparison.paired_tasks, comparison.delta);
    let ci = comparison.ci;
    match (ci.low, ci.high, ci.method) {
        (Some(low), Some(high), Some(method)) => println!("interval [{low:+.3}, {high:+.3}] by {method:?}"),
        _ => println!("no interval: {}", comparison.undefined.get("ci").map_or("undefined", String::as_str)),
    }
    for (k, estimate) in &comparison.pass_at_k.treatment {
        println!("pass@{k}: {}", estimate.map_or("undefined".into(), |p| format!("{p:.3}")));
    }
    for warning in &comparison.warnings {
        println!("{}: {}", warning.code, warning.text);
    }
    Ok(())
}
