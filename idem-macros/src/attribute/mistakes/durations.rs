// option_lease_too_long
#[idempotent(lease = "2d", key = "{id}", store = store)]
//~ error: a lease is how long a crashed owner keeps everybody waiting, and is renewed while the body lives: make it seconds or minutes, at most "24h"; how long the result is kept is `ttl`
//~   --> "2d"
