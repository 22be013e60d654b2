//! Functions with different bodies: one panics, one has control flow, one is on one line, one calls itself,
//! and one expects lints.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn panics(store: &MemoryStore, id: u8) -> Result<u8, Error> {
    panic!("{id}")
}

#[idempotent(key = "{input}", store = store)]
async fn parse(store: &MemoryStore, input: &str) -> Result<u64, Error> {
    #![allow(clippy::needless_return)]
    fn double(number: u64) -> u64 {
        number * 2
    }
    let mut total = 0;
    'lines: for line in input.lines() {
        let Ok(number) = line.parse::<u64>() else { continue 'lines };
        if number == 0 {
            return Ok(0);
        }
        total += std::future::ready(Ok::<u64, Error>(double(number))).await?;
    }
    let add = |number| number + total;
    return Ok(add(1));
}

#[rustfmt::skip]
#[deny(unused_braces)]
#[idempotent(key = "{id}", store = store)]
async fn on_one_line(store: &MemoryStore, id: u64) -> Result<u64, Error> { Ok(id) }

/// The name of the function and the names of its arguments are keywords.
#[idempotent(key = "{type}", store = r#ref)]
async fn r#loop(r#ref: &MemoryStore, r#type: u64) -> Result<u64, Error> {
    if r#type == 0 { Ok(0) } else { Box::pin(r#loop(r#ref, r#type - 1)).await }
}

#[idempotent(key = "{id}", store = store)]
async fn expecting(
    store: &MemoryStore,
    id: u64,
    #[expect(unused_variables)] unused: u64,
) -> Result<u64, Error> {
    #[expect(unused_variables)]
    let also_unused = 1;
    Ok(id)
}
