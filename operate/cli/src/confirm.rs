//! Asks before an action that cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use super::end::{Answer, End, Trouble};

#[derive(Args)]
pub(crate) struct Confirm {
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Confirm {
    /// Asks, unless `--yes` is given. Without a terminal it cannot ask, and the command changes nothing.
    pub(crate) fn ask(&self, what: &str) -> Answer<()> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            let text =
                format!("{what} There is no terminal to confirm this: give `--yes`. Nothing was done.");
            return Err(Trouble::new(End::Unconfirmed, text));
        }
        let mut asked = io::stderr().lock();
        write!(asked, "{what} Type yes to continue: ")?;
        asked.flush()?;
        let mut said = String::new();
        io::stdin().lock().read_line(&mut said).map_err(|error| Trouble::input(&error))?;
        match said.trim() {
            "yes" | "y" => Ok(()),
            _ => Err(Trouble::new(End::Unconfirmed, "nothing was done")),
        }
    }
}
