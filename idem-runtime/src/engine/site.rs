//! The default scope of an annotated function, and the rule that no two functions share one.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use crate::error::Error;

/// The place of an annotated function in the source.
pub struct Site {
    module: &'static str,
    function: &'static str,
    file: &'static str,
    line: u32,
    column: u32,
    /// The scope of a function that has neither receiver nor type parameters.
    scope: OnceLock<Arc<str>>,
    registered: AtomicBool,
}

/// Which site uses which default scope in this process.
static DEFAULT_SCOPES: LazyLock<Mutex<HashMap<Arc<str>, &'static Site>>> = LazyLock::new(Mutex::default);

impl Site {
    /// The place of a function.
    #[must_use]
    pub const fn new(
        module: &'static str,
        function: &'static str,
        file: &'static str,
        line: u32,
        column: u32,
    ) -> Self {
        Self {
            module,
            function,
            file,
            line,
            column,
            scope: OnceLock::new(),
            registered: AtomicBool::new(false),
        }
    }

    /// Module path and name.
    pub(super) fn scope(&self) -> Arc<str> {
        self.scope.get_or_init(|| format!("{}::{}", self.module, self.function).into()).clone()
    }

    /// Type of the receiver (else module path), name, and type parameters.
    pub(super) fn typed_scope(&self, receiver: Option<&str>, parameters: &[&str]) -> Arc<str> {
        let mut scope = format!("{}::{}", receiver.unwrap_or(self.module), self.function);
        if !parameters.is_empty() {
            scope.push('<');
            scope.push_str(&parameters.join(", "));
            scope.push('>');
        }
        scope.into()
    }

    /// Takes a default scope for this site, unless another site has it.
    pub(super) fn register(&'static self, scope: &Arc<str>) -> Result<(), Error> {
        // Only a site with one scope can skip the look-up.
        let single = self.scope.get().is_some_and(|own| Arc::ptr_eq(own, scope));
        if single && self.registered.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut scopes = DEFAULT_SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *scopes.entry(scope.clone()).or_insert(self);
        drop(scopes);
        if !std::ptr::eq(first, self) {
            return Err(Error::configuration(
                scope,
                format!(
                    "two functions have this default scope, at {first} and at {self}, and would answer each \
                     other's calls; give at least one of them a `scope = \"..\"` of its own"
                ),
            ));
        }
        if single {
            self.registered.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Site({self})")
    }
}
