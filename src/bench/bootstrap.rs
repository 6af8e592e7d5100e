//! Speed and memory of the paired bootstrap: task differences that take few distinct values, as solve rates do, and such that
//! take many, as partial credit does. `benches/peers/bootstrap.py` measures scipy and rliable on the same kinds of data.

use super::machine;
use crate::error::{Error, Result};
use crate::philox::Philox;
use crate::stats::bootstrap::Resamples;
use crate::stats::{TaskValue, Units, Weight};
use serde::Serialize;
use std::time::Instant;

/// How many values the differences take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// Nine: differences of two rates of four attempts each.
    Few,
    /// As many as there are tasks.
    Many,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Always `rederive`.
    pub engine: &'static str,
    /// Version of this crate.
    pub version: &'static str,
    /// The processor, where the system tells.
    pub machine: Option<String>,
    /// Threads that resample.
    pub threads: usize,
    /// Processes that wanted to run in the minute before, where the system tells.
    pub load_before: Option<f64>,
    /// Always `bootstrap`.
    pub what: &'static str,
    /// Task differences.
    pub tasks: usize,
    /// Whether they take few or many values.
    pub values: Values,
    /// Resamples.
    pub resamples: usize,
    /// Whether every draw is made, or counts of values are drawn.
    pub draws: &'static str,
    /// Seconds of each run: units, resamples and interval.
    pub wall_s: Vec<f64>,
    /// The expanded percentile interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Greatest resident memory of the process so far, in bytes; measure small sizes first.
    pub peak_resident_bytes: Option<u64>,
}

/// Task differences of a kind, the same at every call.
fn differences(tasks: usize, values: Values) -> Vec<f64> {
    let mut random = Philox::named(&format!("bench/bootstrap/{tasks}/{values:?}"));
    let draw = |_| match values {
        Values::Few => (random.below(5) as f64 - random.below(5) as f64) / 4.0,
        Values::Many => random.unit() * 1.2 - 0.5,
    };
    (0..tasks).map(draw).collect()
}

/// Measures one size and kind; at least one run. Errors where no interval can be had.
pub fn measure(tasks: usize, values: Values, resamples: usize, runs: usize) -> Result<Row> {
    let names: Vec<String> = (0..tasks).map(|i| format!("{i:09}")).collect();
    let task = |(task, value)| TaskValue { task, family: None, cluster: None, value };
    let input: Vec<TaskValue<'_>> =
        names.iter().map(String::as_str).zip(differences(tasks, values)).map(task).collect();
    let undefined = |why: crate::stats::Undefined| {
        Error::invalid(format!("there is no interval: {why}")).hint("take at least two tasks")
    };
    let load_before = machine::load();
    let run = || -> Result<(f64, bool, crate::stats::Interval)> {
        let start = Instant::now();
        let units = Units::new(&input, Weight::Task).map_err(undefined)?;
        let drawn = Resamples::draw(&units, "0", resamples);
        let interval = drawn.expanded_percentile(units.len()).map_err(undefined)?;
        Ok((start.elapsed().as_secs_f64(), drawn.normative, interval))
    };
    let (first, normative, interval) = run()?;
    let mut wall_s = vec![first];
    for _ in 1..runs {
        wall_s.push(run()?.0);
    }
    Ok(Row {
        engine: "rederive",
        version: env!("CARGO_PKG_VERSION"),
        machine: machine::processor_name(),
        threads: rayon::current_num_threads(),
        load_before,
        what: "bootstrap",
        tasks,
        values,
        resamples,
        draws: if normative { "each" } else { "counts" },
        wall_s,
        low: interval.low,
        high: interval.high,
        peak_resident_bytes: machine::peak_memory(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_which_road_was_taken() {
        for (tasks, values, draws) in
            [(300, Values::Few, "each"), (5_000, Values::Few, "counts"), (5_000, Values::Many, "each")]
        {
            let row = measure(tasks, values, 200, 2).unwrap();
            assert_eq!((row.draws, row.wall_s.len(), row.tasks), (draws, 2, tasks));
            assert!(row.low < row.high && row.low > -1.0 && row.high < 1.0);
        }
        let error = measure(1, Values::Many, 200, 1).unwrap_err().to_string();
        assert!(error.contains("no interval") && error.contains("two tasks"), "{error}");
    }
}
