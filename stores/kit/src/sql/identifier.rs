//! Names of tables, schemas and databases. They become part of statements, so a setting must contain a plain
//! identifier.

use idem_core::StoreError;

/// The longest table name. Servers accept names of up to about 63 characters, and the names of other objects
/// are this name with a suffix.
const LONGEST_TABLE: usize = 40;

/// The name of a table, schema or database. Statements contain it in quotes (see [`quoted`](Self::quoted)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identifier(String);

impl Identifier {
    /// The table that a setting names.
    ///
    /// # Errors
    ///
    /// `Configuration` if the name is not a plain identifier.
    pub fn table(name: &str) -> Result<Self, StoreError> {
        Self::plain("table", name, LONGEST_TABLE)
    }

    /// A name of 1 to `longest` ASCII letters, digits and underscores, not beginning with a digit.
    ///
    /// # Errors
    ///
    /// `Configuration` if the name has another form. The error names the `setting`.
    pub fn plain(setting: &str, name: &str, longest: usize) -> Result<Self, StoreError> {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
        if name.is_empty() || name.len() > longest || !is_plain || begins_with_digit {
            return Err(StoreError::configuration(format!(
                "`{setting}` is {name:?} and must be 1 to {longest} letters, digits or underscores, and not begin with a digit"
            )));
        }
        Ok(Self(name.to_owned()))
    }

    /// A name that already exists on the server. It may have any form.
    pub fn existing(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// This name with a suffix.
    #[must_use]
    pub fn with(&self, suffix: &str) -> Self {
        Self(format!("{}{suffix}", self.0))
    }

    /// The name with this quote before and after it. A quote inside the name is doubled.
    #[must_use]
    pub fn quoted(&self, quote: char) -> String {
        format!("{quote}{}{quote}", self.0.replace(quote, &String::from_iter([quote, quote])))
    }
}

#[cfg(test)]
mod tests {
    use idem_core::StoreErrorKind;

    use super::*;

    #[test]
    fn a_name_that_is_no_identifier_is_refused() {
        let long = "t".repeat(41);
        for name in ["", "1st", "a b", "a;drop table x", "a\"b", "a`b", "a.b", "tä", long.as_str()] {
            let error = Identifier::table(name).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Configuration, "{name}");
        }
        for name in ["idem_records", "_x", "Mixed1"] {
            assert_eq!(Identifier::table(name).unwrap().as_str(), name);
        }
        assert!(Identifier::plain("schema", &"s".repeat(63), 63).is_ok());
    }

    #[test]
    fn a_name_of_the_server_is_quoted() {
        assert_eq!(Identifier::existing("a`b").quoted('`'), "`a``b`");
        assert_eq!(Identifier::existing("a\"b").with("_x").quoted('"'), "\"a\"\"b_x\"");
    }
}
