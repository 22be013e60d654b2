//! Tests of the events that the engine emits.
#![allow(unreachable_pub)]

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// The events of this thread since this was made.
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
        let events = Self::default();
        let writer = events.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        (events, tracing::subscriber::set_default(subscriber))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The level, name and reason of each event.
    pub fn all(&self) -> Vec<[String; 3]> {
        let text = self.text();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["target"] == "idem")
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
