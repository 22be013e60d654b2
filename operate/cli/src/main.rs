//! The operator's command `idem`. One file per subcommand; see `idem --help`.
//!
//! Owns the command line. The command uses only the store's public API.

mod act;
mod audit;
#[cfg(feature = "console")]
mod console;
mod decision;
mod doctor;
mod end;
mod filter;
mod list;
#[cfg(feature = "postgres")]
mod outbox;
mod output;
mod place;
mod purge;
mod show;
mod stats;
mod target;
mod word;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use idem_operate_kit::{Error, Kind};

use self::end::{Answer, End};
use self::output::Output;
use self::place::Place;

/// Shows the records of a store of idempotent calls, and resolves keys in doubt.
///
/// Keys are private: without `--keys`, commands show digests and scopes, as logs and errors do.
#[derive(Parser)]
#[command(name = "idem", version, after_help = HELP)]
struct Cli {
    #[command(flatten)]
    place: Place,
    /// Print JSON: one object; commands that list things print one object per line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// The text below the options in the help.
const HELP: &str = "\
Stores, if their feature is built in:
  sqlite:FILE
  redis://[user:password@]host[:port][/db]   rediss:// for TLS
  redis-cluster://[user:password@]host:port,host:port   rediss-cluster:// for TLS
  redis-sentinel://[user:password@]SERVICE@host:port,host:port   rediss-sentinel:// for TLS
  postgres://user:password@host/database[?sslmode=require|verify-full]
  mysql://user:password@host/database[?ssl-mode=REQUIRED|VERIFY_IDENTITY]
  dynamodb://TABLE[?endpoint=URL][&region=NAME][&partition_key=NAME][&sort_key=NAME:VALUE]
            [&time_to_live=NAME][&skew_ms=N]
  nats-kv://[user:password@]host:port/BUCKET
  object:s3://BUCKET/PREFIX[?skew_ms=N]   also gs:// and az://, with the environment of the cloud's own tools
  object:FOLDER
Other users of this machine can see a password on the command line: use IDEM_STORE, or --store-file.
The service's encryption keys, and the secret of its key digests, are never arguments: use --key-ring-file and
--key-secret-file, or put their text into IDEM_KEY_RING and IDEM_KEY_SECRET.

Exit codes:
  0  done
  1  nothing found: no such record, or none that matches
  2  wrong usage
  3  refused by the state of the store: the key is not in doubt, exists in several operations, or has changed
     since it was shown, or no record shows how results are kept
  4  the store cannot be reached, or did not report the outcome
  5  the store cannot be used like this: password, rights, layout, a result too large,
     a record that cannot be read, results that are encrypted or keys that are digests
  6  not confirmed
  7  doctor found something that weakens the guarantee";

#[derive(Subcommand)]
enum Command {
    /// List records, as rows or whole: by state, operation, key prefix and age
    List(list::List),
    /// Show one record
    Show(show::Show),
    /// Settle a key in doubt: record what happened
    Resolve(act::Resolve),
    /// Delete a record in any state; the next call runs its body
    Forget(act::Forget),
    /// Record a result that is known from elsewhere, for a key without a record
    Record(act::Record),
    /// List who settled what, when and why
    Audit(audit::Audit),
    /// Show messages that a relay has set aside, and settle them
    #[cfg(feature = "postgres")]
    Outbox(outbox::Outbox),
    /// Delete expired records
    Purge(purge::Purge),
    /// Count records by state and operation, with ages and the sizes of results; once, or again and again
    #[command(alias = "scopes")]
    Stats(stats::Stats),
    /// Check the store's server, its settings and its clock, and time each operation
    Doctor(doctor::Doctor),
    /// Serve a page for a browser: records in doubt and in flight, and forms to settle them
    #[cfg(feature = "console")]
    Console(console::Console),
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut output = Output::new(cli.json);
    let ended = run(cli, &mut output).and_then(|end| output.flush().map(|()| end));
    match ended {
        Ok(end) => ExitCode::from(end as u8),
        Err(_) if output.is_enough() => ExitCode::SUCCESS,
        Err(error) => {
            // What the command has printed must come before the error. A failure here cannot be reported
            // anywhere.
            let _ = output.flush();
            let _ = writeln!(io::stderr(), "idem: {error}");
            ExitCode::from(error.kind() as u8)
        }
    }
}

fn run(cli: Cli, output: &mut Output) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(Kind::Unusable, format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let place = cli.place;
        let costly = || Ok::<_, Error>(place.url()?.starts_with("dynamodb:"));
        match cli.command {
            Command::List(list) => list::run(&list, &place.open().await?, output).await,
            Command::Show(show) => show::run(&show, &place.open().await?, output).await,
            Command::Resolve(resolve) => act::resolve(&resolve, &place.open().await?, output).await,
            Command::Forget(forget) => act::forget(&forget, &place.open().await?, output).await,
            Command::Record(record) => act::record(&record, &place.open().await?, output).await,
            Command::Audit(audit) => audit::run(&audit, &place.open().await?, output).await,
            #[cfg(feature = "postgres")]
            Command::Outbox(outbox) => outbox::run(&outbox, &place, output).await,
            Command::Purge(purge) => purge::run(&purge, &place.open().await?.store, output).await,
            Command::Stats(stats) => stats::run(&stats, &place.open().await?.store, costly()?, output).await,
            Command::Doctor(doctor) => doctor::run(&doctor, &place.open().await?, output).await,
            #[cfg(feature = "console")]
            Command::Console(console) => console::run(&console, place.open().await?, costly()?, output).await,
            Command::Completions { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "idem", &mut text);
                print_all(&text, output)
            }
            Command::Man => {
                let mut text = Vec::new();
                let written = clap_mangen::Man::new(Cli::command()).render(&mut text);
                written.map_err(|error| Error::new(Kind::Unusable, error.to_string()))?;
                print_all(&text, output)
            }
        }
    })
}

fn print_all(text: &[u8], output: &mut Output) -> Answer {
    output.text(&String::from_utf8_lossy(text))?;
    Ok(End::Done)
}
