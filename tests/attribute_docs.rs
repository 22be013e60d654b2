//! `docs/attribute.md` names every option and no other.

#[test]
fn the_page_has_every_option_and_each_has_an_example() {
    let page = include_str!("../docs/attribute.md");
    let lib = include_str!("../idem-macros/src/lib.rs");
    let rows = lib.lines().filter_map(|line| line.strip_prefix("/// | `"));
    let options: Vec<&str> = rows.filter_map(|row| row.split([' ', '`']).next()).collect();
    assert!(options.len() >= 15, "{options:?}");
    let headings: String = page.lines().filter(|line| line.starts_with("### ")).collect();
    for option in options {
        assert!(headings.contains(&format!("`{option}`")), "{option} has no heading");
        let is_used = |line: &str| line.contains("#[idempotent(") && line.contains(option);
        assert!(page.lines().any(is_used), "{option} has no example");
    }
}
