//! The scripts that restate the protocol on the server, and how they are asked.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use redis::{Arg, Cmd, Script, cmd};

use super::fields;

/// A script and its digest.
pub(super) struct Stored {
    script: Script,
    body: String,
    /// What it is called in a lot.
    letter: &'static str,
}

impl Stored {
    fn new(body: String, letter: &'static str) -> Self {
        Self { script: Script::new(&body), body, letter }
    }
}

macro_rules! scripts {
    ($($name:ident = $letter:literal, $file:literal;)*) => {
        $(
            pub(super) static $name: LazyLock<Stored> =
                LazyLock::new(|| Stored::new(with_numbers(include_str!(concat!("scripts/", $file))), $letter));
        )*
        /// Those of one record.
        static ALL: [&LazyLock<Stored>; [$($letter),*].len()] = [$(&$name),*];
    };
}

scripts! {
    CLAIM = "C", "claim.lua";
    RENEW = "N", "renew.lua";
    RECORD_STEP = "S", "record_step.lua";
    COMPLETE = "D", "complete.lua";
    RELEASE = "L", "release.lua";
    RESOLVE = "V", "resolve.lua";
}

/// What reads the server's clock in a script.
const TIME: &str = "redis.call('TIME')";

/// All scripts as one, for many records: each is a function in it, under its letter, and all have one time.
static LOT: LazyLock<Stored> = LazyLock::new(|| {
    let mut body = format!("local time, scripts = {TIME}, {{}}\n");
    for stored in ALL {
        let Stored { body: of_one, letter, .. } = &**stored;
        body += &format!("scripts.{letter} = function(KEYS, ARGV)\n{}end\n", of_one.replace(TIME, "time"));
    }
    Stored::new(body + include_str!("scripts/lot.lua"), "")
});

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
    /// Whether it is a `GET` of a record that may be merged with others.
    is_read: bool,
}

impl Request {
    pub(super) fn plain(command: Cmd) -> Self {
        Self { command: Arc::new(command), script: None, is_read: false }
    }

    /// A `GET` that finds nothing where the key holds a value of another type.
    pub(super) fn read(key: &[u8]) -> Self {
        let mut get = cmd("GET");
        get.arg(key);
        Self { is_read: true, ..Self::plain(get) }
    }

    /// Whether it may go with others, in any order with them.
    pub(super) const fn goes_in_lots(&self) -> bool {
        self.script.is_some() || self.is_read
    }

    /// The key of one that only reads.
    pub(super) fn key_to_read(&self) -> Option<&[u8]> {
        if self.is_read { self.simple_arguments().nth(1) } else { None }
    }

    fn simple_arguments(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().map(|argument| if let Arg::Simple(bytes) = argument { bytes } else { &[] })
    }

    /// The same call with the script itself, for a server that does not know it: the server that is asked, and no
    /// other, knows it then.
    pub(super) fn with_body(&self) -> Option<Cmd> {
        let mut call = cmd("EVAL");
        call.arg(&self.script?.body);
        for argument in self.simple_arguments().skip(2) {
            call.arg(argument);
        }
        Some(call)
    }

    /// About how many bytes it is.
    pub(super) fn bytes(&self) -> usize {
        self.simple_arguments().map(<[u8]>::len).sum()
    }

    pub(super) fn of(script: &'static Stored, command: Cmd) -> Self {
        Self { command: Arc::new(command), script: Some(script), is_read: false }
    }
}

/// One call for all of these, which call scripts; its answer is an array of theirs.
pub(super) fn lot(requests: &[&Request]) -> Option<Request> {
    if requests.is_empty() {
        return None;
    }
    let bytes: usize = requests.iter().map(|request| request.bytes()).sum();
    let mut call = Cmd::with_capacity(requests.len() * 8, bytes + 128);
    call.arg("EVALSHA").arg(LOT.script.get_hash()).arg(requests.len());
    // Of `EVALSHA`, digest, 1, key and arguments.
    for request in requests {
        call.arg(request.simple_arguments().nth(3));
    }
    for request in requests {
        let arguments = request.simple_arguments().skip(4);
        call.arg(request.script.map(|script| script.letter)).arg(request.simple_arguments().count() - 4);
        for argument in arguments {
            call.arg(argument);
        }
    }
    Some(Request::of(&LOT, call))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_layout_in_a_script_is_a_number() {
        for stored in ALL.into_iter().chain([&LOT]) {
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
    fn the_scripts_of_a_lot_read_no_clock_of_their_own() {
        assert_eq!(LOT.body.matches(TIME).count(), 1);
        assert!(ALL.into_iter().filter(|stored| stored.body.contains(TIME)).count() > 4);
    }

    #[test]
    fn a_name_within_a_longer_one_is_left_alone() {
        assert_eq!(with_numbers("x_HEADER, HEADER2 + HEADER"), "x_HEADER, HEADER2 + 80");
    }
}
