//! Tokens as text. The text depends neither on the line breaks in the source nor on the version of the
//! compiler.
//!
//! Owns the white space. Knows nothing about the meaning of the tokens.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The text of `tokens`, with one space between two words and after each comma, semicolon and single colon,
/// and without other white space.
pub(crate) fn source(tokens: impl quote::ToTokens) -> String {
    let mut text = String::new();
    add(&mut text, tokens.to_token_stream());
    text.truncate(text.trim_end().len());
    text
}

fn add(text: &mut String, tokens: TokenStream) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let (begin, end) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(begin);
                let start = text.len();
                add(text, group.stream());
                // A tuple with one element needs its comma.
                let is_tuple_of_one = text[start..].matches(',').count() == 1;
                text.truncate(text.trim_end_matches(if is_tuple_of_one { " " } else { ", " }).len());
                text.push_str(end);
            }
            TokenTree::Punct(punct) => {
                let sign = punct.as_char();
                // Removes a trailing comma before `>`, because it comes and goes with the line breaks.
                if sign == '>' {
                    text.truncate(text.trim_end_matches(", ").len());
                }
                text.push(sign);
                let is_path = text.ends_with("::")
                    || matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == ':');
                if matches!(sign, ',' | ';') || (sign == ':' && !is_path) {
                    text.push(' ');
                }
            }
            word => {
                if text.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '"')) {
                    text.push(' ');
                }
                text.push_str(&word.to_string());
            }
        }
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
