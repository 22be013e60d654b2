//! The requests and answers of one check, as readable text.
//!
//! The keys and results are the kit's own, so they may be shown.

use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many of the last operations a failure shows.
const SHOWN: usize = 60;

#[derive(Default)]
pub(super) struct History(Mutex<Vec<String>>);

/// The position of one operation in the history.
#[derive(Clone, Copy)]
pub(super) struct Line(usize);

impl History {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request or another event.
    pub(super) fn note(&self, at: Duration, what: &str) -> Line {
        let mut lines = self.lines();
        lines.push(format!("+{:.6}s  {what}", at.as_secs_f64()));
        Line(lines.len() - 1)
    }

    /// Notes the answer to a request.
    pub(super) fn answered(&self, line: Line, answer: &impl Debug) {
        if let Some(line) = self.lines().get_mut(line.0) {
            // Writing to a `String` cannot fail.
            let _ = write!(line, " -> {answer:?}");
        }
    }

    /// The last operations, one line each.
    pub(super) fn render(&self) -> String {
        let lines = self.lines();
        let shown = lines.iter().enumerate().skip(lines.len().saturating_sub(SHOWN));
        shown.map(|(number, line)| format!("    {:>4}  {line}\n", number + 1)).collect()
    }
}
