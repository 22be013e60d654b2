//! The text of a handler's error, as a dead letter may carry it: one line of bounded length.

use std::fmt::{self, Display, Write as _};

/// Upper limit of the text, in bytes. [`Delivery::failed`](super::Delivery::failed) names it.
const LONGEST: usize = 1_024;

/// The end of a text that was cut.
const CUT: &str = "...";

/// The text of an error, or `None` where it has none.
pub(super) fn of(error: &impl Display) -> Option<String> {
    let mut line = Line(String::new());
    // An error here is the text's end, or of the error's own `Display`.
    let cut = write!(line, "{error}").is_err();
    let Line(mut text) = line;
    text.truncate(text.trim_end().len());
    if cut {
        while text.len() > LONGEST - CUT.len() {
            text.pop();
        }
        text.push_str(CUT);
    }
    (!text.is_empty()).then_some(text)
}

struct Line(String);

impl fmt::Write for Line {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for character in part.chars() {
            let character = if character.is_control() { ' ' } else { character };
            if character == ' ' && self.0.is_empty() {
                continue;
            }
            if self.0.len() + character.len_utf8() > LONGEST {
                return Err(fmt::Error);
            }
            self.0.push(character);
        }
        Ok(())
    }
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
