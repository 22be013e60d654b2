//! The events that the engine emits, as a subscriber writes them. The tests of several crates use this file.
#![allow(dead_code, unreachable_pub)]

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

/// The events of this thread since this value was made.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<u8>>>);

impl io::Write for Events {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Events {
    pub fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        Self::with(Level::DEBUG, FmtSpan::NONE)
    }

    /// Starts to collect the events up to this level, and these events of spans.
    pub fn with(level: Level, spans: FmtSpan) -> (Self, tracing::subscriber::DefaultGuard) {
        let events = Self::default();
        let writer = events.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(level)
            .with_span_events(spans)
            .with_writer(move || writer.clone())
            .finish();
        (events, tracing::subscriber::set_default(subscriber))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The level, name and reason of each event.
    pub fn all(&self) -> Vec<[String; 3]> {
        let lines = self.lines().into_iter().filter(|line| line["target"] == "idem");
        lines
            .map(|line| {
                let field = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
                [line["level"].as_str().unwrap().to_owned(), field("event"), field("reason")]
            })
            .collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.all().into_iter().map(|[_, name, _]| name).collect()
    }

    /// The level and reason of the only event with this name.
    pub fn only(&self, name: &str) -> [String; 2] {
        let mut found = self.all().into_iter().filter(|[_, event, _]| event == name);
        let [level, _, reason] = found.next().unwrap_or_else(|| panic!("no {name} in {:?}", self.all()));
        assert!(found.next().is_none(), "{name} twice in {:?}", self.all());
        [level, reason]
    }
}
