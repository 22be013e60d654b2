//! `idem outbox`: the messages of a PostgreSQL outbox that relays have set aside.

use std::io::{self, Write as _};

use clap::{Args, Subcommand};
use idem_operate_kit::audit::Deed;
use idem_operate_kit::text::safe;
use idem_operate_kit::{Access, Error, Kind};
use idem_outbox::{MessageId, Outbox as Table, OutboxError, SetAside};
use serde_json::json;

use super::decision::Decider;
use super::end::{Answer, End};
use super::output::Output;
use super::place::Place;

#[derive(Args)]
pub(crate) struct Outbox {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the messages that were set aside
    List {
        /// How many messages to list at most
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: usize,
        /// Show the publisher's error, which may be private
        #[arg(long)]
        errors: bool,
    },
    /// Let a relay publish a message that was set aside, before the later messages of its topic that still
    /// wait
    Retry(One),
    /// Delete a message that was set aside, so that it is never published
    Discard(One),
}

#[derive(Args)]
struct One {
    /// The message's id, as `idem outbox list` shows it
    id: String,
    #[command(flatten)]
    decider: Decider,
}

fn failed(error: OutboxError) -> Error {
    match error {
        OutboxError::Database(error) => error.into(),
        error => Error::new(Kind::Usage, error.to_string()),
    }
}

async fn open(place: &Place) -> Answer<Table> {
    let url = place.url()?;
    if !url.starts_with("postgres") {
        return Err(Error::usage("an outbox is in a PostgreSQL database: give postgres://.."));
    }
    let mut builder = Table::builder(&url).must_exist();
    if let Some(schema) = &place.schema {
        builder = builder.schema(schema);
    }
    if let Some(table) = &place.table {
        builder = builder.table(table);
    }
    builder.connect().await.map_err(failed)
}

pub(crate) async fn run(outbox: &Outbox, place: &Place, output: &mut Output) -> Answer {
    let table = open(place).await?;
    match &outbox.what {
        What::List { limit, errors } => list(&table, *limit, *errors, output).await,
        What::Retry(one) => {
            one.settle("retried", "A relay publishes the message again.", &table, place, output).await
        }
        What::Discard(one) => {
            let question = "This deletes the message: it is never published.";
            one.settle("discarded", question, &table, place, output).await
        }
    }
}

async fn list(table: &Table, limit: usize, errors: bool, output: &mut Output) -> Answer {
    let found = table.set_aside(limit).await.map_err(failed)?;
    if found.is_empty() {
        return Ok(End::Nothing);
    }
    let object = |message: &SetAside| {
        json!({
            "id": message.id.as_str(),
            "topic": message.topic,
            "sequence": message.sequence,
            "payload_bytes": message.payload_bytes,
            "attempts": message.attempts,
            "since": jiff::Timestamp::try_from(message.since).ok().map(|at| format!("{at:.0}")),
            "blocks": message.blocks,
            "error": message.error.as_ref().filter(|_| errors),
        })
    };
    let fields = ["id", "topic", "sequence", "attempts", "payload_bytes", "since", "blocks", "error"];
    output.objects(fields, &found.iter().map(object).collect::<Vec<_>>())?;
    Ok(End::Done)
}

/// Whether the store reports that no schema has the table. The store's text differs if the table belongs to
/// another program or is in another schema.
fn is_missing(error: &Error) -> bool {
    let text = error.to_string();
    error.kind() == Kind::Unusable
        && text.contains("there is no table")
        && text.contains("of idem's in this database")
}

/// Opens the records in the outbox's database, for the audit trail. Looks only for the table with the default
/// name. `None` if the database lacks this table, because an outbox works without records.
async fn records(place: &Place) -> Answer<Option<Access>> {
    match place.open_table(None).await {
        Ok(access) => Ok(Some(access)),
        Err(error) if is_missing(&error) => {
            // If standard error cannot be written to, this cannot be reported anywhere.
            let _ = writeln!(io::stderr(), "idem: this database has no records, so there is no audit trail");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl One {
    async fn settle(
        &self,
        action: &'static str,
        question: &str,
        table: &Table,
        place: &Place,
        output: &mut Output,
    ) -> Answer {
        let id = MessageId::new(&self.id).map_err(failed)?;
        // Opens the records before it asks the person. If the database has a table of records that cannot be
        // opened, the command ends here, because it could not write an entry to the audit trail.
        let records = records(place).await?;
        if self.decider.dry_run {
            output.line(format!("{question} Nothing was done: this is a dry run."))?;
            return Ok(End::Done);
        }
        self.decider.ask(question)?;
        output.must_arrive();
        let done = async {
            let settled = match action {
                "retried" => table.retry(&id).await,
                _ => table.discard(&id).await,
            };
            let absent = "no message with this id is set aside; nothing was done";
            if settled.map_err(failed)? { Ok(()) } else { Err(Error::new(Kind::Absent, absent)) }
        };
        match records {
            Some(access) => {
                let deed = Deed { action, scope: "idem.outbox", digest: safe(id.as_str()), seen: None };
                Box::pin(self.decider.trail().around(&access.store, &deed, done)).await?;
            }
            None => done.await?,
        }
        let outcome = json!({ "id": id.as_str(), "outcome": action });
        output.outcome(&outcome, format!("the message is {action}"))?;
        Ok(End::Done)
    }
}
