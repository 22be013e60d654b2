// option_claim_durability_unknown
#[idempotent(claim_durability = "relax", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: unknown value `relax` of `claim_durability`: must be one of "full" and "relaxed"
//~ help: did you mean "relaxed"?
//~   --> "relax"

// option_claim_durability_by_another_name
#[idempotent(durability = "relaxed", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: unknown option `durability`
//~ help: did you mean `claim_durability`? The options are `key`, `store`, `ttl`, `lease`, `scope`, `fingerprint`, `wait`, `terminal`, `on_crash`, `recover`, `max_attempts`, `max_result_bytes`, `timeout`, `retry_after`, `record_if`, `upgrade`, `store_timeout`, `claim_durability`, `key_fn`, `fail_open`, `detach`, `missing_key`, `transaction` and `crate`
//~   --> durability

// option_claim_durability_and_in_doubt
#[idempotent(claim_durability = "relaxed", on_crash = "in_doubt", key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `claim_durability = "relaxed"` contradicts `on_crash = "in_doubt"`: a claim that a crash of the store's server loses lets the body start twice; leave one out
//~   --> "relaxed"

// option_claim_durability_and_max_attempts
#[idempotent(claim_durability = "relaxed", max_attempts = 3, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `claim_durability = "relaxed"` contradicts `max_attempts`: a claim that a crash of the store's server loses is an attempt that nobody counts; leave one out
//~   --> "relaxed"

// option_claim_durability_and_recover
#[idempotent(claim_durability = "relaxed", recover = look, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `claim_durability = "relaxed"` contradicts `recover`: after a crash of the store's server that loses the claim, `recover` is not called; leave one out
//~   --> "relaxed"

// option_claim_durability_and_transaction
#[idempotent(claim_durability = "relaxed", transaction = tx, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, tx: &mut Vec<u8>, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `claim_durability = "relaxed"` contradicts `transaction`: the claim is as durable as the caller's commit makes it; leave one out
//~   --> "relaxed"
