//! Names of schemas and tables.
//!
//! Names become part of statements, so only plain identifiers are accepted.

use idem_core::StoreError;

/// The longest table name: PostgreSQL takes 63 bytes, and the names of indexes and views have a suffix.
const LONGEST_TABLE: usize = 40;
const LONGEST: usize = 63;

/// A name of letters, digits and underscores, not beginning with a digit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identifier(String);

impl Identifier {
    pub(crate) fn schema(name: &str) -> Result<Self, StoreError> {
        Self::checked("schema", name, LONGEST)
    }

    pub(crate) fn table(name: &str) -> Result<Self, StoreError> {
        Self::checked("table", name, LONGEST_TABLE)
    }

    /// A schema of any name that the server has returned.
    pub(crate) fn existing(name: String) -> Self {
        Self(name)
    }

    fn checked(what: &str, name: &str, longest: usize) -> Result<Self, StoreError> {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() || name.len() > longest || !plain || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(StoreError::configuration(format!(
                "`{what}` is {name:?} and must be 1 to {longest} letters, digits or underscores, and not begin with a digit"
            )));
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// This name with a suffix.
    pub(crate) fn with(&self, suffix: &str) -> Self {
        Self(format!("{}{suffix}", self.0))
    }

    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::StoreErrorKind;

    #[test]
    fn a_name_that_is_no_identifier_is_refused() {
        let long = "t".repeat(41);
        for name in ["", "1st", "a b", "a;drop table x", "a\"b", "a.b", "tä", long.as_str()] {
            let error = Identifier::table(name).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Configuration, "{name}");
        }
        for name in ["idem_records", "_x", "Mixed1"] {
            assert_eq!(Identifier::table(name).unwrap().as_str(), name);
        }
        assert!(Identifier::schema(&"s".repeat(63)).is_ok());
    }
}
