//! The expansions of the uses in `uses.rs`, under the lints that a strict crate may deny. One crate of
//! edition 2021 and one of edition 2024 have this file as their root.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::cargo_common_metadata,
    clippy::absolute_paths,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    future_incompatible,
    nonstandard_style,
    rust_2018_idioms,
    rust_2021_compatibility,
    rust_2024_compatibility,
    elided_lifetimes_in_paths,
    explicit_outlives_requirements,
    let_underscore_drop,
    missing_debug_implementations,
    missing_docs,
    non_ascii_idents,
    redundant_lifetimes,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unreachable_pub,
    unused,
    unused_import_braces,
    unused_lifetimes,
    unused_macro_rules,
    unused_qualifications,
    unused_results,
    variant_size_differences
)]
#![forbid(unsafe_code)]
#![allow(clippy::cargo_common_metadata, reason = "it is never published")]

pub mod uses;
