//! The forms that were issued to each operator. A form can be sent once, and only by the operator who got it.
//! The browser gets only the number of a form. The record and the decision stay in this process.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use idem_core::RecordKey;
use idem_operate_kit::act::{Decision, Shown};
use idem_operate_kit::text::random_hex;

/// How many forms of all operators can be open. At this limit, a new form evicts the oldest form.
const CAPACITY: usize = 4_096;
/// How many forms of one operator can be open. This limits memory, because a form may hold a result of 2 MB.
const OF_ONE: usize = 64;

/// What a form is about.
pub(crate) struct Issued {
    pub(crate) key: RecordKey,
    /// The record as the page shows it.
    pub(crate) shown: Shown,
    /// The decision that the person must confirm, and the person's reason. `None` until the person decides.
    pub(crate) decided: Option<(Decision, Option<String>)>,
}

/// The open forms, the oldest first: operator, number, and what the form is about.
#[derive(Default)]
pub(crate) struct Forms(Mutex<VecDeque<(String, String, Issued)>>);

impl Forms {
    /// Issues a new form to this operator, and returns its number.
    pub(crate) fn issue(&self, operator: &str, issued: Issued) -> String {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = forms.iter().enumerate().rev().filter(|(_, (name, ..))| name == operator);
        let oldest = own.map(|(place, _)| place).nth(OF_ONE - 1);
        if let Some(place) = oldest.or((forms.len() == CAPACITY).then_some(0)) {
            forms.remove(place);
        }
        let number = random_hex();
        forms.push_back((operator.to_owned(), number.clone(), issued));
        number
    }

    /// What this form is about, if the form was issued to this operator and is sent for the first time.
    pub(crate) fn take(&self, operator: &str, number: &str) -> Option<Issued> {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = forms.iter().position(|(name, issued, _)| name == operator && issued == number)?;
        forms.remove(place).map(|(.., issued)| issued)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use idem_core::{Key, Scope};

    use super::*;

    #[test]
    fn a_form_too_many_ends_the_oldest_of_its_operator_and_nobody_elses() {
        let forms = Forms::default();
        let issue = |operator: &str| {
            let key = RecordKey::new(Scope::new("shop").unwrap(), Key::new("k").unwrap());
            forms.issue(operator, Issued { key, shown: Shown::Absent(Duration::ZERO), decided: None })
        };
        let other = issue("ada");
        let own: Vec<String> = (0..=OF_ONE).map(|_| issue("mara")).collect();
        assert!(forms.take("mara", &own[0]).is_none());
        assert!(own[1..].iter().all(|number| forms.take("mara", number).is_some()));
        assert!(forms.take("ada", &other).is_some());
    }
}
