//! Who decides about a message whose handler failed.

use super::Disposition;

/// A closure of [`Consumer::dispose`](super::Consumer::dispose), or [`Proposed`] where none is set. Every such closure has it.
pub trait Choose<E>: sealed::Sealed<E> {
    /// What becomes of the message, where [`settle`](super::settle) proposes this for this attempt.
    fn choose(&self, error: &E, attempt: u32, proposed: Disposition) -> Disposition;
}

/// Does as [`settle`](super::settle) proposes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proposed;

impl<E> Choose<E> for Proposed {
    fn choose(&self, _: &E, _: u32, proposed: Disposition) -> Disposition {
        proposed
    }
}

impl<E, F: Fn(&E, u32, Disposition) -> Disposition> Choose<E> for F {
    fn choose(&self, error: &E, attempt: u32, proposed: Disposition) -> Disposition {
        self(error, attempt, proposed)
    }
}

mod sealed {
    use super::{Disposition, Proposed};

    pub trait Sealed<E> {}
    impl<E> Sealed<E> for Proposed {}
    impl<E, F: Fn(&E, u32, Disposition) -> Disposition> Sealed<E> for F {}
}
