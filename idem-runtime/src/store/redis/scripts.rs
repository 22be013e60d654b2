//! The scripts that restate the protocol on the server, and how they are asked.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, Script, cmd};

/// A script and its digest.
pub(super) struct Stored {
    script: Script,
    body: &'static str,
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {$(
        pub(super) static $name: LazyLock<Stored> = LazyLock::new(|| {
            let body = include_str!(concat!("scripts/", $file));
            Stored { script: Script::new(body), body }
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

impl Stored {
    /// Calls it for one key. The arguments are the caller's to add.
    pub(super) fn call(&'static self, key: &[u8], room: usize) -> Cmd {
        let mut call = Cmd::with_capacity(8, key.len() + room + 64);
        call.arg("EVALSHA").arg(self.script.get_hash()).arg(1).arg(key);
        call
    }

    /// Loads it, where the server does not know it.
    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(self.body);
        load
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

    pub(super) fn of(script: &'static Stored, command: Cmd) -> Self {
        Self { command: Arc::new(command), script: Some(script) }
    }
}
