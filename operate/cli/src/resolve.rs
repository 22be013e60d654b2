//! `idem resolve`.

use clap::Args;
use idem_core::Store as _;
use idem_core::protocol::{OnCrash, Resolution, Seen, State};

use super::access::Access;
use super::audit::Trail;
use super::bulk::{self, Bulk};
use super::confirm::Confirm;
use super::end::{Answer, End};
use super::evidence;
use super::output::{Output, is_lapsed, name_json};
use super::settle::{absent, changed, put_in_doubt, refused, settle, word};
use super::target::{Target, called};
use super::word::Word;

/// The text below the options in the help.
const HELP: &str = "\
Every later call returns the value of --completed or the error of --failed, so give exactly what the
function itself would have recorded: the JSON of its value (null for a function of `Result<(), _>`),
or, where the operation has `terminal`, the JSON of its error. `idem show KEY --result` of another
key of the operation shows the form. With - the command reads it from standard input. The command
checks that it is JSON, but does not know the function's type: a call that cannot decode it fails
with `Undecodable`.

Complete a key of the HTTP layer with --http and the response that every later request gets:
  idem resolve 'TENANT/KEY' --http 201 --header 'location: /payments/7' --body @receipt.json

If the service encrypts its results, give its key ring with --key-ring-file. Without it, and where other results
are encrypted, this command can only --release. Where the operation has no result yet, the store does not show whether
the service encrypts: give --unencrypted, or --encrypted with the key ring, if you know.

--all lists every key in doubt that matches --scope, --state, --older and --lapsed, and every key whose lease has expired
under `on_crash = \"in_doubt\"`, and then resolves them. A key that changes between the list and your answer is not
touched.

A key whose lease has expired under `on_crash = \"in_doubt\"` falls in doubt only at the next claim: this command
makes that claim.";

/// Records what happened to a call whose worker died under `on_crash = "in_doubt"`.
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
        resolve.word.check(evidence::form(access, &key, &record).await?, access)?;
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
    // The answer may have taken minutes, and the key may be in doubt from a later attempt. The store compares again, too.
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
    let states = vec![State::InDoubt, State::InFlight];
    let mut chosen = resolve.bulk.chosen(access, states, scope).await?;
    let now = chosen.1;
    chosen.0.retain(|listed| {
        let record = &listed.record;
        record.state == State::InDoubt || (is_lapsed(record, now) && record.on_crash == OnCrash::InDoubt)
    });
    if resolution.recorded().is_some() {
        let mut checked = std::collections::HashSet::new();
        for listed in &chosen.0 {
            if checked.insert(listed.key.scope().as_str())
                && let Some(record) = access.store.get(&listed.key).await?
            {
                resolve.word.check(evidence::form(access, &listed.key, &record).await?, access)?;
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
