// option_crate_relative
#[idempotent(crate = idem, key = "{id}", store = store)]
//~ error: `crate` is an absolute path to the library: write `::name`, `crate::..` or `$crate::..`
//~   --> idem

// option_fingerprint_unknown
#[idempotent(fingerprint = (id, amount), key = "{id}", store = store)]
//~ error: `charge` has no argument `amount`; its arguments are `store` and `id`
//~   --> amount

// option_max_attempts_text
#[idempotent(max_attempts = "5", key = "{id}", store = store)]
//~ error: expected a whole number above 0, such as `max_attempts = 5`
//~   --> "5"

// option_on_crash_no_text
#[idempotent(on_crash = rerun, key = "{id}", store = store)]
//~ error: must be one of "rerun" and "in_doubt"
//~   --> rerun

// option_recover_called
#[idempotent(recover = find(id), key = "{id}", store = store)]
//~ error: expected a function
//~ help: write its path without quotes and arguments, or a closure
//~   --> find(id)

// option_recover_of_unnamed_arguments
#[idempotent(recover = find, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, (id, _): (u64, u8), _: u8) -> Result<u64, Error> {}
//~ error: `recover` is given each argument by reference, so each needs a name: write one here, and take it apart in the body
//~   --> (id, _)
//~ error: `recover` is given each argument by reference, so each needs a name: write one here, and take it apart in the body
//~   --> _

// option_scope_blank
#[idempotent(scope = " ", key = "{id}", store = store)]
//~ error: this scope is blank: give the operation a name, such as "payments.charge"
//~   --> " "

// option_scope_expression
#[idempotent(scope = NAME, key = "{id}", store = store)]
//~ error: a scope is a fixed name, as it must not change: write text, such as "payments.charge"
//~   --> NAME

// option_scope_template
#[idempotent(key = "{id}", scope = "{tenant}/charge", store = store)]
//~ error: a scope is a fixed name, not a template
//~ help: what tells one call from another goes into `key`
//~   --> "{tenant}/charge"

// option_scope_too_long
#[idempotent(scope = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", key = "{id}", store = store)]
//~ error: this scope is 513 bytes long, and 512 is the most
//~   --> "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// option_missing_key_misspelled
#[idempotent(key = "{id}", missing_key = "rejct", store = store)]
//~ error: must be one of "reject" and "run"
//~   --> "rejct"

// option_fingerprint_closure
#[idempotent(key = "{id}", fingerprint = |id| id, store = store)]
//~ error: a fingerprint is a value, not code that runs later: write the expression itself
//~   --> |id| id

// option_key_fn_itself
#[idempotent(key = "{id}", key_fn = charge, store = store)]
//~ error: expected the name of the function to be made, such as `key_fn = charge_key`
//~   --> charge

// option_retry_after_range
#[idempotent(key = "{id}", retry_after = "5m..1s", store = store)]
//~ error: expected a range that begins with the shorter duration, such as "1s..5m"
//~   --> "5m..1s"

// option_store_timeout_zero
#[idempotent(key = "{id}", store_timeout = "0s", store = store)]
//~ error: this duration is zero: give it a length, such as "30s"
//~   --> "0s"

// key_constant_field_called_like_an_argument
#[idempotent(key = CONFIG.id, store = store)]
//~ error: `charge` has no argument `CONFIG`; its arguments are `store` and `id`
//~   --> CONFIG.id

// key_braces_in_braces
#[idempotent(key = "{ {id} }", store = store)]
//~ error: a `{` inside the braces around `id`: write `{id}`, or `{{` for the character itself
//~   --> "{ {id} }"

// option_fingerprint_with_a_template
#[idempotent(key = "{id}", fingerprint = (amount, "{currency}"), store = store)]
async fn charge(store: &MemoryStore, id: u8, amount: u8, currency: &str) -> Result<u8, idem::Error> {}
//~ error: text in a fingerprint is taken as it is
//~ help: write the place without quotes
//~   --> "{currency}"

// option_fingerprint_of_nested_constants
#[idempotent(key = "{id}", fingerprint = (("v2", VERSION), (1)), store = store)]
//~ error: this fingerprint is the same for every call
//~ help: name what must not change, such as `fingerprint = id`
//~   --> (("v2", VERSION), (1))

// option_recover_of_a_conditional_argument
#[idempotent(recover = find, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64, #[cfg(feature = "audit")] audit: &Audit) -> Result<u64, Error> {}
//~ error: `recover` takes all arguments, and a `cfg` may remove this one: put the `cfg` on the function
//~   --> #[cfg(feature = "audit")] audit: &Audit

// option_missing_key_beside_arguments_that_are_none
#[idempotent(store = app.store)]
async fn charge(&self, id: u8, app: &App, tx: &mut Transaction) -> Result<u8, idem::Error> {}
//~ error: missing `key`
//~ help: write what tells one call from another, such as `key = "id/{id}"`
//~   --> the attribute
