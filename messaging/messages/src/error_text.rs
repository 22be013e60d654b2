//! The text of a handler's error, as a dead letter contains it: one line of limited length.

use std::fmt::Display;

/// Upper limit of the text, in bytes. The documentation of [`DeadLetter`](super::DeadLetter) repeats this
/// number.
const LONGEST: usize = 1_024;

/// The end of a text that was cut.
const CUT: &str = "...";

/// The text of an error, or `None` if the text is empty.
pub(super) fn of(error: &impl Display) -> Option<String> {
    let text = error.to_string().replace(char::is_control, " ");
    let mut text = text.trim().to_owned();
    if text.len() > LONGEST {
        let mut end = LONGEST - CUT.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(CUT);
    }
    (!text.is_empty()).then_some(text)
}
