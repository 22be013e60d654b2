//! Tests of an operation's name: a new build finds the records of an older one, and two operations never
//! share a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idem::{DynStore, Error, Key, MemoryStore, RecordKey, Scope, Store, StoreExt, idempotent};

static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of the run and the key for the next service.
fn ran() -> Result<(usize, String), Error> {
    let key = idem::context().map(|context| context.downstream_key("gateway"));
    Ok((RUNS.fetch_add(1, Ordering::SeqCst), key.unwrap_or_default()))
}

/// The text of the result's error. The error must be a configuration error.
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Configuration { .. }), "{error}");
    error.to_string()
}

async fn has(store: &MemoryStore, scope: &'static str, key: &str) -> bool {
    let key = RecordKey::new(Scope::new(scope).unwrap(), Key::new(key).unwrap());
    store.get(&key).await.unwrap().is_some()
}

#[idempotent(key = "{id}", scope = "payments.charge", store = store)]
async fn charge<S: Store>(store: Arc<S>, id: u64) -> Result<(usize, String), Error> {
    ran()
}

#[tokio::test]
async fn another_type_of_store_keeps_every_key_and_every_derived_key() {
    let store = MemoryStore::new();
    let first = charge(Arc::new(store.clone()), 1).await.unwrap();
    assert_eq!(charge(Arc::new(store.clone().cached(10)), 1).await.unwrap(), first);
    assert_eq!(charge(Arc::new(DynStore::new(store.clone())), 1).await.unwrap(), first);
    let other = MemoryStore::new();
    assert_eq!(charge(Arc::new(DynStore::new(other)), 1).await.unwrap().1, first.1);
}

struct Payments<S> {
    store: S,
}

impl<S: Store> Payments<S> {
    #[idempotent(key = "{id}", store = self.store)]
    async fn unnamed(&self, id: u64) -> Result<(usize, String), Error> {
        ran()
    }

    #[idempotent(key = "{id}", scope = "payments.refund", store = self.store)]
    async fn named(&self, id: u64) -> Result<(usize, String), Error> {
        ran()
    }
}

struct Ledger<'s>(&'s MemoryStore);

impl Ledger<'_> {
    #[idempotent(key = "{id}", store = self.0)]
    async fn book(&self, id: u64) -> Result<(usize, String), Error> {
        ran()
    }
}

#[tokio::test]
async fn a_generic_type_needs_a_scope_and_a_type_with_a_lifetime_does_not() {
    let store = MemoryStore::new();
    let first = Payments { store: store.clone() }.named(1).await.unwrap();
    assert_eq!(Payments { store: store.clone().cached(10) }.named(1).await.unwrap(), first);
    Ledger(&store).book(1).await.unwrap();
    assert!(has(&store, "it::attribute_scope::Ledger::book", "1").await);
}

trait Handler {
    const NAME: &'static str;

    #[idempotent(key = "{id}", store = store)]
    async fn create(store: &MemoryStore, id: u64) -> Result<String, Error> {
        Ok(Self::NAME.into())
    }

    #[idempotent(key = "{id}", store = store)]
    async fn handle(&self, store: &MemoryStore, id: u64) -> Result<String, Error> {
        Ok(Self::NAME.into())
    }
}

struct Order;
struct Invoice;

impl Handler for Order {
    const NAME: &'static str = "order";
}

impl Handler for Invoice {
    const NAME: &'static str = "invoice";
}

mod elsewhere {
    use super::*;

    /// Another type that is also named `Order`.
    pub(super) struct Order;

    impl Handler for Order {
        const NAME: &'static str = "another order";
    }
}

#[tokio::test]
async fn a_function_whose_type_is_not_known_is_refused_at_its_first_call_with_what_to_write() {
    let store = MemoryStore::new();
    let payments = Payments { store: store.clone() };
    for (text, says) in [
        (refusal(payments.unnamed(1).await), "unnamed"),
        (refusal(payments.unnamed(1).await), "unnamed"),
        (refusal(Order::create(&store, 1).await), "without `self`"),
        (refusal(Invoice::create(&store, 1).await), "without `self`"),
    ] {
        assert!(text.contains(says) && text.contains("write `scope = \"..\"`"), "{text}");
        assert!(!text.contains('<') && !text.contains("MemoryStore"), "{text}");
    }
}

#[tokio::test]
async fn one_method_of_two_types_is_two_operations() {
    let store = MemoryStore::new();
    for _ in 0..2 {
        assert_eq!(Order.handle(&store, 1).await.unwrap(), "order");
        assert_eq!(Invoice.handle(&store, 1).await.unwrap(), "invoice");
    }
    let text = refusal(elsewhere::Order.handle(&store, 1).await);
    assert!(text.contains("would answer each other's calls"), "{text}");
    assert!(has(&store, "it::attribute_scope::Order::handle", "1").await);
}

#[idempotent(key = "{id}", store = store)]
async fn free(store: &MemoryStore, id: u64) -> Result<(usize, String), Error> {
    ran()
}

fn nested(store: &MemoryStore) -> impl Future<Output = Result<(usize, String), Error>> {
    #[idempotent(key = "{id}", store = store)]
    async fn inner(store: &MemoryStore, id: u64) -> Result<(usize, String), Error> {
        ran()
    }
    inner(store, 1)
}

fn nested_again(store: &MemoryStore) -> impl Future<Output = Result<(usize, String), Error>> {
    #[idempotent(key = "{id}", store = store)]
    async fn inner(store: &MemoryStore, id: u64) -> Result<(usize, String), Error> {
        ran()
    }
    inner(store, 1)
}

#[tokio::test]
async fn a_free_function_has_its_module_and_name_wherever_it_is_written_and_a_second_one_is_refused() {
    let store = MemoryStore::new();
    free(&store, 1).await.unwrap();
    assert!(has(&store, "it::attribute_scope::free", "1").await);
    nested(&store).await.unwrap();
    assert!(has(&store, "it::attribute_scope::inner", "1").await);
    let text = refusal(nested_again(&store).await);
    assert!(text.contains("would answer each other's calls"), "{text}");
}
