//! One way to do the work, as the file of each store defines it.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use idem::{Operation, Store, idempotent};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Anything<T> = Result<T, Failure>;

type Call = Arc<dyn Fn(String) -> BoxFuture<'static, Anything<()>> + Send + Sync>;

/// The result of a body: 64 bytes as it is stored.
pub(crate) const RECEIPT: &str = "a receipt of sixty-two characters, as a body might well give.. ";

/// One way to make a call. All do the same work.
#[derive(Clone)]
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    /// A call whose key is new.
    pub(crate) fresh: Call,
    /// A call whose result is recorded.
    pub(crate) replay: Call,
    /// A call whose key is new and whose body works for fifty milliseconds, if that is of interest.
    pub(crate) work: Option<Call>,
}

/// Boxes a call, so that every arm has the same cost.
pub(crate) fn call<F>(make: impl Fn(String) -> F + Send + Sync + 'static) -> Call
where
    F: Future<Output = Anything<()>> + Send + 'static,
{
    Arc::new(move |key| Box::pin(make(key)))
}

/// The arms that compete on one store, once they are connected. The others are compared with the first.
pub(crate) type Arms = BoxFuture<'static, Anything<Vec<Arm>>>;

/// A store, and the ways to make a call on it.
pub(crate) struct Contest {
    pub(crate) store: &'static str,
    /// Connects the arms with the server at this URL.
    pub(crate) connect: Box<dyn Fn(String) -> Arms>,
    pub(crate) url: String,
    /// The port in the URL, if a counter of the traffic can be put before it.
    pub(crate) port: Option<u16>,
    /// The servers and folders, which exist as long as this value.
    pub(crate) _kept: Box<dyn Any>,
}

pub(crate) fn wrong() -> Failure {
    "another answer than there must be".into()
}

/// Works for fifty milliseconds.
pub(crate) async fn work() {
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
}

/// The body of all calls.
async fn body(works: bool) -> String {
    if works {
        work().await;
    }
    RECEIPT.to_owned()
}

#[idempotent(key = "{key}", store = store, scope = "side.by.side")]
async fn pay<S: Store>(store: &S, key: &str, works: bool) -> Result<String, idem::Error> {
    Ok(body(works).await)
}

/// This library's arms on any store: the attribute, and `Operation::run`.
pub(crate) fn ours<S: Store>(store: &S) -> Vec<Arm> {
    let attribute = |works: bool| {
        let store = store.clone();
        call(move |key| {
            let store = store.clone();
            async move {
                let receipt = pay(&store, &key, works).await?;
                if receipt == RECEIPT { Ok(()) } else { Err(wrong()) }
            }
        })
    };
    let operation = |works: bool| {
        let (store, operation) = (store.clone(), Operation::new("side.by.side.run"));
        call(move |key| {
            let (store, operation) = (store.clone(), operation.clone());
            async move {
                let receipt =
                    operation.run(&store, key, || async { Ok::<_, idem::Error>(body(works).await) }).await?;
                if receipt == RECEIPT { Ok(()) } else { Err(wrong()) }
            }
        })
    };
    vec![
        Arm {
            name: "idem, `#[idempotent]`",
            fresh: attribute(false),
            replay: attribute(false),
            work: Some(attribute(true)),
        },
        Arm { name: "idem, `Operation::run`", fresh: operation(false), replay: operation(false), work: None },
    ]
}

/// An arm without idempotency.
pub(crate) fn none() -> Arm {
    let nothing = |works| {
        call(move |_| async move {
            let receipt = std::hint::black_box(body(works).await);
            if receipt == RECEIPT { Ok(()) } else { Err(wrong()) }
        })
    };
    Arm { name: "no idempotency", fresh: nothing(false), replay: nothing(false), work: Some(nothing(true)) }
}
