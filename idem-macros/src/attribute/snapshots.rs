//! Tests of the expansions of typical uses. `expansions` has one file for each use, with the use above the line and its
//! expansion below.
//!
//! `UPDATE_EXPECT=1` rewrites the files. Read every change.

use std::path::{Path, PathBuf};

use expect_test::expect_file;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::expand;

const LINE: &str = "// becomes";

/// The longest expansion of a typical use. If one is longer, the use is not typical or the expansion is too long.
const MOST_LINES: usize = 80;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attribute/expansions");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The expansion of the use at the beginning of `text`.
fn expanded(text: &str) -> String {
    let mut tokens = text.parse::<TokenStream>().unwrap().into_iter().skip(1);
    let Some(TokenTree::Group(brackets)) = tokens.next() else { panic!("no attribute") };
    let attribute = brackets.stream().into_iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    });
    let file = syn::parse2(expand(attribute.unwrap(), &tokens.collect())).unwrap();
    prettyplease::unparse(&file)
}

#[test]
fn typical_uses_become_what_their_files_say() {
    let files = files();
    assert_eq!(files.len(), 10);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let input = text.split(LINE).next().unwrap().trim_end();
        let now = format!("{input}\n\n{LINE}\n\n{}", expanded(input));
        expect_file![&file].assert_eq(&now);
        let lines = now.split(LINE).nth(1).unwrap().trim().lines().count();
        assert!(lines <= MOST_LINES, "{} lines in {}", lines, file.display());
    }
}
