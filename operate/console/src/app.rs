//! The state that all requests share.

use std::time::Duration;

use idem_operate_kit::Access;

use crate::forms::Forms;
use crate::walks::{FRESH, Walks};

/// The settings of a console.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) access: Access,
    pub(crate) read_only: bool,
    /// How long figures are served without a new walk.
    pub(crate) fresh: Duration,
    /// The origin that browsers see, if it is not that of `Host`.
    pub(crate) origin: Option<String>,
}

impl Settings {
    pub(crate) fn new(access: Access) -> Self {
        Self { access, read_only: false, fresh: FRESH, origin: None }
    }
}

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) access: Access,
    pub(crate) walks: std::sync::Arc<Walks>,
    pub(crate) forms: Forms,
    pub(crate) read_only: bool,
    pub(crate) origin: Option<String>,
}

impl App {
    pub(crate) fn new(settings: Settings) -> Self {
        let Settings { access, read_only, fresh, origin } = settings;
        Self {
            walks: std::sync::Arc::new(Walks::new(access.clone(), fresh)),
            access,
            forms: Forms::default(),
            read_only,
            origin,
        }
    }
}
