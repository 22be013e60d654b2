//! The sessions, and the forms that were issued to each: a form can be sent once.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idem_core::protocol::Owner;

/// A session ends after this time without a request.
const IDLE: Duration = Duration::from_secs(8 * 3_600);
/// The limit of sessions, and of open forms per session. A new session evicts the one that was idle longest; a new form evicts all
/// others of its session.
const MOST: usize = 64;

/// 128 bits from a cryptographic generator, as hexadecimal digits.
pub(super) fn random() -> String {
    Owner::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Session {
    name: String,
    used: Instant,
    forms: HashSet<String>,
}

#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Session>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a session, and returns its id.
    pub(super) fn begin(&self, name: String) -> String {
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.used.elapsed() < IDLE);
        if sessions.len() >= MOST {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
            oldest.and_then(|id| sessions.remove(&id));
        }
        let id = random();
        sessions.insert(id.clone(), Session { name, used: Instant::now(), forms: HashSet::new() });
        id
    }

    pub(super) fn end(&self, id: &str) {
        self.lock().remove(id);
    }

    /// The name of the session's person.
    pub(super) fn name(&self, id: &str) -> Option<String> {
        let mut sessions = self.lock();
        let session = sessions.get_mut(id).filter(|session| session.used.elapsed() < IDLE)?;
        session.used = Instant::now();
        Some(session.name.clone())
    }

    /// Issues a new form, and returns its number.
    pub(super) fn form(&self, id: &str) -> String {
        let number = random();
        if let Some(session) = self.lock().get_mut(id) {
            if session.forms.len() >= MOST {
                session.forms.clear();
            }
            session.forms.insert(number.clone());
        }
        number
    }

    /// Whether this form was issued to the session and is sent for the first time.
    pub(super) fn take(&self, id: &str, number: &str) -> bool {
        self.lock().get_mut(id).is_some_and(|session| session.forms.remove(number))
    }
}
