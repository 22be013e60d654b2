//! `idem resolve`.

use clap::Args;
use idem_core::Store as _;
use idem_core::protocol::{Resolution, Seen, State};

use super::access::Access;
use super::audit::Trail;
use super::bulk::{self, Bulk};
use super::confirm::Confirm;
use super::end::{Answer, End};
use super::evidence;
use super::output::{Output, name_json};
use super::settle::{absent, changed, put_in_doubt, refused, settle, word};
use super::target::{Target, called};
use super::word::Word;

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

Results that the service encrypts are made with its key ring: --key-ring-file. Without it, where its other results
are encrypted, --release is all this command does. Where the operation has no result yet, nothing shows whether
it encrypts: say --unencrypted, or --encrypted with the key ring, if you know.

--all resolves every key in doubt that fits --scope and --older, after it has listed them. What changes between
the list and the answer is left alone.

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
    bulk: Bulk,
    #[command(flatten)]
    trail: Trail,
    #[command(flatten)]
    confirm: Confirm,
}

pub(crate) async fn run(resolve: &Resolve, access: &Access, output: &mut Output) -> Answer {
    let resolution = resolve.word.resolution()?;
    if resolve.bulk.is_meant(&resolve.target)? {
        return all(resolve, &resolution, access, output).await;
    }
    let store = &access.store;
    let key = resolve.target.find(access).await?;
    let Some(record) = store.get(&key).await? else {
        return Err(evidence::absent(access, Some(key.scope().clone())).await);
    };
    if resolution.recorded().is_some() {
        resolve.word.check(evidence::form(store, &key, &record).await?, access)?;
    }
    let seen = put_in_doubt(store, &key).await?;
    if seen.state != State::InDoubt {
        return Err(refused(seen.state));
    }
    let question = format!("This records {} as {}.", called(&key), resolve.word.means());
    if resolve.bulk.is_dry_run() {
        output.line(format!("{question} Nothing was done: this is a dry run."))?;
        return Ok(End::Done);
    }
    resolve.confirm.ask(&question)?;
    // A person may have thought for minutes, and the key have fallen in doubt anew. The store compares once more.
    let now = Seen::of(&store.get(&key).await?.ok_or_else(absent)?);
    if now != seen {
        return Err(if now.state == State::InDoubt { changed(Some(now.state)) } else { refused(now.state) });
    }
    settle(access, &resolve.trail, &key, seen, resolution.clone()).await?;
    if output.is_json() {
        let mut done = name_json(&key, false);
        done["state"] = word(&resolution).into();
        output.line(done.to_string())?;
    } else {
        output.line(format!("{} is {}", called(&key), resolve.word.means()))?;
    }
    Ok(End::Done)
}

async fn all(resolve: &Resolve, resolution: &Resolution, access: &Access, output: &mut Output) -> Answer {
    let scope = resolve.target.scope()?;
    let chosen = resolve.bulk.chosen(access, vec![State::InDoubt], scope).await?;
    if resolution.recorded().is_some() {
        let mut checked = std::collections::HashSet::new();
        for listed in &chosen.0 {
            if checked.insert(listed.key.scope().as_str())
                && let Some(record) = access.store.get(&listed.key).await?
            {
                resolve.word.check(evidence::form(&access.store, &listed.key, &record).await?, access)?;
            }
        }
    }
    let question = format!("This records {} keys as {}.", chosen.0.len(), resolve.word.means());
    let decide = |_: Seen| resolution.clone();
    bulk::settle_all(
        &resolve.bulk,
        &chosen,
        &question,
        decide,
        (access, &resolve.trail, &resolve.confirm),
        output,
    )
    .await
}
