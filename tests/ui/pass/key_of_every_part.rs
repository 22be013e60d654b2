//! Each type of the standard library that is a key part.
use idem::{Error, MemoryStore, idempotent};

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

type Parts<'a> = (bool, char, &'a str, String, Box<str>);
type More<'a> = (Arc<str>, Rc<u8>, Cow<'a, str>, NonZeroU32, i128);

#[idempotent(key = (&a.0, a.1, a.2, a.3, a.4, b.0, b.1, b.2, b.3, b.4), store = store)]
async fn charge(store: &MemoryStore, a: Parts<'_>, b: More<'_>) -> Result<usize, Error> {
    Ok(a.3.len() + b.2.len())
}

#[idempotent(key = "{pair}", store = store)]
async fn refund(store: &MemoryStore, pair: (u8, (String, char))) -> Result<u8, Error> {
    Ok(pair.0)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(refund(&store, (1, (String::new(), 'a'))));
    let b = ("".into(), Rc::new(1), "".into(), NonZeroU32::MIN, 1);
    drop(charge(&store, (true, 'a', "", String::new(), "".into()), b));
}
