// option_transaction_by_shared_reference
#[idempotent(key = "{id}", store = store, transaction = tx)]
async fn pay(store: &MemoryStore, tx: &Vec<u8>, id: u64) -> Result<u8, Error> {}
//~ error: the transaction stays the caller's, who commits it: take `tx` by `&mut`, such as `tx: &mut Transaction<'_, Postgres>`
//~   --> tx

// option_transaction_expression
#[idempotent(key = "{id}", store = store, transaction = app.tx)]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {}
//~ error: `transaction` names the argument that carries the caller's transaction: write its name alone, such as `transaction = tx`
//~   --> app.tx

// option_transaction_unknown
#[idempotent(key = "{id}", store = store, transaction = txn)]
async fn pay(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {}
//~ error: `pay` has no argument `txn`: did you mean `tx`? Its arguments are `store`, `tx` and `id`
//~   --> txn

// option_transaction_beside_all_that_contradict_it
#[idempotent(key = "{id}", store = store, transaction = tx, detach, fail_open, on_crash = "in_doubt", max_attempts = 2, timeout = "1m", store_timeout = "1s", retry_after = "1s", record_if = is_final, recover = find, wait = "1h")]
async fn pay(store: PostgresStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {}
//~ error: a detached body outlives its caller and cannot borrow: take this by value, as an `Arc`, a clone or an owned type
//~   --> &mut Vec<u8>
//~ error: `fail_open` contradicts `on_crash = "in_doubt"`: one runs the body unprotected, the other promises to run it at most once; keep one of them
//~   --> fail_open
//~ error: `fail_open` contradicts `transaction`: one runs the body without a claim, the other commits both together; leave one out
//~   --> fail_open
//~ error: `detach` contradicts `transaction`: a detached body outlives its caller, and the transaction is the caller's; leave one out
//~   --> detach
//~ error: `on_crash` contradicts `transaction`: what is not committed leaves no doubt; leave one out
//~   --> on_crash
//~ error: `recover` contradicts `transaction`: what is not committed leaves nothing to recover; leave one out
//~   --> recover
//~ error: `max_attempts` contradicts `transaction`: an attempt that is rolled back leaves no trace; leave one out
//~   --> max_attempts
//~ error: `timeout` contradicts `transaction`: an attempt that is rolled back leaves no trace; leave one out
//~   --> timeout
//~ error: `store_timeout` contradicts `transaction`: the statements run on the caller's connection, whose own timeout counts; leave one out
//~   --> store_timeout
//~ error: `retry_after` contradicts `transaction`: an attempt that is rolled back leaves no trace; leave one out
//~   --> retry_after
//~ error: `record_if` contradicts `transaction`: effects would be committed without a record of them; leave one out
//~   --> record_if
//~ error: `wait` is longer than the lease, and it holds the caller's transaction open: wait less, or set a longer `lease`
//~   --> wait
