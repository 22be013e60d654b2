//! The scripts that restate the protocol on the server, and how they are asked.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use redis::{Arg, Cmd, Script, cmd};

use super::fields;

/// A script and its digest.
pub(super) struct Stored {
    script: Script,
    body: String,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {$(
        pub(super) static $name: LazyLock<Stored> = LazyLock::new(|| {
            let body = with_numbers(include_str!(concat!("scripts/", $file)));
            Stored { script: Script::new(&body), body }
        });
    )*};
}

scripts! {
    CLAIM = "claim.lua";
    RENEW = "renew.lua";
    RECORD_STEP = "record_step.lua";
    COMPLETE = "complete.lua";
    RELEASE = "release.lua";
    RESOLVE = "resolve.lua";
}

/// A script with the numbers of the layout in the place of their names, so that a call does not pay for names.
fn with_numbers(script: &str) -> String {
    let names: HashMap<String, String> = fields::names().into_iter().collect();
    let is_of_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut text = String::with_capacity(script.len());
    let mut rest = script;
    while !rest.is_empty() {
        let word = rest.split(|character| !is_of_word(character)).next().unwrap_or_default();
        text.push_str(names.get(word).map_or(word, String::as_str));
        rest = &rest[word.len()..];
        let between = rest.find(is_of_word).unwrap_or(rest.len());
        text.push_str(&rest[..between]);
        rest = &rest[between..];
    }
    text
}

impl Stored {
    /// Calls it for one key. The arguments are the caller's to add.
    pub(super) fn call(&'static self, key: &[u8], room: usize) -> Cmd {
        let mut call = Cmd::with_capacity(8, key.len() + room + 64);
        call.arg("EVALSHA").arg(self.script.get_hash()).arg(1).arg(key);
        call
    }
}

/// One request, as often as it is asked.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) command: Arc<Cmd>,
    /// The script it calls, if it calls one.
    pub(super) script: Option<&'static Stored>,
}

impl Request {
    pub(super) fn plain(command: Cmd) -> Self {
        Self { command: Arc::new(command), script: None }
    }

    /// The same call with the script itself, for a server that does not know it: the server that is asked, and no
    /// other, knows it then.
    pub(super) fn with_body(&self) -> Option<Cmd> {
        let mut call = cmd("EVAL");
        call.arg(&self.script?.body);
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                call.arg(bytes);
            }
        }
        Some(call)
    }

    /// About how many bytes it is.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |argument: Arg<&[u8]>| if let Arg::Simple(bytes) = argument { bytes.len() } else { 0 };
        self.command.args_iter().map(bytes).sum()
    }

    pub(super) fn of(script: &'static Stored, command: Cmd) -> Self {
        Self { command: Arc::new(command), script: Some(script) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_layout_in_a_script_is_a_number() {
        for stored in [&CLAIM, &RENEW, &RECORD_STEP, &COMPLETE, &RELEASE, &RESOLVE] {
            for line in stored.body.lines().filter(|line| !line.trim_start().starts_with("--")) {
                // What is quoted is a command or an option.
                let code: String = line.split('\'').step_by(2).collect::<Vec<_>>().join(" ");
                let words =
                    code.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
                for word in words.filter(|word| !["KEYS", "ARGV"].contains(word)) {
                    let is_name =
                        word.len() > 1 && word.starts_with(|first: char| first.is_ascii_uppercase());
                    assert!(!is_name, "`{word}` has no number: {line}");
                }
            }
        }
    }

    #[test]
    fn a_name_within_a_longer_one_is_left_alone() {
        assert_eq!(with_numbers("x_HEADER, HEADER2 + HEADER"), "x_HEADER, HEADER2 + 80");
    }
}
