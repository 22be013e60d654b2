//! A field of a store in which the engine keeps what all clones of that store share in this process.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

/// A value that the clones of one store in this process share, so that waiting callers share one poll.
///
/// A store makes this value with `Waiters::default()`, shares it among its clones, and returns it from
/// [`Store::waiters`](crate::Store::waiters). Only the engine uses its contents. A store without this field
/// works too, but each waiting caller then polls by itself.
#[derive(Clone, Default)]
pub struct Waiters(Arc<OnceLock<Box<dyn Any + Send + Sync>>>);

static NOBODY: LazyLock<Waiters> = LazyLock::new(Waiters::default);

impl Waiters {
    /// The value for all stores that have no field for it.
    #[must_use]
    pub(crate) fn of_nobody() -> &'static Self {
        &NOBODY
    }

    /// The value that was stored first; `make` creates it if there is none yet. `None` if the store has no
    /// field for it, or if the stored value has another type.
    #[doc(hidden)]
    #[must_use]
    pub fn shared<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        if Arc::ptr_eq(&self.0, &NOBODY.0) {
            return None;
        }
        self.0.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiters")
    }
}
