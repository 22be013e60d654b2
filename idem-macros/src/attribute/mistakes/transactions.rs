// option_transaction_by_shared_reference
#[idempotent(key = "{id}", store = store, transaction = tx)]
async fn pay(store: &MemoryStore, tx: &Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}
//~ error: the transaction stays the caller's, who commits it: take `tx` by `&mut`, such as `tx: &mut Transaction<'_, Postgres>`
//~   --> tx

// option_transaction_by_value
#[idempotent(key = "{id}", store = store, transaction = tx)]
async fn pay(store: &MemoryStore, tx: Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}
//~ error: the transaction stays the caller's, who commits it: take `tx` by `&mut`, such as `tx: &mut Transaction<'_, Postgres>`
//~   --> tx

// option_transaction_expression
#[idempotent(key = "{id}", store = store, transaction = app.tx)]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}
//~ error: `transaction` names the argument that carries the caller's transaction: write its name alone, such as `transaction = tx`
//~   --> app . tx

// option_transaction_text
#[idempotent(key = "{id}", store = store, transaction = "tx")]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}
//~ error: `transaction` names the argument that carries the caller's transaction: write its name alone, such as `transaction = tx`
//~   --> "tx"

// option_transaction_unknown
#[idempotent(key = "{id}", store = store, transaction = txn)]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}
//~ error: `pay` has no argument `txn`: did you mean `tx`? Its arguments are `store`, `tx` and `id`
//~   --> txn
