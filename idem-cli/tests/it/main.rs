//! The operator's command `idem`, as a script and as a person see it.

mod asking;
#[cfg(feature = "console")]
mod console;
mod errors;
mod idem_command;
mod kinds;
mod looking;
mod many;
mod not_destroying;
mod ops;
mod outbox;
mod privacy;
mod resolving;
mod responses;
mod servers;
