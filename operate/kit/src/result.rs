//! The bytes that the service would have recorded for a result, and whether the service could read them.

use http::{HeaderName, HeaderValue, StatusCode};
use idem_core::protocol::{StoredResult, Verdict};
use idem_http::StoredResponse;

use crate::access::Access;
use crate::act::Decision;
use crate::error::{Error, Kind, Result};
use crate::evidence::Form;

/// Refuses a result that the service could not read. `is_said` means that the user has stated whether the
/// service encrypts.
///
/// # Errors
///
/// The reason why the service could not read the result, and what to do.
pub async fn check(form: Form, is_response: bool, access: &Access, is_said: bool) -> Result<()> {
    if access.has_ring() && access.layers().await?.digested_within {
        let text = "the service makes digests of keys within the encryption, so its results are bound to keys that are not \
                    in the store: it could not read a result of this command. Nothing was done. If the effect did not \
                    happen, give `--release`";
        return Err(Error::new(Kind::Unusable, text));
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
    // With a key ring, `Sealed` does not occur, because a key ring decrypts the results when they are read.
    Err(Error::new(if form == Form::Sealed { Kind::Unusable } else { Kind::Refused }, text))
}

/// The decision that records this response. A header has the form `name: value`.
///
/// # Errors
///
/// The status or a header is invalid.
pub fn response<'h>(status: u16, headers: impl Iterator<Item = &'h str>, body: Vec<u8>) -> Result<Decision> {
    let wrong = |text: &str| Error::usage(text);
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
    Ok(Decision::Record(Verdict::Completed, StoredResult::Value(response.to_bytes())))
}

/// The decision that records this JSON, as the function would have recorded it.
///
/// # Errors
///
/// The text is not JSON.
pub fn json_result(verdict: Verdict, text: &str) -> Result<Decision> {
    let text = text.trim();
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        // The text shows only the error's position, because the JSON may be private.
        let (line, column) = (error.line(), error.column());
        let text = format!(
            "expected JSON (error in line {line}, column {column}); a string needs quotes, such as '\"done\"'"
        );
        return Err(Error::usage(text));
    }
    // The bytes stay unchanged, because parsing and printing a number might change it.
    Ok(Decision::Record(verdict, StoredResult::Value(text.as_bytes().to_vec().into())))
}
