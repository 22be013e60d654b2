//! Prints the figures as Markdown.

use std::fmt::Write as _;
use std::process::Command;

use crate::measure::{EXPIRING, Figures, Kind};
use crate::subject::Anything;
use crate::{Grown, Point};

/// The figures of one kind of call at one size, and the ratio of its time to the time at the first size.
pub(crate) fn relative(grown: &Grown, kind: Kind, callers: usize) -> Vec<(u64, f64)> {
    let time = |point: &Point| figures(point, kind, callers).map(|figures| figures.p50.as_secs_f64());
    let Some(first) = grown.points.first().and_then(time) else { return Vec::new() };
    grown.points.iter().filter_map(|point| Some((point.records, time(point)? / first))).collect()
}

fn figures(point: &Point, kind: Kind, callers: usize) -> Option<Figures> {
    let mut all = point.figures.iter();
    all.find(|one| (one.0, one.1) == (kind, callers)).map(|one| one.2)
}

/// Writes a number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// The tables of all stores.
pub(crate) fn tables(all: &[Grown]) -> String {
    let mut text = String::new();
    for grown in all {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "## {}\n", grown.store);
        calls(&mut text, grown);
        records(&mut text, grown);
        if let Some(reason) = &grown.ended {
            let _ = writeln!(text, "It was filled no further: {reason}.\n");
        }
    }
    text
}

fn calls(text: &mut String, grown: &Grown) {
    let _ = writeln!(text, "| call | callers | records | calls/s | p50 us | p99 us | p50 of that at first |");
    let _ = writeln!(text, "|---|---:|---:|---:|---:|---:|---:|");
    let (Some(first), Some(last)) = (grown.points.first(), grown.points.last()) else { return };
    for (kind, callers, _) in &first.figures {
        let against = relative(grown, *kind, *callers);
        for (point, (_, against)) in grown.points.iter().zip(against) {
            let is_shown = [first.records, last.records].contains(&point.records);
            let Some(figures) = figures(point, *kind, *callers).filter(|_| is_shown) else { continue };
            let _ = writeln!(
                text,
                "| {} | {callers} | {} | {:.0} | {:.0} | {:.0} | {against:.2} |",
                kind.name(),
                grouped(point.records),
                figures.per_second,
                figures.p50.as_secs_f64() * 1e6,
                figures.p99.as_secs_f64() * 1e6,
            );
        }
    }
    let _ = writeln!(text);
}

fn records(text: &mut String, grown: &Grown) {
    let _ = writeln!(
        text,
        "| records | MB | filled in s | made to expire | of them deleted | longest purge ms |"
    );
    let _ = writeln!(text, "|---:|---:|---:|---:|---:|---:|");
    for point in &grown.points {
        let purge = point.longest_purge.as_millis();
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {} | {} | {} |",
            grouped(point.records),
            point.bytes / 1_000_000,
            point.filled_in.as_secs_f64(),
            grouped(point.made),
            grouped(point.deleted),
            if purge == 0 { "-".to_owned() } else { purge.to_string() },
        );
    }
    let _ = writeln!(text);
}

/// The whole page.
pub(crate) fn page(all: &[Grown], tables: &str) -> Anything<String> {
    let (date, commit) = (said("date", &["-u", "+%F"])?, said("git", &["rev-parse", "--short", "HEAD"])?);
    let rust = said("rustc", &["--version"])?;
    let most =
        all.iter().flat_map(|grown| &grown.points).map(|point| point.records).max().unwrap_or_default();
    let stores: Vec<_> = all.iter().map(|grown| grown.store.as_str()).collect();
    Ok(format!(
        "# What a call costs while the store grows\n\n\
         ![p50 of a call against that at 10,000 records](growth.svg)\n\n\
         Measured on {date}, commit {commit}, {machine}, {rust}, {stores}.\n\
         Again, with the figures of your machine:\n\n\
         ```sh\n\
         cargo run --release -p idem-growth -- --store sqlite,postgres,redis --most {most} --write docs/internals/benchmarks\n\
         ```\n\n\
         The body does nothing and gives 64 bytes; a replay reads any of the records. Meanwhile {expiring} other calls a second make\n\
         records that expire after one second. The tables have the first and the last point, the picture has all.\n\n{tables}",
        machine = machine()?,
        stores = stores.join(", "),
        expiring = grouped(EXPIRING),
        tables = tables.trim_end().to_owned() + "\n",
    ))
}

fn said(program: &str, arguments: &[&str]) -> Anything<String> {
    let output = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn machine() -> Anything<String> {
    let processors = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next());
    let gigabytes = total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / 1_000_000;
    let cores = std::thread::available_parallelism()?;
    Ok(format!("{cores} cores of {}, {gigabytes} GB", model.unwrap_or("an unknown processor").trim()))
}
