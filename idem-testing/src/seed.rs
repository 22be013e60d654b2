//! The seed of a random test.

const VARIABLE: &str = "IDEM_SEED";

/// The seed of this run: the number in the environment variable `IDEM_SEED`, or a random one.
///
/// The seed is printed to standard error. A test runner shows it with a failure, so the failure can be
/// reproduced.
#[must_use]
#[expect(clippy::print_stderr, reason = "a failure without its seed cannot be had again")]
pub fn seed() -> u64 {
    let set = std::env::var(VARIABLE).ok().and_then(|text| text.trim().parse().ok());
    let seed = set.unwrap_or_else(rand::random);
    eprintln!("{VARIABLE}={seed}");
    seed
}
