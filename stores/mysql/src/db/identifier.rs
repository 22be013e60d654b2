//! Names of tables and databases in statements.

use idem_core::StoreError;

/// The longest table name: the server takes 64 characters, and the names of the other tables have a suffix.
const LONGEST_TABLE: usize = 40;

/// A name that may be part of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identifier(String);

impl Identifier {
    /// A table: letters, digits and underscores, not beginning with a digit.
    pub(crate) fn table(name: &str) -> Result<Self, StoreError> {
        let is_valid = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
        if name.is_empty() || name.len() > LONGEST_TABLE || !is_valid || begins_with_digit {
            return Err(StoreError::configuration(format!(
                "`table` is {name:?} and must be 1 to {LONGEST_TABLE} letters, digits or underscores, and not begin \
                 with a digit"
            )));
        }
        Ok(Self(name.to_owned()))
    }

    /// The database that the connection's options name.
    pub(crate) fn database(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// This name with a suffix.
    pub(crate) fn with(&self, suffix: &str) -> Self {
        Self(format!("{}{suffix}", self.0))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Quoted in the way that every SQL mode takes.
    pub(crate) fn quoted(&self) -> String {
        format!("`{}`", self.0.replace('`', "``"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::StoreErrorKind;

    #[test]
    fn a_name_that_is_no_identifier_is_refused() {
        let long = "t".repeat(41);
        for name in ["", "1st", "a b", "a;drop table x", "a`b", "a.b", "tä", long.as_str()] {
            let error = Identifier::table(name).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Configuration, "{name}");
        }
        for name in ["idem_records", "_x", "Mixed1"] {
            assert_eq!(Identifier::table(name).unwrap().quoted(), format!("`{name}`"));
        }
    }

    #[test]
    fn a_database_of_any_name_is_quoted() {
        assert_eq!(Identifier::database("a`b").quoted(), "`a``b`");
    }
}
