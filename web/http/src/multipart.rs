//! The parts of a `multipart/*` body, independent of its boundary.
//!
//! Owns the rules for where a part begins and ends. A client makes a new boundary for each try, so the
//! boundary is not part of the fingerprint.

/// The longest boundary (RFC 2046, section 5.1.1).
const LONGEST: usize = 70;

/// The boundary in a content type, if the content type is `multipart/*`.
pub(super) fn boundary(content_type: &str) -> Option<&str> {
    let (essence, parameters) = content_type.split_once(';')?;
    let kind = essence.trim().split_once('/')?.0;
    if !kind.eq_ignore_ascii_case("multipart") {
        return None;
    }
    let value = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    (1..=LONGEST).contains(&value.len()).then_some(value)
}

/// The pieces between the boundary lines: the text before the first line, each part, and the text after the
/// last line. Each piece includes the line break before the next boundary line, whether the client wrote
/// `\r\n` or `\n`.
pub(super) fn pieces<'b>(body: &'b [u8], boundary: &str) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    let (mut begin, mut line) = (0, 0);
    while line < body.len() {
        let after = body[line..].strip_prefix(b"--").and_then(|rest| rest.strip_prefix(boundary.as_bytes()));
        if let Some(after) = after {
            pieces.push(&body[begin..line]);
            begin = body.len() - after.len();
        }
        line = match body[line..].iter().position(|byte| *byte == b'\n') {
            Some(end) => line + end + 1,
            None => body.len(),
        };
    }
    pieces.push(&body[begin..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boundary_of_a_multipart_type_is_found() {
        for (content_type, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Mixed ; charset=x; BOUNDARY=\"a b\"", Some("a b")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("application/json; boundary=abc", None),
        ] {
            assert_eq!(boundary(content_type), expected, "{content_type}");
        }
        assert_eq!(boundary(&format!("multipart/x; boundary={}", "a".repeat(71))), None);
    }
}
