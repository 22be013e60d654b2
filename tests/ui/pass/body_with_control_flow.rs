//! `?`, early returns, loops, labels, nested functions and closures.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{input}", store = store)]
async fn parse(store: &MemoryStore, input: &str) -> Result<u64, Error> {
    #![allow(clippy::needless_return)]
    fn double(number: u64) -> u64 {
        number * 2
    }
    async fn nested(number: u64) -> Result<u64, Error> {
        Ok(number)
    }
    let mut total = 0;
    'lines: for line in input.lines() {
        let Ok(number) = line.parse::<u64>() else { continue 'lines };
        if number == 0 {
            return Ok(0);
        }
        total += nested(double(number)).await?;
    }
    let add = |number| number + total;
    return Ok(add(1));
}

pub(super) fn main() {
    drop(parse(&MemoryStore::new(), "1"));
}
