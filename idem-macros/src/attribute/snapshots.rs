//! Tests of the expansions of typical uses. The folder `expansions` has one file for each use, with the use
//! above the line `// becomes` and its expansion below.
//!
//! `UPDATE_EXPECT=1` rewrites the files. Read every change.

use expect_test::expect_file;

use super::expand;
use super::tests::{files, parts};

const LINE: &str = "// becomes";

/// The most lines of an expansion. If an expansion has more lines, either its use is not typical, or the
/// macro expands to too much.
const MOST_LINES: usize = 80;

/// The expansion of the use at the beginning of `text`.
fn expanded(text: &str) -> String {
    let (attribute, item) = parts(text);
    prettyplease::unparse(&syn::parse2(expand(attribute, &item)).unwrap())
}

#[test]
fn typical_uses_become_what_their_files_say() {
    let files = files("expansions");
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
