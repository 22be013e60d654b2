//! Checks that a store keeps the first byte of a result, which identifies its format.

use bytes::Bytes;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, Trial, same, value};
use idem_core::protocol::{RecordStepAnswer, RecordedStep, Resolution, ResultFormat, StoredResult, Verdict};

/// A result in each format that a store may get, also one of a later version.
fn formats() -> [(&'static str, StoredResult, ResultFormat); 4] {
    let of = |name, bytes: &'static [u8], format| (name, value(Bytes::from_static(bytes)), format);
    [
        of("json", b"{\"id\":7}", ResultFormat::Json),
        of("response", b"\x01\0\xc8\0\0", ResultFormat::Response),
        of("later", b"\x03later", ResultFormat::Other(3)),
        of("last", b"\x1flater", ResultFormat::Other(0x1f)),
    ]
}

pub(crate) async fn the_format_of_a_result_comes_back(t: &Trial) -> Checked {
    for (name, written, format) in formats() {
        let key = t.key(name)?;
        let held = t.take(&key).await?;
        t.complete_with(&key, &held.completion("").with_result(written.clone())).await?;
        same("the format of a replay", t.replay(&key).await?.result.format(), Some(format))?;
        let record = t.record(&key).await?;
        same("the format in the record", record.result.and_then(|result| result.format()), Some(format))?;
        let resolved = t.key(format!("{name} by an operator"))?;
        t.bring(&resolved, Stage::InDoubt).await?;
        t.resolve(&resolved, &Resolution::Record(Verdict::Completed, written)).await?;
        same("the format of a verdict", t.replay(&resolved).await?.result.format(), Some(format))?;
    }
    Ok(())
}

pub(crate) async fn the_format_of_a_step_comes_back(t: &Trial) -> Checked {
    for (name, written, format) in formats() {
        let held = t.take(&t.key(name)?).await?;
        let step = RecordedStep::new(name.to_owned(), None, written);
        same("record_step", t.record_step(&held, 0, &step).await?, RecordStepAnswer::Recorded)?;
        let steps = t.record(&held.key).await?.steps;
        let formats: Vec<_> = steps.iter().map(|step| step.result.format()).collect();
        same("the format of the step", formats, vec![Some(format)])?;
    }
    Ok(())
}
