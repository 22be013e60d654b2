//! The store that the attribute's `store` names: a store, or a value that derefs to one.

use std::ops::Deref;
use std::sync::OnceLock;

use tokio::sync::OnceCell;

use crate::store::MemoryStore;
use idem_core::Store;

/// Type-level paths from an argument to a store.
pub mod via {
    /// The store itself.
    #[derive(Debug)]
    pub struct Itself;
    /// Never used. It gives every type a second impl, so that rustc does not assume that the first is the only one.
    #[derive(Debug)]
    pub struct Nothing;
    /// A bound that never holds.
    pub trait Never {}
    /// Through one `Deref`, then the rest of the path.
    #[derive(Debug)]
    pub struct Pointer<M>(M);
    /// Through a cell that is set once.
    #[derive(Debug)]
    pub struct Cell<M>(M);
}

/// A store, or a value that derefs to one at any depth: a reference, an `Arc`, a `LazyLock`, a guard, a newtype. Or a
/// cell that is set once: `std::sync::OnceLock` or `tokio::sync::OnceCell`.
#[diagnostic::on_unimplemented(
    message = "expected a store, found `{Self}`",
    label = "this must be a `Store`, or deref to one, as references, `Arc`, `Box` and `LazyLock` do, or a `OnceLock` of one"
)]
pub trait AsStore<Via> {
    /// The store.
    type Store: Store;
    /// A clone of the store.
    fn as_store(&self) -> Self::Store;
}

#[diagnostic::do_not_recommend]
impl<S: Store> AsStore<via::Itself> for S {
    type Store = S;

    fn as_store(&self) -> S {
        self.clone()
    }
}

#[diagnostic::do_not_recommend]
impl<S: via::Never + ?Sized> AsStore<via::Nothing> for S {
    type Store = MemoryStore;

    fn as_store(&self) -> MemoryStore {
        MemoryStore::new()
    }
}

#[diagnostic::do_not_recommend]
impl<M, P: Deref<Target: AsStore<M>> + ?Sized> AsStore<via::Pointer<M>> for P {
    type Store = <P::Target as AsStore<M>>::Store;

    fn as_store(&self) -> Self::Store {
        (**self).as_store()
    }
}

#[diagnostic::do_not_recommend]
impl<M, C: AsStore<M>> AsStore<via::Cell<M>> for OnceLock<C> {
    type Store = C::Store;

    #[expect(clippy::expect_used, reason = "as documented: nothing has begun")]
    fn as_store(&self) -> Self::Store {
        self.get().expect(NOT_SET).as_store()
    }
}

#[diagnostic::do_not_recommend]
impl<M, C: AsStore<M>> AsStore<via::Cell<M>> for OnceCell<C> {
    type Store = C::Store;

    #[expect(clippy::expect_used, reason = "as documented: nothing has begun")]
    fn as_store(&self) -> Self::Store {
        self.get().expect(NOT_SET).as_store()
    }
}

/// A panic is safe here, because no body runs before its store is set.
const NOT_SET: &str = "the cell that is named as `store` must be set before the first call";

/// A clone of the store that `store` is or points to.
///
/// # Panics
///
/// If the store is in a cell that is not set.
pub fn store<M, S: AsStore<M> + ?Sized>(store: &S) -> S::Store {
    store.as_store()
}
