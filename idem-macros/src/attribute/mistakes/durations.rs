// option_lease_too_long
#[idempotent(lease = "2d", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: a lease is how long a crashed owner keeps everybody waiting, and is renewed while the body lives: make it seconds or minutes, at most "24h"; how long the result is kept is `ttl`
//~   --> "2d"
