//! Files to which several processes append lines.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// The length of each line with its end, in bytes. It divides the size of a page, so no line crosses the end
/// of a page of the file. Otherwise a process that is killed while it writes could leave only the first part
/// of its line. The next process would then write its line after that part.
const LINE: usize = 64;

/// A folder with files to which several processes append lines.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// The ledger in this folder.
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Adds a line, in one write, so that lines of several processes do not mix.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn add(&self, file: &str, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.0.join(file))?;
        file.write_all(format!("{line:<width$}\n", width = LINE - 1).as_bytes())
    }

    /// All lines; none if nothing was written.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(&self, file: &str) -> io::Result<Vec<String>> {
        match std::fs::read_to_string(self.0.join(file)) {
            Ok(text) => Ok(text.lines().map(|line| line.trim_end().to_owned()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
