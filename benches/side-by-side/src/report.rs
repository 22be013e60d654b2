//! The report: a table for each kind of work, and all their lines as JSON.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::arm::Anything;
use crate::measure::{Figures, Kind};

/// All measurements.
#[derive(Default)]
pub(crate) struct Report(Vec<Line>);

/// The figures of one way to make a call, for one kind of work.
#[derive(Serialize)]
struct Line {
    store: String,
    work: &'static str,
    callers: usize,
    arm: &'static str,
    calls_per_s: f64,
    /// The ratio to the rate of the first arm, which is the limit for this library: code by hand over the same client.
    of_first: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Report {
    /// Prints the table of one kind of work, and stores its lines.
    pub(crate) fn add(&mut self, store: &str, kind: Kind, callers: usize, arms: &[(&'static str, Figures)]) {
        if arms.is_empty() {
            return;
        }
        let (title, work) = match kind {
            Kind::Fresh => ("Fresh call", "fresh"),
            Kind::Replay => ("Replay", "replay"),
            Kind::Work => ("Fifty milliseconds of work", "work_50ms"),
        };
        println!("| {title}, {callers} at once | calls/s | of the first | p50 us | p99 us |");
        println!("|---|---:|---:|---:|---:|");
        let first = arms.first().map_or(1.0, |(_, figures)| figures.per_second);
        for &(arm, figures) in arms {
            let line = Line {
                store: store.to_owned(),
                work,
                callers,
                arm,
                calls_per_s: figures.per_second,
                of_first: figures.per_second / first,
                p50_us: micros(figures.p50),
                p99_us: micros(figures.p99),
            };
            println!(
                "| {arm} | {:.0} | {:.2} | {:.1} | {:.1} |",
                line.calls_per_s, line.of_first, line.p50_us, line.p99_us,
            );
            self.0.push(line);
        }
        println!();
    }

    pub(crate) fn write(&self, file: &Path) -> Anything<()> {
        let told = File::create(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(serde_json::to_writer_pretty(told, &self.0)?)
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000_000.0
}
