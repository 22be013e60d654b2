//! The catalogue: what identifies the records of each annotated function, as data and as text.
//!
//! Owns the data, its order and its text, which is JSON. `registry` owns how functions get into the
//! catalogue. `idem-testing` decides what a difference means for records.

// The targets that `linkme` knows.
#[cfg(feature = "catalogue")]
#[cfg_attr(
    any(
        target_os = "linux",
        target_os = "android",
        target_os = "macos",
        target_os = "ios",
        target_os = "tvos",
        target_os = "windows",
        target_os = "freebsd",
        target_os = "openbsd",
        target_os = "illumos"
    ),
    path = "linked.rs"
)]
mod gathered;
#[cfg(feature = "catalogue")]
mod registry;

use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(feature = "catalogue")]
pub use gathered::IDEM_REGISTERED_1;
#[cfg(feature = "catalogue")]
pub use registry::{Registered, catalogue};

/// The annotated functions and `#[derive(KeyPart)]` types of a program, with what identifies their records.
///
/// `catalogue()` returns the catalogue of this program. `Display` writes a catalogue as JSON text, and
/// [`parse`](Self::parse) reads such a text. The order is stable: operations by scope and path, key parts by
/// path.
///
/// ```
/// # use idem_runtime as idem;
/// use idem::Catalogue;
///
/// let text = r#"{"operations": [{"scope": "payments.charge", "path": "shop::charge", "key": "order/{order.id}"}]}"#;
/// let catalogue = Catalogue::parse(text)?;
/// assert_eq!(catalogue.operations()[0].key, "order/{order.id}");
/// assert_eq!(Catalogue::parse(&catalogue.to_string())?, catalogue);
/// # Ok::<(), idem::CatalogueError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Catalogue {
    operations: Vec<CatalogueOperation>,
    key_parts: Vec<CatalogueKeyPart>,
}

/// What identifies the records of one annotated function. Types and expressions are written as in the source,
/// except for white space.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CatalogueOperation {
    /// The scope of its records. `None` if the function has no default scope; then every call is refused
    /// until the attribute sets a `scope`.
    pub scope: Option<String>,
    /// Module, type and function.
    pub path: String,
    /// The template of the key, with its placeholders and expressions: `order/{order.id}`.
    pub key: String,
    /// The arguments that the key names, as they are declared: `order: &Order`.
    pub arguments: Vec<String>,
    /// The expression that is fingerprinted.
    pub fingerprint: Option<String>,
    /// How long results are kept: `24h`, or an expression.
    pub ttl: String,
    /// How long a claim lasts without a renewal: `30s`, or an expression.
    pub lease: String,
    /// `rerun` or `in_doubt`.
    pub on_crash: String,
    /// The return type.
    pub returns: String,
    /// The version of the rules by which the attribute makes scopes and keys.
    pub attribute: String,
}

/// What determines how a `#[derive(KeyPart)]` type is rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CatalogueKeyPart {
    /// Module and type.
    pub path: String,
    /// The fields with their types, or the variants with their renderings, in order: `item: String`.
    pub fields: Vec<String>,
}

impl Catalogue {
    /// Reads what `Display` wrote.
    ///
    /// # Errors
    ///
    /// If the text is not a catalogue: the reason, with its line.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        serde_json::from_str(text).map(Self::sorted).map_err(|error| CatalogueError(error.to_string()))
    }

    /// The operations, by scope and path.
    #[must_use]
    pub fn operations(&self) -> &[CatalogueOperation] {
        &self.operations
    }

    /// The types, by path.
    #[must_use]
    pub fn key_parts(&self) -> &[CatalogueKeyPart] {
        &self.key_parts
    }

    /// The part of the catalogue in `module` or below it. `module` is the name of a crate or a path such as
    /// `shop::payments`.
    #[must_use]
    pub fn within(mut self, module: &str) -> Self {
        let is_in = |path: &str| path.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"));
        self.operations.retain(|operation| is_in(&operation.path));
        self.key_parts.retain(|part| is_in(&part.path));
        self
    }

    fn sorted(mut self) -> Self {
        self.operations.sort();
        self.key_parts.sort();
        self
    }
}

impl fmt::Display for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?)
    }
}

/// Why a text is not a catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a catalogue: {0}")]
pub struct CatalogueError(String);
