//! As `linked.rs`, on targets where no linker gathers anything: the attribute works, and the catalogue is empty.

use super::Registered;

/// Nothing.
pub static IDEM_REGISTERED_1: [Registered; 0] = [];

/// Only sees that a `Registered` is one.
#[doc(hidden)]
#[macro_export]
macro_rules! __idem_register {
    ($registered:expr) => {
        const _: $crate::__private::Registered = $registered;
    };
}
