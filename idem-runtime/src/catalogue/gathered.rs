//! Replaces `linked.rs` on targets that `linkme` does not know. There the attribute works, but the catalogue
//! is empty.

use super::Registered;

/// Always empty.
pub static IDEM_REGISTERED_1: [Registered; 0] = [];

/// Only checks the type of its argument.
#[doc(hidden)]
#[macro_export]
macro_rules! __idem_register {
    ($registered:expr) => {
        const _: $crate::__private::Registered = $registered;
    };
}
