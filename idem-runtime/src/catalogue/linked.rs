//! What the linker has gathered.

use super::Registered;

/// A section is found by its name, so this one changes with the type of its elements: then two versions of this crate in
/// one program have one each.
#[linkme::distributed_slice]
pub static IDEM_REGISTERED_1: [Registered];

/// Puts a `Registered` where the linker gathers them.
#[doc(hidden)]
#[macro_export]
macro_rules! __idem_register {
    ($registered:expr) => {
        const _: () = {
            #[$crate::__private::linkme::distributed_slice($crate::__private::IDEM_REGISTERED_1)]
            #[linkme(crate = $crate::__private::linkme)]
            static REGISTERED: $crate::__private::Registered = $registered;
        };
    };
}
