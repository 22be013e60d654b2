//! The console as routes for an axum app, and its settings.

use std::sync::Arc;

use axum::Router;
use idem_core::Store;
use idem_operate_kit::Access;

use crate::app::App;
use crate::forms::Forms;
use crate::routes;
use crate::walks::{FRESH, FRESH_IF_COSTLY, Walks};

/// The console of this store. Add it to an app with [`Router::nest_service`]. With [`Router::nest`], the app
/// would not serve the console's path with a slash at its end. For a service that encrypts its results or
/// makes digests of its keys, give [`Console::of`] an [`Access`] with the keys.
pub fn service<S: Store>(store: S) -> Router {
    Console::of(Access::new(store)).router()
}

/// The settings of a console.
pub struct Console(App);

impl Console {
    /// The console of the store behind this access.
    #[must_use]
    pub fn of(access: Access) -> Self {
        let walks = Arc::new(Walks::new(access.clone(), FRESH));
        Self(App { access, walks, forms: Forms::default(), read_only: false, origin: None })
    }

    /// Shows records but does not change them. The audit trail still records who saw a key and a result.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.0.read_only = true;
        self
    }

    /// Repeats a walk at most once a minute, unless this console has changed a record. Use this method for
    /// stores where a walk costs money, such as DynamoDB.
    #[must_use]
    pub fn costly(mut self) -> Self {
        self.0.walks = Arc::new(Walks::new(self.0.access.clone(), FRESH_IF_COSTLY));
        self
    }

    /// The origin that browsers see, such as `https://idem.example`. Needed if a proxy rewrites `Host`.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.0.origin = Some(origin.into());
        self
    }

    /// The console, for an app's router. Clones of the router share their walks and forms.
    pub fn router(self) -> Router {
        routes::router(Arc::new(self.0))
    }
}
