//! Templates: text with places in braces, such as `order/{order.id}`.
//!
//! Owns the grammar, and the rule that makes a template injective: different values give different keys.
//! Every message describes its position in words, because stable Rust cannot point into a literal.

#[derive(Debug)]
pub(crate) enum Piece {
    /// Text outside the braces. `{{` and `}}` are already replaced by one brace.
    Text(String),
    /// The text in a pair of braces.
    Place(String),
}

/// The pieces of `template` that can be read, and the faults in it.
pub(crate) fn parse(template: &str) -> (Vec<Piece>, Vec<String>) {
    let mut parser = Parser::default();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        parser.text.push_str(&rest[..at]);
        rest = parser.brace(&rest[at..]);
    }
    parser.text.push_str(rest);
    parser.end_text();
    (parser.pieces, parser.faults)
}

#[derive(Default)]
struct Parser {
    text: String,
    pieces: Vec<Piece>,
    last_place: Option<String>,
    /// Whether a missing separator was reported. The parser reports only the first missing separator.
    is_shifted: bool,
    faults: Vec<String>,
}

impl Parser {
    /// Parses the doubled brace or the place at the beginning of `rest`, and returns the text that follows.
    fn brace<'t>(&mut self, rest: &'t str) -> &'t str {
        for (escape, brace) in [("{{", '{'), ("}}", '}')] {
            if let Some(after) = rest.strip_prefix(escape) {
                self.text.push(brace);
                return after;
            }
        }
        let Some(inside) = rest.strip_prefix('{') else {
            self.faults.push("a `}` without its `{`: write `}}` for the character itself".into());
            // Parsing stops here, because the text after an unmatched brace would be misread.
            return "";
        };
        match inside.find(['{', '}']) {
            Some(end) if inside[end..].starts_with('}') => {
                self.place(inside[..end].trim());
                &inside[end + 1..]
            }
            unclosed => {
                self.faults.push(no_end(inside, unclosed));
                ""
            }
        }
    }

    fn place(&mut self, written: &str) {
        if let Some(before) = &self.last_place
            && !separates(&self.text)
            && !self.is_shifted
        {
            self.is_shifted = true;
            self.faults.push(not_separated(before, &self.text, written));
        }
        self.end_text();
        self.last_place = Some(written.to_owned());
        self.pieces.push(Piece::Place(written.to_owned()));
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(&mut self.text)));
        }
    }
}

/// The message for a `{` without its `}`. `inside` is the text after the `{`. `next` is the position of
/// another `{` in `inside`, if there is one.
fn no_end(inside: &str, next: Option<usize>) -> String {
    let before = inside[..next.unwrap_or(inside.len())].trim();
    let help = "close it, or write `{{` for the character itself";
    match next.map(|next| inside[next + 1..].split(['{', '}']).next().unwrap_or_default().trim()) {
        _ if !before.is_empty() => format!("the `{{` before `{before}` has no `}}`: {help}"),
        Some(second) if !second.is_empty() => {
            format!(
                "a `{{` inside the braces around `{second}`: write `{{{second}}}`, or `{{{{` for the character itself"
            )
        }
        Some(_) => "a `{` inside braces: write one pair around an argument, such as `{order.id}`".into(),
        None => format!("the `{{` at the end has no `}}`: {help}"),
    }
}

/// Whether `text` has a character that no rendered value contains. Without such a character between two
/// places, the values `a` and `bc` could give the same key as `ab` and `c`.
fn separates(text: &str) -> bool {
    text.chars().any(|c| !(c.is_ascii_alphanumeric() || "_.~-%".contains(c)))
}

fn not_separated(before: &str, text: &str, after: &str) -> String {
    let between = if text.is_empty() {
        "nothing".to_owned()
    } else {
        format!("only `{text}`, which may occur in a value")
    };
    format!(
        "between `{{{before}}}` and `{{{after}}}` there is {between}, so different values could give the same key: \
         separate them, as in `{{{before}}}/{{{after}}}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a template without faults, as text: places are in braces, and text is in quotes.
    fn pieces(template: &str) -> String {
        let (pieces, faults) = parse(template);
        assert_eq!(faults, Vec::<String>::new(), "{template}");
        let shown = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => format!("{text:?}"),
            Piece::Place(place) => format!("{{{place}}}"),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    fn faults(template: &str) -> Vec<String> {
        parse(template).1
    }

    #[test]
    fn a_template_is_text_and_places() {
        assert_eq!(pieces("order/{order.id}"), r#""order/" {order.id}"#);
        assert_eq!(pieces("{a}/{ b }:x"), r#"{a} "/" {b} ":x""#);
        assert_eq!(pieces("{{{a}}}"), r#""{" {a} "}""#);
        assert_eq!(pieces("{a}{{{b}"), r#"{a} "{" {b}"#);
        assert_eq!(pieces("größe/{a}"), r#""größe/" {a}"#);
        assert_eq!(pieces(""), "");
    }

    #[test]
    fn two_places_need_a_character_between_them_that_no_value_has() {
        for template in ["{a}{b}", "{a}-{b}", "{a}_x.{b}", "{a}%{b}", "{a}%2F{b}", "{a}~{b}"] {
            let faults = faults(template);
            assert_eq!(faults.len(), 1, "{template}: {faults:?}");
            assert!(faults[0].contains("{a}/{b}"), "{template}: {faults:?}");
        }
        for template in ["{a}/{b}", "{a}:{b}", "{a} {b}", "{a}-/-{b}", "{a}ß{b}", "{a}|{b}", "x-{a}-y"] {
            pieces(template);
        }
    }

    #[test]
    fn unbalanced_braces_are_refused() {
        for (template, words) in [
            ("{a", "before `a`"),
            ("a}", "without its `{`"),
            ("{a{b}", "before `a`"),
            ("{{a}", "without its `{`"),
            ("{ {a} }", "a `{` inside the braces around `a`: write `{a}`"),
            ("{ { } }", "a `{` inside braces"),
            ("a/{", "the `{` at the end has no `}`"),
        ] {
            let faults = faults(template);
            assert_eq!(faults.len(), 1, "{template}: {faults:?}");
            assert!(faults[0].contains(words), "{template}: {faults:?}");
        }
    }
}
