// item_const_fn
const fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {}
//~ error: a `const fn` cannot wait for a store: remove `const`
//~   --> const
//~ error: `#[idempotent]` needs an `async fn`: write `async` here, or guard an async function that this one calls
//~   --> fn

// item_const_parameter
async fn charge<const N: usize>(store: &MemoryStore, id: [u8; N]) -> Result<usize, idem::Error> {}
//~ error: missing `scope`: `charge` has the const parameter `N`, which must not be part of the operation's name
//~ help: add a name that never changes, such as `scope = "charge"`
//~   --> const N: usize

// item_extern
async extern "C" fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {}
//~ error: an `extern` function cannot be async: guard an async function that this one calls
//~   --> extern "C"

// item_impl_argument
async fn charge(store: &MemoryStore, id: impl idem::KeyPart) -> Result<u8, idem::Error> {}
//~ error: missing `scope`: `charge` has an argument of an `impl` type, which must not be part of the operation's name
//~ help: add a name that never changes, such as `scope = "charge"`
//~   --> impl idem::KeyPart

// item_returns_impl
async fn charge(store: &MemoryStore, id: u8) -> Result<impl Copy, idem::Error> {}
//~ error: an `impl` type has no name to decode a recorded result to: write the type itself
//~   --> impl Copy

// item_returns_reference
async fn charge<'a>(store: &MemoryStore, id: &'a str) -> Result<&'a str, idem::Error> {}
//~ error: a recorded result is given to later calls, so it cannot be a reference: return an owned value
//~   --> &'a str

// item_test_below
#[idempotent(key = "{id}", store = STORE)]
#[tokio::test]
async fn charges_once() -> Result<(), idem::Error> {}
//~ error: a test cannot be idempotent, in neither order of the attributes: put `#[idempotent]` on the async function that the test calls
//~   --> #[tokio::test]

// item_test_expanded
#[idempotent(key = pool.id(), store = STORE)]
#[::core::prelude::v1::test]
fn charges_once() -> Result<(), idem::Error> {}
//~ error: a test cannot be idempotent, in neither order of the attributes: put `#[idempotent]` on the async function that the test calls
//~   --> #[::core::prelude::v1::test]

// item_type_parameter
async fn charge<S: Store, K: idem::KeyPart>(store: &S, id: K) -> Result<u8, idem::Error> {}
//~ error: missing `scope`: `charge` has the type parameter `S`, which must not be part of the operation's name
//~ help: add a name that never changes, such as `scope = "charge"`
//~   --> S: Store

// item_without_return
async fn charge(store: &MemoryStore, id: u8) {}
//~ error: an idempotent function returns a `Result`: what it gives is recorded, and what idem has to say is an error; write `-> Result<T, E>` with `E: From<idem::Error>`
//~   --> charge

// item_returns_a_future_under_an_alias
fn charge(store: &MemoryStore, id: u8) -> BoxFuture<'_, Result<u8, idem::Error>> {
    Box::pin(async move { Ok(id) })
}
//~ error: the result is not visible in this type: write `async fn`, or `Pin<Box<dyn Future<Output = Result<T, E>>>>`
//~   --> BoxFuture<'_, Result<u8, idem::Error>>

// item_constant
const LIMIT: u8 = 1;
//~ error: `#[idempotent]` goes on an `async fn`
//~   --> const

// item_struct
struct Charge;
//~ error: `#[idempotent]` goes on an `async fn`; for a type that is part of a key there is `#[derive(KeyPart)]`
//~   --> struct

// item_trait
trait Charge {}
//~ error: `#[idempotent]` goes on an async method: put it on each that needs it, inside
//~   --> trait

// item_method_without_body
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error>;
//~ error: a method without a body has nothing to run: put `#[idempotent]` on it in the impls
//~   --> charge

// item_twice
#[idempotent(key = "{id}", store = store)]
#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {}
//~ error: `#[idempotent]` is on this function twice: keep one, with all options
//~   --> #[idempotent(key = "{id}", store = store)]

// item_closure
async |id: u8| Ok::<u8, Error>(id)
//~ error: expected an `async fn`, found a closure or a block
//~ help: make a function of it, whose arguments are what it captures
//~   --> async
