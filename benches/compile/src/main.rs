//! Measures what the attribute costs to compile: the same functions annotated, written by hand with `Operation::run`,
//! and under the macro of `cached`. Prints build time (processor seconds, so that other load on the machine matters
//! little), size of the binary, LLVM lines (if `cargo llvm-lines` is installed), and sizes of the futures.
//!
//! `cargo run -p idem-compile-cost [FUNCTIONS [ROUNDS]] [--release]`; the defaults are 500 functions and 3 rounds. It
//! needs bash, and the network once, to download `cached`.

mod forms;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use forms::Form;

type Anything<T> = Result<T, Box<dyn Error>>;

/// The measurements of one form.
struct Cost {
    form: Form,
    seconds: f64,
    bytes: u64,
    /// Lines of the unoptimized LLVM code, if `cargo llvm-lines` is installed.
    lines: Option<u64>,
    future: String,
}

fn main() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let release = arguments.iter().any(|argument| argument == "--release");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<usize>().ok());
    let functions = numbers.next().unwrap_or(500);
    let rounds = numbers.next().unwrap_or(3).max(1);

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let folder = root.join("target/compile-cost");
    let mut costs = Vec::new();
    for form in Form::ALL {
        let package = folder.join(form.name());
        // First without functions, so that the build of the dependencies is not measured.
        forms::write(form, &package, &root, 0)?;
        build(&package, release)?;
        forms::write(form, &package, &root, functions)?;
        costs.push(Cost { form, seconds: f64::MAX, bytes: 0, lines: None, future: String::new() });
    }
    for round in 1..=rounds {
        for cost in &mut costs {
            let package = folder.join(cost.form.name());
            forms::touch(&package)?;
            let seconds = build(&package, release)?;
            println!("round {round}: {} in {seconds:.1} s", cost.form.name());
            cost.seconds = cost.seconds.min(seconds);
        }
    }
    for cost in &mut costs {
        let binary = binary(&folder, cost.form, release);
        cost.lines = llvm_lines(&folder.join(cost.form.name()), release);
        cost.bytes = std::fs::metadata(&binary)?.len();
        cost.future = String::from_utf8(Command::new(&binary).output()?.stdout)?.trim().to_owned();
    }
    print(&costs, functions);
    Ok(())
}

fn binary(folder: &Path, form: Form, release: bool) -> PathBuf {
    let profile = if release { "release" } else { "debug" };
    folder.join("target").join(profile).join(format!("cost-{}", form.name().replace('_', "-")))
}

fn ratio(lines: Option<u64>, against: Option<u64>) -> String {
    match (lines, against) {
        (Some(lines), Some(against)) => format!("{:.2}", lines as f64 / against as f64),
        _ => "-".into(),
    }
}

/// Builds a package, and returns the processor seconds that it took.
fn build(package: &Path, release: bool) -> Anything<f64> {
    let release = if release { "--release" } else { "" };
    let script = format!("TIMEFORMAT='%U %S'; time cargo build --quiet {release} 1>&2");
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(package)
        .env("CARGO_TARGET_DIR", package.with_file_name("target"))
        .env("CARGO_INCREMENTAL", "0")
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let beginning: Vec<&str> = said.lines().take(20).collect();
        return Err(format!("{} does not build:\n{}", package.display(), beginning.join("\n")).into());
    }
    let times = said.lines().last().unwrap_or_default();
    Ok(times.split(' ').filter_map(|time| time.parse::<f64>().ok()).sum())
}

/// The lines of LLVM code of a package, including the generics of its dependencies that it instantiates.
fn llvm_lines(package: &Path, release: bool) -> Option<u64> {
    let mut command = Command::new("cargo");
    command.arg("llvm-lines").args(release.then_some("--release")).current_dir(package);
    let output = command.env("CARGO_TARGET_DIR", package.with_file_name("target")).output().ok()?;
    let table = String::from_utf8(output.stdout).ok()?;
    let total = table.lines().find(|line| line.contains("(TOTAL)"))?;
    total.split_whitespace().next()?.parse().ok()
}

fn print(costs: &[Cost], functions: usize) {
    let by_hand = costs.iter().find(|cost| cost.form == Form::ByHand);
    println!(
        "\n{functions} functions   processor s   ratio   binary kB   ratio   LLVM lines   ratio   bytes of a future (of its body)"
    );
    for cost in costs {
        let against = by_hand.unwrap_or(cost);
        println!(
            "{:<14} {:>13.1} {:>7.2} {:>11} {:>7.2} {:>12} {:>7}   {}",
            cost.form.name(),
            cost.seconds,
            cost.seconds / against.seconds,
            cost.bytes / 1_000,
            cost.bytes as f64 / against.bytes as f64,
            cost.lines.map_or("-".into(), |lines| lines.to_string()),
            ratio(cost.lines, against.lines),
            cost.future,
        );
    }
}
