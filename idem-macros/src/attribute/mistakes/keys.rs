// key_await
#[idempotent(key = "{order.load().await}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: a key is made before anything is awaited: await `order.load()` at the caller and pass its value
//~   --> "{order.load().await}"

// key_blank
#[idempotent(key = "  ", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this key is empty: write what tells one call from another, such as `key = "id/{id}"`
//~   --> "  "

// key_block
#[idempotent(key = "{{ order.id }}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "order/{order}"`; `{{` and `}}` stand for the braces themselves
//~   --> "{{ order.id }}"

// key_byte_string
#[idempotent(key = b"order", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "order/{order}"`
//~   --> b"order"

// key_call_with_arguments
#[idempotent(key = "{order.name(1)}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `order.name(1)` calls with arguments: write it in the expression form, without quotes: `key = ..`
//~   --> "{order.name(1)}"

// key_closure
#[idempotent(key = "{|order| order.id}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `|order| order.id` is no place: closures cannot be used in a key
//~   --> "{|order| order.id}"

// key_closure_expression
#[idempotent(key = |order: Order| order.id, store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: a key is a value, not code that runs later: write the expression itself
//~   --> | order : Order | order . id

// key_constant
#[idempotent(key = "order/42", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "id/{id}"`
//~   --> "order/42"

// key_constant_expression
#[idempotent(key = format!("order/{}", 42), store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "id/{id}"`
//~   --> format ! ("order/{}" , 42)

// key_constant_path
#[idempotent(key = Default::default(), store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "id/{id}"`
//~   --> Default :: default ()

// key_empty
#[idempotent(key = "", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this key is empty: write what tells one call from another, such as `key = "id/{id}"`
//~   --> ""

// key_empty_placeholder
#[idempotent(key = "order/{}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `{}` names nothing: write an argument, such as `{order.id}`
//~   --> "order/{}"

// key_empty_tuple
#[idempotent(key = (), store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: this key is empty: write what tells one call from another, such as `key = "order/{order}"`
//~   --> ()

// key_escaped_only
#[idempotent(key = "{{id}}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "id/{id}"`; `{{` and `}}` stand for the braces themselves
//~   --> "{{id}}"

// key_format
#[idempotent(key = "order/{id:?}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: a key has no formats, as every type has one stable rendering: write `{id}`
//~   --> "order/{id:?}"

// key_index
#[idempotent(key = "{order[0]}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `order[0]` indexes, which may panic: write it in the expression form, without quotes: `key = ..`
//~   --> "{order[0]}"

// key_macro
#[idempotent(key = "{format!(order)}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `format!(order)` is no place: write it in the expression form, without quotes: `key = ..`
//~   --> "{format!(order)}"

// key_nested_braces
#[idempotent(key = "order/{{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: a `}` without its `{`: write `}}` for the character itself
//~   --> "order/{{id}"

// key_no_arguments
#[idempotent(key = "{id}", store = MemoryStore::new())]
async fn charge() -> Result<u64, idem::Error> {
    drop(MemoryStore::new());
    Ok(1)
}
//~ error: in `{id}`: `charge` has no arguments, so there is no `id`, and nothing to make a key of
//~   --> "{id}"

// key_no_separator
#[idempotent(key = "{id}{other}", store = store)]
async fn charge(store: &MemoryStore, id: u8, other: u8) -> Result<u8, idem::Error> {
    Ok(id + other)
}
//~ error: between `{id}` and `{other}` there is nothing, so different values could give the same key: separate them, as in `{id}/{other}`
//~   --> "{id}{other}"

// key_number
#[idempotent(key = 42, store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: this key names no argument, so it is the same for every call and the first result would be everybody's: write what tells one call from another, such as `key = "id/{id}"`
//~   --> 42

// key_only_underscores
#[idempotent(key = "{id}", store = MemoryStore::new())]
async fn charge(_: &MemoryStore, _: u64) -> Result<u64, idem::Error> {
    Ok(1)
}
//~ error: in `{id}`: an argument bound to `_` cannot be used: give it a name in the arguments of `charge`
//~   --> "{id}"

