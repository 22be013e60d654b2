//! The forms that were issued to each operator: a form can be sent once, and by its operator only. What it is about stays here.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use idem_core::RecordKey;
use idem_operate_kit::act::{Decision, Shown};
use idem_operate_kit::text::random_hex;

/// The limit of open forms of all operators. A new form evicts the oldest.
const CAPACITY: usize = 4_096;

/// What a form is about.
pub(crate) struct Issued {
    pub(crate) key: RecordKey,
    /// The record as the page shows it.
    pub(crate) shown: Shown,
    /// The decision that the page asks to confirm, and its reason.
    pub(crate) decided: Option<(Decision, Option<String>)>,
}

/// The open forms, the oldest first: operator, number, and what it is about.
#[derive(Default)]
pub(crate) struct Forms(Mutex<VecDeque<(String, String, Issued)>>);

impl Forms {
    /// Issues a new form to this operator, and returns its number.
    pub(crate) fn issue(&self, operator: &str, issued: Issued) -> String {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if forms.len() == CAPACITY {
            forms.pop_front();
        }
        let number = random_hex();
        forms.push_back((operator.to_owned(), number.clone(), issued));
        number
    }

    /// What this form is about, if it was issued to the operator and is sent for the first time.
    pub(crate) fn take(&self, operator: &str, number: &str) -> Option<Issued> {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = forms.iter().position(|(name, issued, _)| name == operator && issued == number)?;
        forms.remove(place).map(|(.., issued)| issued)
    }
}
