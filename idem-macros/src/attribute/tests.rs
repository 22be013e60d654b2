//! Tests of whole expansions, from tokens to tokens.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::quote;

use super::expand;

/// The files of a folder, in the order of their names.
pub(super) fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attribute").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Splits `#[idempotent(..)] item` into the options and the item.
pub(super) fn parts(code: &str) -> (TokenStream, TokenStream) {
    let mut tokens = code.parse::<TokenStream>().unwrap().into_iter().skip(1);
    let Some(TokenTree::Group(brackets)) = tokens.next() else { panic!("no attribute: {code}") };
    let attribute = brackets.stream().into_iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    });
    (attribute.unwrap_or_default(), tokens.collect())
}

/// What an editor passes to the macro while somebody types `text`: every prefix of `text` with balanced
/// brackets.
fn beginnings(text: &str) -> Vec<TokenStream> {
    text.char_indices().filter_map(|(end, _)| text[..end].parse().ok()).collect()
}

#[test]
fn a_half_typed_body_gives_a_function() {
    let bodies =
        beginnings("let order = store.get(id).await?; match order { Some(order) => order.charge().await, _");
    assert!(bodies.len() > 20, "{}", bodies.len());
    for body in bodies {
        let item = quote!(async fn charge(a: u8) -> Result<u8, E> { #body });
        let expanded = expand(quote!(key = "a", store = s), &item).to_string();
        assert!(!expanded.contains("compile_error"), "{expanded}");
        assert!(expanded.contains("async fn charge (a : u8) -> Result < u8 , E >"), "{expanded}");
        assert!(expanded.contains(&quote!({ #body }).to_string()), "{expanded}");
    }
}

#[test]
fn a_half_typed_attribute_gives_the_function_as_it_was() {
    let item = quote!(
        async fn charge(a: u8) -> Result<u8, E> {
            Ok(a)
        }
    );
    let whole =
        "ttl = \"24h\", key = (a, a.b()), wait = app.wait, terminal = |e| e.is_final(), detach, store";
    let attributes = beginnings(whole);
    assert!(attributes.len() > 20, "{}", attributes.len());
    for attribute in attributes {
        let expanded = expand(attribute.clone(), &item).to_string();
        let (_, messages) = expanded.split_once(&item.to_string()).expect("the item is not as it was");
        assert!(messages.contains("compile_error"), "{attribute}");
    }
}
