//! Tokens as text. The text is the same for the same source, independent of its line breaks and of the compiler.
//!
//! Owns the white space. Knows nothing about the meaning of the tokens.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// `tokens` with one space after commas and colons and between words, and no other white space.
pub(crate) fn source(tokens: impl quote::ToTokens) -> String {
    let mut text = Text::default();
    text.add(tokens.to_token_stream());
    text.shown
}

#[derive(Default)]
struct Text {
    shown: String,
    after_word: bool,
}

impl Text {
    fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add_group(&group),
                TokenTree::Punct(punct) => self.add_sign(punct.as_char()),
                word => self.add_word(&word.to_string()),
            }
        }
    }

    fn add_word(&mut self, word: &str) {
        if self.after_word || self.shown.ends_with([',', ';']) || self.is_after_colon() {
            self.shown.push(' ');
        }
        self.shown.push_str(word);
        self.after_word = true;
    }

    fn add_sign(&mut self, sign: char) {
        // Whether there is a trailing comma depends on the line breaks.
        if sign == '>' && self.shown.ends_with(',') {
            self.shown.pop();
        } else if self.shown.ends_with([',', ';'])
            || (self.is_after_colon() && sign != ':')
            || (self.after_word && sign == '\'')
        {
            self.shown.push(' ');
        }
        self.shown.push(sign);
        self.after_word = false;
    }

    fn add_group(&mut self, group: &Group) {
        let (begin, end) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::None => return self.add(group.stream()),
        };
        if self.shown.ends_with([',', ';']) || self.is_after_colon() {
            self.shown.push(' ');
        }
        self.shown.push_str(begin);
        let start = self.shown.len();
        self.after_word = false;
        self.add(group.stream());
        // A tuple of one needs its comma.
        let inside = &self.shown[start..];
        if inside.ends_with(',') && inside.matches(',').count() > 1 {
            self.shown.pop();
        }
        self.shown.push_str(end);
        self.after_word = false;
    }

    /// Whether the last character is the colon before a type.
    fn is_after_colon(&self) -> bool {
        self.shown.ends_with(':') && !self.shown.ends_with("::")
    }
}

#[cfg(test)]
mod tests {
    use super::source;

    #[test]
    fn the_same_source_has_the_same_text_however_it_is_broken() {
        for (written, text) in [
            ("Result < Receipt ,\n Error , >", "Result<Receipt, Error>"),
            ("order : & 'a mut Order", "order: &'a mut Order"),
            ("::a::b :: C", "::a::b::C"),
            ("( a , b.c() , )", "(a, b.c())"),
            ("(a,)", "(a,)"),
            ("json!({\"a\": a.b, \"c\": [1, 2]})", "json!({\"a\": a.b, \"c\": [1, 2]})"),
            ("&self", "&self"),
            ("Box<dyn Fn(u8) -> u8 + 'static>", "Box<dyn Fn(u8)->u8+'static>"),
            ("2 * TTL", "2*TTL"),
            ("[u8 ; 4]", "[u8; 4]"),
            ("order: &Order, (a, b): (u8, u8)", "order: &Order, (a, b): (u8, u8)"),
            ("<T as Job>::Output", "<T as Job>::Output"),
        ] {
            assert_eq!(source(written.parse::<proc_macro2::TokenStream>().unwrap()), text, "{written}");
        }
    }
}
