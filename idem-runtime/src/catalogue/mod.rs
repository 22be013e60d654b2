//! The catalogue: what identifies the records of each annotated function, as data and as text.
//!
//! Owns the data and its order. `text` owns the file, `registry` how functions get in. `idem-testing` decides what a
//! difference means for records.

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
mod text;

use std::fmt;

#[cfg(feature = "catalogue")]
pub use gathered::IDEM_REGISTERED_1;
#[cfg(feature = "catalogue")]
pub use registry::{Registered, catalogue};

/// The annotated functions and `#[derive(KeyPart)]` types of a program, with what identifies their records.
///
/// `catalogue()` returns the catalogue of this program, [`parse`](Self::parse) reads a committed one, and `Display`
/// writes one. The order is stable: operations by scope and path, key parts by path.
///
/// ```
/// # use idem_runtime as idem;
/// use idem::Catalogue;
///
/// let text = "operation payments.charge\n  path shop::charge\n  key order/{order.id}\n";
/// let catalogue = Catalogue::parse(text)?;
/// assert_eq!(catalogue.operations()[0].key, "order/{order.id}");
/// assert_eq!(Catalogue::parse(&catalogue.to_string())?, catalogue);
/// # Ok::<(), idem::CatalogueError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    operations: Vec<CatalogueOperation>,
    key_parts: Vec<CatalogueKeyPart>,
}

/// What identifies the records of one annotated function. All texts are as in the source, except for white space.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct CatalogueOperation {
    /// The scope of its records, or `None` if every call is refused until the attribute has a `scope`.
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
    /// How long a silent owner keeps its claim: `30s`, or an expression.
    pub lease: String,
    /// `rerun` or `in_doubt`.
    pub on_crash: String,
    /// The return type.
    pub returns: String,
    /// The version of the rules by which the attribute makes scopes and keys.
    pub attribute: String,
}

/// What determines how a `#[derive(KeyPart)]` type is rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct CatalogueKeyPart {
    /// Module and type.
    pub path: String,
    /// The fields with their types, or the variants with their renderings, in order.
    pub fields: Vec<(String, String)>,
}

impl Catalogue {
    /// Reads what `Display` wrote.
    ///
    /// # Errors
    ///
    /// The first line that is not part of a catalogue.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        text::parse(text).map(Self::sorted)
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
        text::write(self, f)
    }
}

/// A line of a file that is not part of a catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no part of a catalogue: {text}")]
pub struct CatalogueError {
    line: usize,
    text: String,
}
