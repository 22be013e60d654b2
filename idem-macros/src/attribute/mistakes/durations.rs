// option_lease_too_long
#[idempotent(lease = "2d", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: a lease is how long a crashed owner keeps everybody waiting, and is renewed while the body lives: make it seconds or minutes, at most "24h"; how long the result is kept is `ttl`
//~   --> "2d"

// option_ttl_ambiguous
#[idempotent(ttl = "1M", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `1M` may mean minutes or months: write `1m` for minutes, and months as days
//~   --> "1M"

// option_ttl_bool
#[idempotent(ttl = true, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: expected a duration such as "30s", or an expression of type `Duration`
//~   --> true

// option_ttl_empty
#[idempotent(ttl = "", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this duration is empty: write whole numbers with `ms`, `s`, `m`, `h`, `d` or `w`, such as "30s" or "1h 30m"
//~   --> ""

// option_ttl_fraction
#[idempotent(ttl = "1.5h", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `1.5h` has a fraction or a separator: write whole numbers with `ms`, `s`, `m`, `h`, `d` or `w`, such as "30s" or "1h 30m"
//~   --> "1.5h"

// option_ttl_months
#[idempotent(ttl = "2 months", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `2months` has no fixed length: write it in days, such as "30d"
//~   --> "2 months"

// option_ttl_negative
#[idempotent(ttl = "-5s", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: a duration cannot be negative
//~   --> "-5s"

// option_ttl_negative_number
#[idempotent(ttl = -5, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: expected a duration such as "30s", or an expression of type `Duration`
//~   --> - 5

// option_ttl_number
#[idempotent(ttl = 60, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `60` has no unit: write `"60s"` for seconds, or an expression of type `Duration`
//~   --> 60

// option_ttl_overflowing
#[idempotent(ttl = "101 years", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `101years` has no fixed length: write it in days, such as "30d"
//~   --> "101 years"

// option_ttl_too_long
#[idempotent(ttl = "200000w", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this duration is longer than 100 years
//~   --> "200000w"

// option_ttl_unknown_unit
#[idempotent(ttl = "3 fortnights", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: unknown unit `fortnights`: use ms, s, m, h, d or w
//~   --> "3 fortnights"

// option_ttl_without_unit
#[idempotent(ttl = "60", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `60` has no unit: write `60s` for seconds, or `ms`, `m`, `h`, `d`, `w`
//~   --> "60"

// option_ttl_words
#[idempotent(ttl = "10 minutes", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: unknown unit `minutes`: use ms, s, m, h, d or w
//~ help: write `10m`
//~   --> "10 minutes"

// option_ttl_zero
#[idempotent(ttl = "0s", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this duration is zero: give it a length, such as "30s"
//~   --> "0s"

// option_wait_without_unit
#[idempotent(wait = 5, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `5` has no unit: write `"5s"` for seconds, or an expression of type `Duration`
//~   --> 5