// key_operator
#[idempotent(key = "{order.id + 1}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `order.id + 1` is no place: write an argument with fields or methods without arguments, such as `order.id`
//~   --> "{order.id + 1}"

// key_padding
#[idempotent(key = "order/{id:>8}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: a key has no formats, as every type has one stable rendering: write `{id}`
//~   --> "order/{id:>8}"

// key_path
#[idempotent(key = "{Order::id}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `Order::id` is a path, and a key is made of the arguments: name one
//~   --> "{Order::id}"

// key_position
#[idempotent(key = "order/{0}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: `0` is a position, and arguments are named in a key: write the argument's name
//~   --> "order/{0}"

// key_question_mark
#[idempotent(key = "{order.id?}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `?` cannot be used in a key: write it in the expression form, without quotes: `key = ..`
//~   --> "{order.id?}"

// key_reference
#[idempotent(key = "{&order.id}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `&order.id` is no place: write an argument with fields or methods without arguments, such as `order.id`
//~   --> "{&order.id}"

// key_self_without_receiver
#[idempotent(key = "{self.id}/{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: in `{self.id}`: `charge` has no `self`; its arguments are `store` and `id`
//~   --> "{self.id}/{id}"

// key_several_faults
#[idempotent(key = "{}{oder.id}/{order.id:?}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: between `{}` and `{oder.id}` there is nothing, so different values could give the same key: separate them, as in `{}/{oder.id}`
//~   --> "{}{oder.id}/{order.id:?}"
//~ error: `{}` names nothing: write an argument, such as `{order.id}`
//~   --> "{}{oder.id}/{order.id:?}"
//~ error: in `{oder.id}`: `charge` has no argument `oder`: did you mean `order`? Its arguments are `store` and `order`
//~   --> "{}{oder.id}/{order.id:?}"
//~ error: a key has no formats, as every type has one stable rendering: write `{order.id}`
//~   --> "{}{oder.id}/{order.id:?}"

// key_unclosed
#[idempotent(key = "order/{id", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: the `{` before `id` has no `}`: close it, or write `{{` for the character itself
//~   --> "order/{id"

// key_underscore
#[idempotent(key = "{_}", store = store)]
async fn charge(store: &MemoryStore, _: u64) -> Result<u64, idem::Error> {
    Ok(1)
}
//~ error: in `{_}`: an argument bound to `_` cannot be used: give it a name in the arguments of `charge`
//~   --> "{_}"

// key_unknown_argument
#[idempotent(key = "order/{oder.id}", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: in `{oder.id}`: `charge` has no argument `oder`: did you mean `order`? Its arguments are `store` and `order`
//~   --> "order/{oder.id}"

// key_unknown_argument_in_expression
#[idempotent(key = oder.id, store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: `charge` has no argument `oder`: did you mean `order`? Its arguments are `store` and `order`
//~   --> oder . id

// key_unknown_argument_without_braces
#[idempotent(key = "oder.id", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<u64, idem::Error> {
    Ok(order.number())
}
//~ error: a key without `{..}` is one place: `charge` has no argument `oder`: did you mean `order`? Its arguments are `store` and `order`. For text with places in it, write `key = "order/{order}"`
//~   --> "oder.id"

// key_unopened
#[idempotent(key = "order/id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}
//~ error: a `}` without its `{`: write `}}` for the character itself
//~   --> "order/id}"

// key_weak_separator
#[idempotent(key = "{id}-{other}", store = store)]
async fn charge(store: &MemoryStore, id: u8, other: u8) -> Result<u8, idem::Error> {
    Ok(id + other)
}
//~ error: between `{id}` and `{other}` there is only `-`, which may occur in a value, so different values could give the same key: separate them, as in `{id}/{other}`
//~   --> "{id}-{other}"

// key_of_const_parameter
#[idempotent(key = "{N}", scope = "charge", store = store)]
async fn charge<const N: usize>(store: &MemoryStore) -> Result<usize, Error> {
    Ok(N)
}
//~ error: in `{N}`: `charge` has no argument `N`; its arguments are `store`
//~   --> "{N}"
