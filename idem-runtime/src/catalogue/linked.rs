//! The functions and types that the linker has gathered.

use super::Registered;

/// The linker gathers the elements in a section that has this name. When the element type changes, change the
/// number in the name. Then two versions of this crate in one program have separate sections.
#[linkme::distributed_slice]
pub static IDEM_REGISTERED_1: [Registered];

/// Puts a `Registered` into the section that the linker gathers.
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
