//! Constants and statics of the user's module whose names a macro might use.
#![allow(non_upper_case_globals)]
use idem::{Error, MemoryStore, Recovery, idempotent};

const key: &str = "key";
const body: u8 = 1;
const result: Option<u8> = None;
const codec: u8 = 2;
static operation: u8 = 3;
const fingerprint: u8 = 4;
const recovery: u8 = 5;
const recovering: u8 = 6;
const recovered: Option<u8> = None;
static store: std::sync::LazyLock<MemoryStore> = std::sync::LazyLock::new(MemoryStore::new);
const never: u8 = 7;
const call: u8 = 8;
const entered: u8 = 9;
const running: u8 = 10;
const ended: u8 = 11;

struct SITE;

#[idempotent(key = "{id}", recover = find, fingerprint = id, store = store)]
async fn charge(id: u8) -> Result<u8, Error> {
    let _ = (key, result, operation, fingerprint, recovery, recovering, recovered, never, call);
    let _ = (entered, running, ended, SITE);
    Ok(id + body + codec)
}

async fn find(_: &Recovery, _: &u8) -> Result<Option<u8>, Error> {
    Ok(None)
}
