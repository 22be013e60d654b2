//! The operator's command `idem`, as a script and as a person see it.

mod asking;
mod errors;
mod idem_command;
mod looking;
mod not_destroying;
mod privacy;
mod resolving;
mod responses;
mod servers;
