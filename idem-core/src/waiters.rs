//! [`Waiters`]: the type of a field that all clones of a store share. The engine keeps there which callers of
//! this process wait for which key.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

/// A value that the clones of one store in this process share. It lets callers that wait for the same key
/// read the record together, instead of each by itself.
///
/// A store makes this value with `Waiters::default()`, shares it among its clones, and returns it from
/// [`Store::waiters`](crate::Store::waiters). Only the engine uses its contents. A store without this field
/// works too, but then each waiting caller reads the record by itself.
#[derive(Clone, Default)]
pub struct Waiters(Arc<OnceLock<Box<dyn Any + Send + Sync>>>);

static NOBODY: LazyLock<Waiters> = LazyLock::new(Waiters::default);

impl Waiters {
    /// The value for all stores that have no field for it.
    #[must_use]
    pub(crate) fn of_nobody() -> &'static Self {
        &NOBODY
    }

    /// The engine's value. If there is none yet, `make` creates it. `None` if the store has no field for it,
    /// or if the value is not a `T`.
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
