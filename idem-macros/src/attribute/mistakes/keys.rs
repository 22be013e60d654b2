// key_blank
#[idempotent(key = "  ", store = store)]
//~ error: this key is empty: write what tells one call from another, such as `key = "id/{id}"`
//~   --> "  "

// key_closure_expression
#[idempotent(key = |order: Order| order.id, store = store)]
//~ error: a key is a value, not code that runs later: write the expression itself
//~   --> |order: Order| order.id

// key_constant
#[idempotent(key = "order/42", store = store)]
//~ error: a key without `{..}` is one place: `order/42` is not a place: write an argument with fields or methods without arguments, such as `order.id`, or any expression without quotes: `key = ..`. Text alone would be the same key for every call, and the first result would be everybody's: for text with places in it, write `key = "id/{id}"`
//~   --> "order/42"

// key_constant_expression
#[idempotent(key = format!("order/{}", 42), store = store)]
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "id/{id}"`
//~   --> format!("order/{}", 42)

// key_empty_tuple
#[idempotent(key = (), store = store)]
//~ error: this key is empty: write what tells one call from another, such as `key = "id/{id}"`
//~   --> ()

// key_escaped_only
#[idempotent(key = "{{id}}", store = store)]
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "id/{id}"`; `{{` and `}}` stand for the braces themselves
//~   --> "{{id}}"

// key_no_arguments
#[idempotent(key = "{id}", store = MemoryStore::new())]
async fn charge() -> Result<u64, idem::Error> {}
//~ error: in `{id}`: `charge` has no arguments, so there is no `id`, and nothing to make a key of
//~   --> "{id}"

// key_self_without_receiver
#[idempotent(key = "{self.id}/{id}", store = store)]
//~ error: in `{self.id}`: `charge` has no `self`; its arguments are `store` and `id`
//~   --> "{self.id}/{id}"

// key_several_faults
#[idempotent(key = "{}{oder.id}/{order.id:?}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {}
//~ error: between `{}` and `{oder.id}` there is nothing, so different values could give the same key: separate them, as in `{}/{oder.id}`
//~   --> "{}{oder.id}/{order.id:?}"
//~ error: in `{}`: this names nothing: write an argument, such as `{order.id}`
//~   --> "{}{oder.id}/{order.id:?}"
//~ error: in `{oder.id}`: `charge` has no argument `oder`: did you mean `order`? Its arguments are `store` and `order`
//~   --> "{}{oder.id}/{order.id:?}"
//~ error: in `{order.id:?}`: a key has no formats, as every type has one stable rendering: write `{order.id}`
//~   --> "{}{oder.id}/{order.id:?}"

// key_unclosed
#[idempotent(key = "order/{id", store = store)]
//~ error: the `{` before `id` has no `}`: close it, or write `{{` for the character itself
//~   --> "order/{id"

// key_underscore
#[idempotent(key = "{_}", store = store)]
async fn charge(store: &MemoryStore, _: u64) -> Result<u64, idem::Error> {}
//~ error: in `{_}`: an argument bound to `_` cannot be used: give it a name in the arguments of `charge`
//~   --> "{_}"

// key_unknown_argument_in_expression
#[idempotent(key = di.number, store = store)]
//~ error: `charge` has no argument `di`: did you mean `id`? Its arguments are `store` and `id`
//~   --> di.number

// key_unknown_argument_without_braces
#[idempotent(key = "di.number", store = store)]
//~ error: a key without `{..}` is one place: `charge` has no argument `di`: did you mean `id`? Its arguments are `store` and `id`. Text alone would be the same key for every call, and the first result would be everybody's: for text with places in it, write `key = "id/{id}"`
//~   --> "di.number"

// key_template_in_a_tuple
#[idempotent(key = (id, "{store.name}"), store = store)]
//~ error: text beside other values is taken as it is
//~ help: write one template, or the place without quotes
//~   --> "{store.name}"

// key_place_as_text_in_a_tuple
#[idempotent(key = (id, "store.name"), store = store)]
//~ error: text beside other values is taken as it is
//~ help: write one template, or the place without quotes
//~   --> "store.name"
