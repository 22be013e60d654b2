//! The state of the console.

use std::sync::Arc;

use idem_operate_kit::Access;

use crate::forms::Forms;
use crate::walks::Walks;

/// The settings, and the state that all requests share.
pub(crate) struct App {
    pub(crate) access: Access,
    pub(crate) walks: Arc<Walks>,
    pub(crate) forms: Forms,
    pub(crate) read_only: bool,
    /// The origin that browsers see, if it differs from `Host`.
    pub(crate) origin: Option<String>,
}
