//! The options of every command that carries out a person's decision: who decides and why, and whether to
//! ask.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use idem_operate_kit::audit::Trail;
use idem_operate_kit::{Error, Kind};

use super::end::{Answer, input_error};

/// Who decides and why, and whether to ask.
#[derive(Args)]
pub(crate) struct Decider {
    /// Your name, for the audit trail; the user of this machine unless given
    #[arg(long, env = "IDEM_OPERATOR", value_name = "NAME")]
    by: Option<String>,
    /// The reason, for the audit trail: a ticket, or what the other side said
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Decider {
    pub(crate) fn trail(&self) -> Trail {
        let user = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        let by = self.by.clone().or_else(user).unwrap_or_else(|| "unknown".to_owned());
        Trail { by, reason: self.reason.clone() }
    }

    /// Asks the person to confirm, unless `--yes` is given. Without a terminal, nobody can answer, so the
    /// command changes nothing.
    pub(crate) fn ask(&self, what: &str) -> Answer<()> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            let text =
                format!("{what} There is no terminal to confirm this: give `--yes`. Nothing was done.");
            return Err(Error::new(Kind::Unconfirmed, text));
        }
        let mut line = String::new();
        write!(io::stderr(), "{what} Type yes to continue: ")
            .and_then(|()| io::stdin().read_line(&mut line))
            .map_err(|error| input_error(&error))?;
        match line.trim() {
            "yes" | "y" => Ok(()),
            _ => Err(Error::new(Kind::Unconfirmed, "nothing was done")),
        }
    }
}
