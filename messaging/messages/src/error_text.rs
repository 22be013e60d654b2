//! The text of a handler's error, as a dead letter may carry it: one line of bounded length.

use std::fmt::Display;

/// Upper limit of the text, in bytes. [`DeadLetter`](super::DeadLetter) names it.
const LONGEST: usize = 1_024;

/// The end of a text that was cut.
const CUT: &str = "...";

/// The text of an error, or `None` where it has none.
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

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_text_is_one_line_without_control_characters() {
        let text = of(&"\n the bank said:\r\n\tno\u{7f} ");
        assert_eq!(text.as_deref(), Some("the bank said:   no"));
        assert_eq!(of(&" \n"), None);
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let (just, long) = ("é".repeat(512), "é".repeat(513));
        assert_eq!(of(&just), Some(just));
        let cut = of(&long).unwrap();
        // 1,021 bytes are room for 510 characters.
        assert_eq!(cut, format!("{}...", "é".repeat(510)));
    }
}
