//! `idem resolve`.

use std::io::{self, Read as _};
use std::time::Duration;

use clap::Args;
use http::{HeaderName, HeaderValue, StatusCode};
use idem_core::protocol::{
    Claim, ClaimAnswer, OnCrash, Owner, Release, ReleaseCause, Resolution, ResolveAnswer, State,
    StoredResult, Verdict,
};
use idem_core::{RecordKey, Store as _};
use idem_runtime::DynStore;
use idem_runtime::http::StoredResponse;

use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::evidence::{self, Form};
use super::output::{self, Output, name_json};
use super::target::{Seen, Target, called, changed};
use super::walk;

/// What the help says below the options.
const HELP: &str = "\
What is given by --completed or --failed is what every later call is given, so it must be what the
function itself would have recorded: the JSON of its value (null for a function of `Result<(), _>`),
or, where the operation has `terminal`, the JSON of its error. `idem show KEY --result` of a
neighbour shows the form. Write - to have it read from standard input. It is checked to be JSON;
whether it is the function's type cannot be known here, and a call that cannot read it ends with
`Undecodable`.

A key of the HTTP layer is completed by --http, with the response that every later request is given:
  idem resolve 'TENANT/KEY' --http 201 --header 'location: /payments/7' --body @receipt.json

Results that the service encrypts cannot be made here: where its other results are encrypted, this command
refuses, and --release is all it can do. Where the operation has no result yet, nothing shows whether it
encrypts: say --unencrypted if you know that it does not.

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
    /// A header of the response; as often as needed
    #[arg(long, value_name = "NAME: VALUE", requires = "http")]
    header: Vec<String>,
    /// The body of the response: its text, or @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", requires = "http")]
    body: Option<String>,
    /// The service does not encrypt its results; needed where no result of the operation shows it
    #[arg(long, conflicts_with = "release")]
    unencrypted: bool,
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
    /// The effect happened, and this is the status of the response that the HTTP handler gave
    #[arg(long, value_name = "STATUS")]
    http: Option<u16>,
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
            io::stdin().lock().read_to_string(&mut text).map_err(|error| Trouble::input(&error))?;
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
            (None, None) if self.http.is_some() => "completed: every later request is given this response",
            (None, None) => "released: the next call runs the body, and its effect may happen again",
        }
    }
}

impl Resolve {
    fn resolution(&self) -> Answer<Resolution> {
        let wrong = |text: String| Trouble::new(End::Usage, text);
        let Some(status) = self.word.http else {
            if !self.header.is_empty() || self.body.is_some() {
                return Err(wrong("`--header` and `--body` go with `--http`".to_owned()));
            }
            return self.word.resolution();
        };
        let status = StatusCode::from_u16(status).map_err(|_| wrong("that is no status".to_owned()))?;
        let body = match self.body.as_deref() {
            None => Vec::new(),
            Some("-") => {
                let mut body = Vec::new();
                io::stdin().lock().read_to_end(&mut body).map_err(|error| Trouble::input(&error))?;
                body
            }
            Some(text) => match text.strip_prefix('@') {
                Some(file) => std::fs::read(file).map_err(|error| Trouble::input(&error))?,
                None => text.as_bytes().to_vec(),
            },
        };
        let mut response = StoredResponse::new(status, body.into());
        for header in &self.header {
            let named = || {
                let (name, value) = header.split_once(':')?;
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            };
            let (name, value) = named().ok_or_else(|| wrong("write a header as `name: value`".to_owned()))?;
            response.headers.append(name, value);
        }
        Ok(Resolution::Record(Verdict::Completed, StoredResult::Value(response.to_bytes())))
    }

    /// Refuses what the service could not read.
    fn check(&self, form: Form) -> Answer<()> {
        let text = match (form, self.word.http.is_some()) {
            (Form::Sealed, _) => {
                "the results of this store are encrypted, and this command cannot encrypt: the service could not read \
                 what it writes. Nothing was done. Where the effect did not happen, say `--release`; else have the \
                 service record the result, under its own key"
            }
            (Form::Unknown, _) if !self.unencrypted => {
                "nothing shows whether the service encrypts its results, as this operation has none yet; if it does, it could \
                 not read what this command writes. Nothing was done. If it does not, say `--unencrypted`"
            }
            (Form::Response, false) => {
                "this operation keeps HTTP responses: say `--http STATUS`, with `--header` and `--body`. Nothing was \
                 done"
            }
            (Form::Json, true) => {
                "this operation keeps no HTTP responses: say `--completed JSON`. Nothing was done"
            }
            _ => return Ok(()),
        };
        Err(Trouble::new(if form == Form::Sealed { End::Unusable } else { End::Refused }, text))
    }
}

pub(crate) async fn run(resolve: &Resolve, store: &DynStore, output: &mut Output) -> Answer {
    let resolution = resolve.resolution()?;
    let key = resolve.target.find(store).await?;
    let Some(record) = store.get(&key).await? else {
        return Err(evidence::absent(store, Some(key.scope().clone())).await);
    };
    if matches!(resolution, Resolution::Record(..)) {
        resolve.check(evidence::form(store, &key, &record).await?)?;
    }
    let state = put_in_doubt(store, &key).await?;
    if state != State::InDoubt {
        return Err(refused(state));
    }
    let seen = Seen::of(&store.get(&key).await?.ok_or_else(absent)?);
    resolve.confirm.ask(&format!("This records {} as {}.", called(&key), resolve.word.means()))?;
    // A person may have thought for minutes, and the key have fallen in doubt anew.
    let now = Seen::of(&store.get(&key).await?.ok_or_else(absent)?);
    if now != seen {
        return Err(if now.state == State::InDoubt { changed(Some(now.state)) } else { refused(now.state) });
    }
    match store.resolve(&key, &resolution).await? {
        ResolveAnswer::Resolved => {}
        ResolveAnswer::NotInDoubt(state) => return Err(refused(state)),
        _ => return Err(absent()),
    }
    if output.is_json() {
        let mut done = name_json(&key, false);
        done["state"] = match resolution {
            Resolution::Record(Verdict::Completed, _) => "completed",
            Resolution::Record(Verdict::Failed, _) => "failed",
            _ => "released",
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
    let text = format!("nothing was done: it is {}, not in doubt{more}", state.as_str());
    Trouble::new(End::Refused, text)
}

/// A lease that ran out under the policy is only in doubt once somebody has asked: so ask, as a caller would.
async fn put_in_doubt(store: &DynStore, key: &RecordKey) -> Answer<State> {
    let record = store.get(key).await?.ok_or_else(absent)?;
    let now = walk::now(store).await?;
    if !output::is_lapsed(&record, now) || record.on_crash != OnCrash::InDoubt {
        return Ok(record.state);
    }
    let claim =
        Claim::new(Owner::random(), Duration::from_secs(30), record.ttl).with_on_crash(OnCrash::InDoubt);
    match store.claim(key, &claim).await? {
        ClaimAnswer::InDoubt => Ok(State::InDoubt),
        // It was forgotten or resolved meanwhile, and nobody here runs a body.
        ClaimAnswer::Granted(grant) => {
            let (owner, fence) = (claim.owner, grant.fence);
            let release = Release::new(owner, fence, ReleaseCause::Unused);
            store.release(key, &release).await?;
            Err(absent())
        }
        _ => Ok(store.get(key).await?.ok_or_else(absent)?.state),
    }
}
