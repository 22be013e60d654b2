// option_colon
#[idempotent(ttl: "24h", key = "{id}", store = store)]
//~ error: expected `ttl = ..`, and `,` before the next option
//~   --> :

// option_detach_with_borrowed_arguments
#[idempotent(key = "{id}", store = self.0, detach)]
async fn charge(&self, id: Option<&str>, _name: std::borrow::Cow<'_, str>) -> Result<u8, idem::Error> {}
//~ error: a detached body outlives its caller and cannot borrow: take this by value, as an `Arc`, a clone or an owned type
//~   --> &self
//~ error: a detached body outlives its caller and cannot borrow: take this by value, as an `Arc`, a clone or an owned type
//~   --> Option<&str>
//~ error: a detached body outlives its caller and cannot borrow: take this by value, as an `Arc`, a clone or an owned type
//~   --> std::borrow::Cow<'_, str>

// option_in_parentheses
#[idempotent(ttl("24h"), key = "{id}", store = store)]
//~ error: missing the value
//~ help: write `= ..` after the name
//~   --> ttl("24h")

// option_key_without_name
#[idempotent("{id}", store = store)]
//~ error: an option begins with its name: if this is the key, write `key = ` before it
//~   --> "{id}"

// option_malformed_beside_a_faulty_one
#[idempotent(key = "{id}" "x", ttl = "30", store = store)]
//~ error: expected `key = ..`, and `,` before the next option
//~   --> "x"
//~ error: `30` has no unit: write `30s` for seconds, or `ms`, `m`, `h`, `d`, `w`
//~   --> "30"

// option_missing_all
#[idempotent()]
//~ error: missing `key` and `store`
//~ help: write what tells one call from another and where results are kept, such as `#[idempotent(key = "id/{id}", store = app.store)]`
//~   --> the attribute

// option_several_faults
#[idempotent(key = "{di}", tll = "1h", ttl = "1M", lease = 5, max_attempts = 0, on_crash = "retry")]
//~ error: unknown option `tll`: did you mean `ttl`?
//~ help: the options are `key`, `store`, `ttl`, `lease`, `scope`, `fingerprint`, `wait`, `terminal`, `on_crash`, `recover`, `max_attempts`, `timeout`, `retry_after`, `record_if`, `store_timeout`, `key_fn`, `fail_open`, `detach`, `missing_key`, `transaction` and `crate`
//~   --> tll
//~ error: `1M` may mean minutes or months: write `1m` for minutes, and months as days
//~   --> "1M"
//~ error: expected a duration such as "30s", or an expression of type `Duration`
//~   --> 5
//~ error: expected a whole number above 0, such as `max_attempts = 5`
//~   --> 0
//~ error: must be one of "rerun" and "in_doubt"
//~   --> "retry"
//~ error: missing `store`
//~ help: write where results are kept, such as `store = app.store`
//~   --> the attribute
//~ error: in `{di}`: `charge` has no argument `di`: did you mean `id`? Its arguments are `store` and `id`
//~   --> "{di}"

// option_twice
#[idempotent(ttl = "1h", ttl = "2h", key = "{id}", store = store)]
//~ error: `ttl` is written twice: keep one
//~   --> ttl

// option_unknown_and_unlike_any
#[idempotent(colour = "red", key = "{id}", store = store)]
//~ error: unknown option `colour`
//~ help: the options are `key`, `store`, `ttl`, `lease`, `scope`, `fingerprint`, `wait`, `terminal`, `on_crash`, `recover`, `max_attempts`, `timeout`, `retry_after`, `record_if`, `store_timeout`, `key_fn`, `fail_open`, `detach`, `missing_key`, `transaction` and `crate`
//~   --> colour

// option_with_nothing_after_equals
#[idempotent(ttl = , key = "{id}", store = store)]
//~ error: expected an expression
//~   --> ,

// option_without_value
#[idempotent(ttl, key = "{id}", store = store)]
//~ error: missing the value
//~ help: write `= ..` after the name
//~   --> ttl

// option_word_with_value
#[idempotent(fail_open = true, key = "{id}", store = store)]
//~ error: this option takes no value: write its name alone, or leave it out
//~   --> fail_open = true
