//! `idem`: what an operator types. One file a command; see `idem --help`.
//!
//! Owns the command line. Everything it does goes through the store's public face.

mod confirm;
mod doctor;
mod end;
mod evidence;
mod forget;
mod list;
mod output;
mod purge;
mod resolve;
mod scopes;
mod show;
mod stats;
mod target;
mod walk;
mod watch;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use idem_cli::store::{FORMS, Names, StoreUrl};
use idem_runtime::DynStore;

use self::end::{Answer, End, Trouble};
use self::output::Output;

/// Looks at what a store of idempotent calls holds, and settles what needs a person.
///
/// Keys are private: commands show digests and scopes, as logs and errors do, unless they are told `--keys`.
#[derive(Parser)]
#[command(name = "idem", version, after_help = HELP)]
struct Cli {
    #[command(flatten)]
    place: Place,
    /// Print JSON: an object, or for `list` one a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// What the help says below the options.
const HELP: &str = "\
Stores, each where its feature is built in:
  sqlite:FILE
  redis://[user:password@]host[:port][/db]   rediss:// for TLS
  redis-cluster://[user:password@]host:port,host:port   rediss-cluster:// for TLS
  redis-sentinel://[user:password@]SERVICE@host:port,host:port   rediss-sentinel:// for TLS
  postgres://user:password@host/database[?sslmode=require|verify-full]
  mysql://user:password@host/database[?ssl-mode=REQUIRED|VERIFY_IDENTITY]
  dynamodb://TABLE[?endpoint=URL][&region=NAME][&partition_key=NAME][&sort_key=NAME:VALUE]
            [&time_to_live=NAME][&attribute_prefix=TEXT][&skew_ms=N]
A password on the command line is seen by others of this machine: use IDEM_STORE, or --store-file.

Exit codes:
  0  done
  1  nothing found: no such record, or none that fits
  2  wrong usage
  3  refused by the state of the store: the key is not in doubt, is of several operations, or has changed
     since it was shown, or nothing shows how results are kept
  4  the store cannot be reached, or did not say whether it did it
  5  the store cannot be used like this: password, rights, layout, a result too large,
     a record that cannot be read, results that are encrypted or keys that are digests
  6  not confirmed
  7  doctor found something that weakens the guarantee";

/// Where the store is.
#[derive(Args)]
struct Place {
    /// The store, by its URL: see `idem --help`
    #[arg(long, global = true, env = "IDEM_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<String>,
    /// A file with the store's URL, such as a secret that is mounted
    #[arg(long, global = true, env = "IDEM_STORE_FILE", value_name = "FILE", conflicts_with = "store")]
    store_file: Option<PathBuf>,
    /// What the keys of this store begin with, on Redis ("idem:") and DynamoDB ("")
    #[arg(long, global = true, value_name = "TEXT")]
    prefix: Option<String>,
    /// The schema of the table, on PostgreSQL
    #[arg(long, global = true, value_name = "NAME")]
    schema: Option<String>,
    /// The table, on PostgreSQL and MySQL (`idem_records`)
    #[arg(long, global = true, value_name = "NAME")]
    table: Option<String>,
}

impl Place {
    fn url(&self) -> Answer<String> {
        let wrong = |text| Trouble::new(End::Usage, text);
        match (&self.store, &self.store_file) {
            (Some(url), _) => Ok(url.clone()),
            (None, Some(file)) => {
                let url = std::fs::read_to_string(file)
                    .map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?;
                Ok(url.trim().to_owned())
            }
            (None, None) => {
                let usage = Cli::command().render_usage();
                let text =
                    format!("say which store, by `--store`, `--store-file` or IDEM_STORE: {FORMS}\n{usage}");
                Err(wrong(text))
            }
        }
    }
}

#[derive(Subcommand)]
enum Command {
    /// List records: by state, operation and age
    List(list::List),
    /// Show one record
    Show(show::Show),
    /// Settle a key in doubt: say what happened
    Resolve(resolve::Resolve),
    /// Delete a record in whatever state; the next call runs its body
    Forget(forget::Forget),
    /// Delete records past their time
    Purge(purge::Purge),
    /// Count records by state and operation, with the oldest and the sizes
    Stats(stats::Stats),
    /// List the operations with records, or those that no catalogue claims
    Scopes(scopes::Scopes),
    /// Show what is going on, again and again
    Watch(watch::Watch),
    /// Look at the store's server and its settings, its clock, and how long each operation takes
    Doctor(doctor::Doctor),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut output = Output::new(cli.json);
    let ended = run(cli, &mut output);
    let flushed = output.flush();
    match ended.and_then(|end| flushed.map(|()| end).map_err(Trouble::from)) {
        Ok(end) => end.into(),
        // Whoever read has read enough.
        Err(Trouble::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => End::Done.into(),
        Err(Trouble::Output(error)) => said(End::Unusable, &format!("cannot print: {error}")),
        Err(Trouble::Said(end, text)) => said(end, &text),
    }
}

fn said(end: End, text: &str) -> ExitCode {
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr(), "idem: {text}");
    end.into()
}

fn run(cli: Cli, output: &mut Output) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Trouble::new(End::Unusable, format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let place = cli.place;
        match cli.command {
            Command::List(list) => list::run(&list, &open(&place).await?, output).await,
            Command::Show(show) => show::run(&show, &open(&place).await?, output).await,
            Command::Resolve(resolve) => resolve::run(&resolve, &open(&place).await?, output).await,
            Command::Forget(forget) => forget::run(&forget, &open(&place).await?, output).await,
            Command::Purge(purge) => purge::run(&purge, &open(&place).await?, output).await,
            Command::Stats(stats) => stats::run(&stats, &open(&place).await?, output).await,
            Command::Scopes(scopes) => scopes::run(&scopes, &open(&place).await?, output).await,
            Command::Watch(watch) => {
                let costly = place.url()?.starts_with("dynamodb:");
                watch::run(&watch, &open(&place).await?, costly, output).await
            }
            Command::Doctor(doctor) => doctor::run(&doctor, &open(&place).await?, output).await,
        }
    })
}

async fn open(place: &Place) -> Answer<DynStore> {
    let url = StoreUrl::parse(&place.url()?).map_err(|text| Trouble::new(End::Usage, text))?;
    let names = Names {
        prefix: place.prefix.clone(),
        schema: place.schema.clone(),
        table: place.table.clone(),
        must_exist: true,
    };
    Ok(url.open(&names).await?)
}
