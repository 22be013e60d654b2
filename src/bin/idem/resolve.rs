//! `idem resolve`.

use std::io::{self, Read as _};
use std::time::Duration;

use clap::Args;
use idem::protocol::{
    Claim, ClaimAnswer, OnCrash, Owner, Release, ReleaseCause, Resolution, ResolveAnswer, State,
    StoredResult, Verdict,
};
use idem::{DynStore, RecordKey, Store as _};

use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::output::{self, Output, name_json};
use super::target::{Target, called};
use super::walk;

/// What the help says below the options.
const HELP: &str = "\
What is given by --completed or --failed is what every later call is given, so it must be what the
function itself would have recorded: the JSON of its value (null for a function of `Result<(), _>`),
or, where the operation has `terminal`, the JSON of its error. `idem show KEY --result` of a
neighbour shows the form. Write - to have it read from standard input. It is checked to be JSON;
whether it is the function's type cannot be known here, and a call that cannot read it ends with
`Undecodable`.

A lease that ran out under `on_crash = \"in_doubt\"` is in doubt only once somebody asks for the key:
this command asks.";

/// Says what happened to a call whose worker went away under `on_crash = "in_doubt"`.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Resolve {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    word: Word,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Word {
    /// The effect happened, and this is the value that the function returned
    #[arg(long, value_name = "JSON")]
    completed: Option<String>,
    /// It failed for good, and this is the error that the function returned; it must have `terminal`
    #[arg(long, value_name = "JSON")]
    failed: Option<String>,
    /// The effect did not happen: the next call runs the body
    #[arg(long)]
    release: bool,
}

impl Word {
    fn resolution(&self) -> Answer<Resolution> {
        let (verdict, text) = match (&self.completed, &self.failed) {
            (Some(text), _) => (Verdict::Completed, text),
            (None, Some(text)) => (Verdict::Failed, text),
            (None, None) => return Ok(Resolution::Release),
        };
        let mut text = text.clone();
        if text == "-" {
            text.clear();
            io::stdin().lock().read_to_string(&mut text)?;
        }
        let text = text.trim();
        if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
            // The error's place, and not what stands there.
            let (line, column) = (error.line(), error.column());
            let text = format!(
                "that is no JSON (line {line}, column {column}); a text needs its quotes, such as '\"done\"'"
            );
            return Err(Trouble::new(End::Usage, text));
        }
        // As it was written: a number read and written again might be another.
        Ok(Resolution::Record(verdict, StoredResult::Value(text.as_bytes().to_vec().into())))
    }

    const fn means(&self) -> &'static str {
        match (&self.completed, &self.failed) {
            (Some(_), _) => "completed: every later call is given this value",
            (None, Some(_)) => "failed: every later call is given this error",
            (None, None) => "released: the next call runs the body, and its effect may happen again",
        }
    }
}

pub(crate) async fn run(resolve: &Resolve, store: &DynStore, output: &mut Output) -> Answer {
    let resolution = resolve.word.resolution()?;
    let key = resolve.target.find(store).await?;
    let state = put_in_doubt(store, &key).await?;
    if state != State::InDoubt {
        return Err(refused(state));
    }
    resolve.confirm.ask(&format!("This records {} as {}.", called(&key), resolve.word.means()))?;
    match store.resolve(&key, &resolution).await? {
        ResolveAnswer::Resolved => {}
        ResolveAnswer::NotInDoubt(state) => return Err(refused(state)),
        ResolveAnswer::Absent => return Err(absent()),
    }
    if output.is_json() {
        let mut done = name_json(&key, false);
        done["state"] = match resolution {
            Resolution::Record(Verdict::Completed, _) => "completed",
            Resolution::Record(Verdict::Failed, _) => "failed",
            Resolution::Release => "released",
        }
        .into();
        output.line(done.to_string())?;
    } else {
        output.line(format!("{} is {}", called(&key), resolve.word.means()))?;
    }
    Ok(End::Done)
}

fn absent() -> Trouble {
    Trouble::new(End::Nothing, "there is no such record")
}

fn refused(state: State) -> Trouble {
    let more = match state {
        State::InFlight => "; its lease runs, or its crash policy is to run again",
        _ => "",
    };
    let text = format!("nothing was done: it is {}, not in doubt{more}", output::state_word(state));
    Trouble::new(End::Refused, text)
}

/// A lease that ran out under the policy is only in doubt once somebody has asked: so ask, as a caller would.
async fn put_in_doubt(store: &DynStore, key: &RecordKey) -> Answer<State> {
    let record = store.get(key).await?.ok_or_else(absent)?;
    let now = walk::now(store).await?;
    if !output::is_lapsed(&record, now) || record.on_crash != OnCrash::InDoubt {
        return Ok(record.state);
    }
    let claim = Claim {
        owner: Owner::random(),
        fingerprint: None,
        lease: Duration::from_secs(30),
        ttl: record.ttl,
        on_crash: OnCrash::InDoubt,
        max_attempts: None,
        settles_doubt: false,
    };
    match store.claim(key, &claim).await? {
        ClaimAnswer::InDoubt => Ok(State::InDoubt),
        // It was forgotten or resolved meanwhile, and nobody here runs a body.
        ClaimAnswer::Granted(grant) => {
            let (owner, fence) = (claim.owner, grant.fence);
            let release = Release { owner, fence, cause: ReleaseCause::Unused, retry_after: Duration::ZERO };
            store.release(key, &release).await?;
            Err(absent())
        }
        _ => Ok(store.get(key).await?.ok_or_else(absent)?.state),
    }
}
