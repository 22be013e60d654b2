//! What the user decides and sees of a handler's error.

use super::Disposition;

/// Decides what becomes of a message whose handler failed: see [`Consumer::dispose`](super::Consumer::dispose).
///
/// For every closure of this form, and for [`Proposed`].
pub trait Choose<E> {
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

/// Sees every error of a handler: see [`Consumer::on_error`](super::Consumer::on_error).
///
/// For every closure of this form, and for [`Unwatched`].
pub trait OnError<M, E> {
    /// The handler of `message` failed with `error`, and this becomes of the message.
    fn failed(&self, message: &M, error: &E, disposition: Disposition);
}

/// Nobody sees the errors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl<M, E> OnError<M, E> for Unwatched {
    fn failed(&self, _: &M, _: &E, _: Disposition) {}
}

impl<M, E, F: Fn(&M, &E, Disposition)> OnError<M, E> for F {
    fn failed(&self, message: &M, error: &E, disposition: Disposition) {
        self(message, error, disposition);
    }
}
