//! Tests that every framework must pass. The handlers are those of an axum router; `crate::framework` puts the
//! framework and the layer in front of it.

pub(crate) mod bodies;
pub(crate) mod crashes;
mod draft;
pub(crate) mod layer;
