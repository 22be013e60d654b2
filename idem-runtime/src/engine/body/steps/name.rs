//! The names of steps.

use std::sync::Arc;

/// The longest name of a step, in bytes.
pub const MAX_STEP_NAME_BYTES: usize = 256;

/// The name of a step: text, or text with a number for a step in a loop.
///
/// `("line", 7)` is the name `line[7]`. A name comes from the program and is not secret: errors and events
/// show it. A name is any non-empty text of at most [`MAX_STEP_NAME_BYTES`] bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a step",
    label = "write text, or text and a number for one of a loop: `(\"line\", index)`"
)]
pub trait StepName {
    /// The name as text.
    fn into_name(self) -> String;
}

impl StepName for &str {
    fn into_name(self) -> String {
        self.to_owned()
    }
}

impl StepName for String {
    fn into_name(self) -> String {
        self
    }
}

impl StepName for &String {
    fn into_name(self) -> String {
        self.clone()
    }
}

macro_rules! indices {
    ($($number:ty)*) => {$(
        impl StepName for (&str, $number) {
            fn into_name(self) -> String {
                format!("{}[{}]", self.0, self.1)
            }
        }
    )*};
}

indices!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// The name, or why it cannot be used.
pub(crate) fn checked(name: impl StepName) -> Result<Arc<str>, Arc<str>> {
    let name = name.into_name();
    match name.len() {
        0 => Err("a step has an empty name; give it one that stays the same from run to run".into()),
        length if length > MAX_STEP_NAME_BYTES => {
            Err(format!("a step has a name of {length} bytes, and {MAX_STEP_NAME_BYTES} is the most").into())
        }
        _ => Ok(name.into()),
    }
}
