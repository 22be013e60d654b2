//! Prints tables for people and JSON for programs.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};

use idem_operate_kit::text::safe;
use idem_operate_kit::{Error, Kind};
use serde_json::Value;

use super::end::Answer;

/// Where a command prints to.
pub(crate) struct Output {
    to: BufWriter<Stdout>,
    json: bool,
    must_arrive: bool,
    is_closed: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { to: BufWriter::new(io::stdout()), json, must_arrive: false, is_closed: false }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Notes that the command changes the store. From now on, a failure to print is an error, even if the
    /// reader of the output has read enough.
    pub(crate) const fn must_arrive(&mut self) {
        self.must_arrive = true;
    }

    /// Whether the command ended only because its reader, such as `head`, has read enough.
    pub(crate) const fn is_enough(&self) -> bool {
        self.is_closed && !self.must_arrive
    }

    fn print_error(&mut self, error: &io::Error) -> Error {
        self.is_closed |= error.kind() == io::ErrorKind::BrokenPipe;
        Error::new(Kind::Unusable, format!("cannot print: {error}"))
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.to.get_ref().is_terminal()
    }

    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Answer<()> {
        writeln!(self.to, "{}", text.as_ref()).map_err(|error| self.print_error(&error))
    }

    pub(crate) fn text(&mut self, text: &str) -> Answer<()> {
        self.to.write_all(text.as_bytes()).map_err(|error| self.print_error(&error))
    }

    pub(crate) fn flush(&mut self) -> Answer<()> {
        self.to.flush().map_err(|error| self.print_error(&error))
    }

    /// Prints an outcome, as a JSON object or in words.
    pub(crate) fn outcome(&mut self, object: &Value, words: String) -> Answer<()> {
        let text = if self.json { object.to_string() } else { words };
        self.line(text)
    }

    /// Prints objects: as JSON with one object per line, or as a table of these fields.
    pub(crate) fn objects<const N: usize>(&mut self, fields: [&str; N], objects: &[Value]) -> Answer<()> {
        if self.json {
            return objects.iter().try_for_each(|object| self.line(object.to_string()));
        }
        let cell = |value: &Value| match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => safe(text),
            value => value.to_string(),
        };
        let rows: Vec<_> = objects.iter().map(|object| fields.map(|field| cell(&object[field]))).collect();
        self.table(fields.map(str::to_uppercase).each_ref().map(String::as_str), &rows)
    }

    /// Prints columns that are as wide as their longest text, aligned to the left.
    pub(crate) fn table<const N: usize>(&mut self, head: [&str; N], rows: &[[String; N]]) -> Answer<()> {
        let mut widths = head.map(|name| name.chars().count());
        for row in rows {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = (*width).max(text.chars().count());
            }
        }
        self.row(&widths, head)?;
        rows.iter().try_for_each(|row| self.row(&widths, row.each_ref().map(String::as_str)))
    }

    fn row<const N: usize>(&mut self, widths: &[usize; N], row: [&str; N]) -> Answer<()> {
        let mut line = String::new();
        for (width, text) in widths.iter().zip(row) {
            line += text;
            line.extend(std::iter::repeat_n(' ', width - text.chars().count() + 2));
        }
        self.line(line.trim_end())
    }
}
