//! The person who is signed in.

/// The person who is signed in. Your login puts the operator into the extensions of the request. The audit
/// trail shows the name.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) name: String,
    /// Whether the pages have a button to sign out of [`Login`].
    pub(crate) signs_out: bool,
}

impl Operator {
    /// The operator with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: idem_operate_kit::text::safe(&name.into()), signs_out: false }
    }
}
