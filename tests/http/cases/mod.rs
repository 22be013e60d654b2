//! What every framework must do with the header. The handlers are an axum router's; `crate::framework` puts the layer, and a
//! framework, before it.

pub(crate) mod bodies;
pub(crate) mod crashes;
mod draft;
pub(crate) mod layer;
