//! The requests and answers of one check, as readable text.
//!
//! The keys and results are the kit's own, so they may be shown. They are escaped and truncated, because they are
//! hostile.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_core::RecordKey;
use idem_core::protocol::Owner;

/// How many of the last operations a failure shows.
const SHOWN: usize = 60;
/// How many lines are kept. More than are shown, because operations without an answer are not always the last ones.
const KEPT: usize = 1_000;
/// How many characters of a key are shown.
const KEY_SHOWN: usize = 48;

/// The requests and answers.
#[derive(Default)]
pub(super) struct History(Mutex<Log>);

#[derive(Default)]
struct Log {
    owners: Vec<Owner>,
    lines: VecDeque<Line>,
    /// How many lines were dropped.
    gone: usize,
    closed: bool,
}

struct Line {
    at: Duration,
    asked: String,
    answered: Option<String>,
}

/// The place of one operation in the history.
#[derive(Clone, Copy)]
pub(super) struct Asked(usize);

impl History {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request, with its owner and its key if it has them.
    pub(super) fn asked(
        &self,
        at: Duration,
        what: &str,
        owner: Option<Owner>,
        key: Option<&RecordKey>,
    ) -> Asked {
        let mut log = self.log();
        let mut asked = String::new();
        if let Some(owner) = owner {
            asked.push_str(&log.name(owner));
            asked.push_str(": ");
        }
        asked.push_str(what);
        if let Some(key) = key {
            let shown = key.key().as_str().chars().take(KEY_SHOWN).flat_map(char::escape_default);
            // Writing to a `String` cannot fail.
            let _ = write!(asked, " [key {}]", shown.collect::<String>());
        }
        log.push(Line { at, asked, answered: None })
    }

    /// Notes the answer.
    pub(super) fn answered(&self, place: Asked, answer: &impl Debug) {
        let mut log = self.log();
        let place = place.0.checked_sub(log.gone);
        if let Some(line) = place.and_then(|place| log.lines.get_mut(place)) {
            line.answered = Some(format!("{answer:?}"));
        }
    }

    /// Notes another event.
    pub(super) fn note(&self, at: Duration, what: String) {
        self.log().push(Line { at, asked: what, answered: Some(String::new()) });
    }

    /// Ends the history: requests from now on get no answer.
    pub(super) fn close(&self) {
        self.log().closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.log().closed
    }

    /// The last operations, one line each.
    pub(super) fn render(&self) -> String {
        let log = self.log();
        let skipped = log.lines.len().saturating_sub(SHOWN);
        let mut text = String::new();
        if skipped + log.gone > 0 {
            let _ = writeln!(text, "    .. {} before these", skipped + log.gone);
        }
        for (number, line) in log.lines.iter().enumerate().skip(skipped) {
            let at = line.at.as_secs_f64();
            let _ = write!(text, "    {:>4}  +{at:.6}s  {}", log.gone + number + 1, line.asked);
            let _ = match line.answered.as_deref() {
                Some("") => writeln!(text),
                Some(answer) => writeln!(text, " -> {answer}"),
                None => writeln!(text, " -> (no answer)"),
            };
        }
        text
    }
}

impl Log {
    fn push(&mut self, line: Line) -> Asked {
        if self.lines.len() == KEPT {
            self.lines.pop_front();
            self.gone += 1;
        }
        self.lines.push_back(line);
        Asked(self.gone + self.lines.len() - 1)
    }

    /// A short name for an owner.
    fn name(&mut self, owner: Owner) -> String {
        let number = match self.owners.iter().position(|known| *known == owner) {
            Some(number) => number,
            None => {
                self.owners.push(owner);
                self.owners.len() - 1
            }
        };
        format!("owner {}", number + 1)
    }
}
