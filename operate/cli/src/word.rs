//! What happened, by an operator's word, and the bytes that the service would have recorded for it.

use std::io::{self, Read as _};

use clap::Args;
use http::{HeaderName, HeaderValue, StatusCode};
use idem_core::protocol::{Resolution, StoredResult, Verdict};
use idem_runtime::http::StoredResponse;

use super::access::Access;
use super::end::{Answer, End, Trouble};
use super::evidence::Form;

#[derive(Args)]
pub(crate) struct Word {
    #[command(flatten)]
    said: Said,
    /// A header of the response; can be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "http")]
    header: Vec<String>,
    /// The body of the response: its text, or @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", requires = "http")]
    body: Option<String>,
    /// The service does not encrypt its results; needed if the operation has no result that shows it
    #[arg(long, conflicts_with_all = ["release", "encrypted"])]
    unencrypted: bool,
    /// The service encrypts its results with the key ring; needed if the operation has no result that shows it
    #[arg(long, conflicts_with = "release")]
    encrypted: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Said {
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
    fn json(&self) -> Answer<Resolution> {
        let (verdict, text) = match (&self.said.completed, &self.said.failed) {
            (Some(text), _) => (Verdict::Completed, text),
            (None, Some(text)) => (Verdict::Failed, text),
            (None, None) => return Ok(Resolution::Release),
        };
        let mut text = text.clone();
        if text == "-" {
            text.clear();
            io::stdin().lock().read_to_string(&mut text).map_err(|error| Trouble::input(&error))?;
        }
        json_result(verdict, &text)
    }

    pub(crate) const fn means(&self) -> &'static str {
        match (&self.said.completed, &self.said.failed) {
            (Some(_), _) => "completed: every later call gets this value",
            (None, Some(_)) => "failed: every later call gets this error",
            (None, None) if self.said.http.is_some() => "completed: every later request gets this response",
            (None, None) => "released: the next call runs the body, and its effect may happen again",
        }
    }

    pub(crate) fn resolution(&self) -> Answer<Resolution> {
        let wrong = |text: String| Trouble::new(End::Usage, text);
        let Some(status) = self.said.http else {
            if !self.header.is_empty() || self.body.is_some() {
                return Err(wrong("`--header` and `--body` need `--http`".to_owned()));
            }
            return self.json();
        };
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
        response(status, self.header.iter().map(String::as_str), body)
    }

    /// Refuses a result that the service could not read.
    pub(crate) fn check(&self, form: Form, access: &Access) -> Answer<()> {
        let is_said = if access.has_ring() { self.encrypted } else { self.unencrypted };
        check(form, self.said.http.is_some(), access, is_said)
    }
}

/// Refuses a result that the service could not read. `is_said`: the user said whether the service encrypts.
pub(crate) fn check(form: Form, is_response: bool, access: &Access, is_said: bool) -> Answer<()> {
    if access.has_ring() && access.layers().digested_within {
        let text = "the service makes digests of keys within the encryption, so its results are bound to keys that are not \
                    in the store: it could not read a result of this command. Nothing was done. If the effect did not \
                    happen, give `--release`";
        return Err(Trouble::new(End::Unusable, text));
    }
    let text = match (form, is_response) {
        (Form::Sealed, _) => {
            "the results of this store are encrypted, and no key ring was given: the service could not read a result of \
                 this command. Nothing was done. Give `--key-ring-file`; or, if the effect did not happen, \
                 `--release`"
        }
        (Form::Unknown, _) if access.has_ring() && !is_said => {
            "this operation has no result yet that shows whether the service encrypts with this key ring. Nothing was \
                 done. If it does, give `--encrypted`"
        }
        (Form::Unknown, _) if !is_said => {
            "this operation has no result yet that shows whether the service encrypts; if it does, it could not read a \
                 result of this command. Nothing was done. If it does not, give `--unencrypted`"
        }
        (Form::Response, false) => {
            "this operation records HTTP responses: give `--http STATUS`, with `--header` and `--body`. Nothing was \
                 done"
        }
        (Form::Json, true) => {
            "this operation records no HTTP responses: give `--completed JSON`. Nothing was done"
        }
        _ => return Ok(()),
    };
    // With a key ring, `Sealed` does not occur: results are decrypted when they are read.
    Err(Trouble::new(if form == Form::Sealed { End::Unusable } else { End::Refused }, text))
}

/// The resolution that records this response. A header has the form `name: value`.
pub(crate) fn response<'h>(
    status: u16,
    headers: impl Iterator<Item = &'h str>,
    body: Vec<u8>,
) -> Answer<Resolution> {
    let wrong = |text: &str| Trouble::new(End::Usage, text);
    let status = StatusCode::from_u16(status).map_err(|_| wrong("expected an HTTP status"))?;
    let mut response = StoredResponse::new(status, body.into());
    for header in headers {
        let named = || {
            let (name, value) = header.split_once(':')?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        };
        let (name, value) = named().ok_or_else(|| wrong("expected a header as `name: value`"))?;
        response.headers.append(name, value);
    }
    Ok(Resolution::Record(Verdict::Completed, StoredResult::Value(response.to_bytes())))
}

/// The resolution that records this JSON, as the function would have recorded it.
pub(crate) fn json_result(verdict: Verdict, text: &str) -> Answer<Resolution> {
    let text = text.trim();
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        // The error's position only: the text may be private.
        let (line, column) = (error.line(), error.column());
        let text = format!(
            "expected JSON (error in line {line}, column {column}); a string needs quotes, such as '\"done\"'"
        );
        return Err(Trouble::new(End::Usage, text));
    }
    // Byte for byte: parsing and printing a number might change it.
    Ok(Resolution::Record(verdict, StoredResult::Value(text.as_bytes().to_vec().into())))
}
