//! The options with which an operator says what happened.

use std::io::{self, Read as _};

use clap::Args;
use idem_core::protocol::Verdict;
use idem_operate_kit::act::Decision;
use idem_operate_kit::evidence::Form;
use idem_operate_kit::{Access, Error, result};

use super::end::{Answer, input_error};

/// The text below the options in the help.
pub(crate) const HELP: &str = "\
Every later call returns the value of --completed or the error of --failed: give the JSON that the function itself would
have recorded, of its value (null for `Result<(), _>`) or, where the operation has `terminal`, of its error. `idem show KEY
--result` of another key of the operation shows the form. A call that cannot decode it fails with `Undecodable`.

Other users of this machine can see a command line, so give a result by a file or by standard input:
  idem resolve --digest 3f1c9a0d5be27716 --completed @receipt.json
  fetch-receipt | idem resolve --digest 3f1c9a0d5be27716 --completed - --yes

Complete a key of the HTTP layer with --http and the response that every later request gets:
  idem resolve 'TENANT/KEY' --http 201 --header 'location: /payments/7' --body @receipt.json

If the service encrypts its results, give its key ring with --key-ring-file; without it, only --release works. Where the
operation has no result yet, the store does not show that: give --unencrypted, or --encrypted with the key ring.

A key whose lease has expired under `on_crash = \"in_doubt\"` falls in doubt at the next claim: this command makes it.
--all lists all such keys and all keys in doubt that match, and resolves them. A key that changes meanwhile is not touched.";

#[derive(Args)]
pub(crate) struct Word {
    #[command(flatten)]
    outcome: Outcome,
    /// A header of the response; can be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "http")]
    header: Vec<String>,
    /// The body of the response: @FILE, or - for standard input, or its text
    #[arg(long, value_name = "@FILE", requires = "http")]
    body: Option<String>,
    /// The service does not encrypt its results; needed if the operation has no result that shows it
    #[arg(long, conflicts_with_all = ["release", "encrypted"])]
    unencrypted: bool,
    /// The service encrypts its results with the key ring; needed if the operation has no result that shows
    /// it
    #[arg(long, conflicts_with = "release")]
    encrypted: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Outcome {
    /// The effect happened, and this is the value that the function returned: @FILE, or - for standard input,
    /// or its JSON
    #[arg(long, value_name = "@FILE")]
    completed: Option<String>,
    /// The call failed for good, and this is the error that the function returned, given in the same way; the
    /// operation must have `terminal`
    #[arg(long, value_name = "@FILE")]
    failed: Option<String>,
    /// The effect happened, and this is the status of the response that the HTTP handler gave
    #[arg(long, value_name = "STATUS")]
    http: Option<u16>,
    /// The effect did not happen: the next call runs the body
    #[arg(long)]
    release: bool,
}

/// The content of `@FILE` or of standard input (`-`), or the text itself.
fn content(text: &str) -> Answer<Vec<u8>> {
    let mut content = Vec::new();
    match (text, text.strip_prefix('@')) {
        ("-", _) => {
            io::stdin().lock().read_to_end(&mut content).map_err(|error| input_error(&error))?;
        }
        (_, Some(file)) => content = std::fs::read(file).map_err(|error| input_error(&error))?,
        (text, None) => content.extend(text.as_bytes()),
    }
    Ok(content)
}

impl Word {
    pub(crate) fn decision(&self) -> Answer<Decision> {
        if self.outcome.http.is_none() && (!self.header.is_empty() || self.body.is_some()) {
            return Err(Error::usage("`--header` and `--body` need `--http`"));
        }
        let json = |verdict, text: &str| {
            let text = String::from_utf8(content(text)?).map_err(|_| Error::usage("expected JSON"))?;
            result::json_result(verdict, &text)
        };
        match &self.outcome {
            Outcome { completed: Some(text), .. } => json(Verdict::Completed, text),
            Outcome { failed: Some(text), .. } => json(Verdict::Failed, text),
            Outcome { http: Some(status), .. } => {
                let body = self.body.as_deref().map(content).transpose()?.unwrap_or_default();
                result::response(*status, self.header.iter().map(String::as_str), body)
            }
            _ => Ok(Decision::Release),
        }
    }

    /// Refuses a result that the service could not read.
    pub(crate) async fn check(&self, form: Form, access: &Access) -> Answer<()> {
        let is_said = if access.has_ring() { self.encrypted } else { self.unencrypted };
        result::check(form, self.outcome.http.is_some(), access, is_said).await
    }
}
