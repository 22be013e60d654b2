//! The scripts that restate the protocol on the server, and requests that call them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use redis::{Arg, Cmd, Script, ToRedisArgs, cmd};

use super::fields;

/// A script: its digest and its text.
pub(super) struct Stored {
    script: Script,
    body: String,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {$(
        pub(super) static $name: LazyLock<Stored> = LazyLock::new(|| {
            let text = include_str!(concat!("scripts/", $file));
            let body = with_numbers(&text.replace("WRITE_UNCHANGED", include_str!("scripts/unchanged.lua").trim_end()));
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
    READ = "read.lua";
}

/// A script in which numbers replace the names of the layout, so that a call does not have to look up names.
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
    /// Builds a request that calls the script for one key with these arguments. The largest argument has
    /// about `room` bytes.
    pub(super) fn call(&'static self, key: &[u8], room: usize, arguments: impl ToRedisArgs) -> Request {
        let mut call = Cmd::with_capacity(8, key.len() + room + 224);
        call.arg("EVALSHA").arg(self.script.get_hash()).arg(1).arg(key).arg(arguments);
        Request { command: Arc::new(call), script: Some(self) }
    }
}

/// One request, which can be sent several times.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) command: Arc<Cmd>,
    /// The script that the request calls, if any.
    script: Option<&'static Stored>,
}

impl Request {
    pub(super) fn plain(command: Cmd) -> Self {
        Self { command: Arc::new(command), script: None }
    }

    /// A read of the key with this name.
    pub(super) fn get(name: &[u8]) -> Self {
        let mut get = Cmd::with_capacity(2, name.len() + 3);
        get.arg("GET").arg(name);
        Self::plain(get)
    }

    /// The same call with the text of the script, for a server that does not know the script. After this
    /// call, that server knows the script, but other servers do not.
    pub(super) fn with_body(self) -> Self {
        let Some(script) = self.script else { return self };
        let mut call = cmd("EVAL");
        call.arg(&script.body);
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                call.arg(bytes);
            }
        }
        Self::plain(call)
    }

    /// The approximate size of the request, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |argument: Arg<&[u8]>| if let Arg::Simple(bytes) = argument { bytes.len() } else { 0 };
        self.command.args_iter().map(bytes).sum()
    }
}
