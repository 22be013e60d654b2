//! The forms that were issued to each operator: a form can be sent once, and by its operator only.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use idem_operate_kit::text::random_hex;

/// The limit of open forms of all operators. A new form evicts the oldest.
const CAPACITY: usize = 4_096;

/// The open forms, the oldest first: operator and number.
#[derive(Default)]
pub(crate) struct Forms(Mutex<VecDeque<(String, String)>>);

impl Forms {
    /// Issues a new form to this operator, and returns its number.
    pub(crate) fn issue(&self, operator: &str) -> String {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if forms.len() == CAPACITY {
            forms.pop_front();
        }
        let number = random_hex();
        forms.push_back((operator.to_owned(), number.clone()));
        number
    }

    /// Whether this form was issued to the operator and is sent for the first time.
    pub(crate) fn take(&self, operator: &str, number: &str) -> bool {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = forms.iter().position(|(name, issued)| name == operator && issued == number);
        place.and_then(|place| forms.remove(place)).is_some()
    }
}
