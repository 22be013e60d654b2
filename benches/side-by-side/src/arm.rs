//! An arm is one implementation that the benchmark compares, such as the attribute or code by hand. The file
//! of each store defines the arms of that store.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use idem::{Operation, Store, idempotent};

pub(crate) type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

type Call = Arc<dyn Fn(String) -> BoxFuture<'static, Anything<()>> + Send + Sync>;

/// The result of a body: 63 bytes, and 65 bytes as JSON.
pub(crate) const RECEIPT: &str = "a receipt of sixty-two characters, as a body might well give.. ";

#[derive(Clone)]
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    /// A call whose key is new.
    pub(crate) fresh: Call,
    /// A call whose result is recorded.
    pub(crate) replay: Call,
    /// A call whose key is new and whose body takes fifty milliseconds; `None` if this is not measured for
    /// the arm.
    pub(crate) work: Option<Call>,
}

impl Arm {
    /// An arm whose two calls, fresh and replay, use this client.
    pub(crate) fn new<C, F, G>(
        name: &'static str,
        client: &C,
        fresh: impl Fn(C, String) -> F + Send + Sync + 'static,
        replay: impl Fn(C, String) -> G + Send + Sync + 'static,
    ) -> Self
    where
        C: Clone + Send + Sync + 'static,
        F: Future<Output = Anything<()>> + Send + 'static,
        G: Future<Output = Anything<()>> + Send + 'static,
    {
        Self { name, fresh: over(client, fresh), replay: over(client, replay), work: None }
    }
}

/// A call over this client. The call is boxed, so that every arm has the cost of a box.
pub(crate) fn over<C, F>(client: &C, make: impl Fn(C, String) -> F + Send + Sync + 'static) -> Call
where
    C: Clone + Send + Sync + 'static,
    F: Future<Output = Anything<()>> + Send + 'static,
{
    let client = client.clone();
    Arc::new(move |key| Box::pin(make(client.clone(), key)))
}

/// A future that connects the arms of one store. All other arms are compared with the first one.
type Arms = BoxFuture<'static, Anything<Vec<Arm>>>;

/// A store, and the arms that are compared on it.
pub(crate) struct Contest {
    pub(crate) store: &'static str,
    /// Connects the arms with the server at this URL.
    pub(crate) connect: Box<dyn Fn(String) -> Arms>,
    pub(crate) url: String,
    /// The port in the URL; `None` if the traffic with the server cannot be counted.
    pub(crate) port: Option<u16>,
    /// The servers and folders, which exist as long as this value.
    _kept: Box<dyn Any>,
}

impl Contest {
    pub(crate) fn new<F>(
        store: &'static str,
        url: String,
        port: Option<u16>,
        kept: impl Any,
        connect: impl Fn(String) -> F + 'static,
    ) -> Self
    where
        F: Future<Output = Anything<Vec<Arm>>> + Send + 'static,
    {
        let connect = Box::new(move |url| -> Arms { Box::pin(connect(url)) });
        Self { store, connect, url, port, _kept: Box::new(kept) }
    }
}

pub(crate) fn right(is_right: bool) -> Anything<()> {
    if is_right { Ok(()) } else { Err("another answer than there must be".into()) }
}

/// The body of all calls. If `works`, it takes fifty milliseconds.
async fn body(works: bool) -> String {
    if works {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    RECEIPT.to_owned()
}

#[idempotent(key = "{key}", store = store, scope = "side.by.side")]
async fn pay<S: Store>(store: &S, key: &str, works: bool) -> Result<String, idem::Error> {
    Ok(body(works).await)
}

/// The arms on any store: the given code by hand, this library with the attribute and with `Operation::run`,
/// and the body alone.
pub(crate) fn beside<S: Store>(hand: Arm, store: &S) -> Vec<Arm> {
    let attribute = |works: bool| {
        over(store, move |store, key| async move { right(pay(&store, &key, works).await? == RECEIPT) })
    };
    let operation = || {
        let client = (store.clone(), Operation::new("side.by.side.run"));
        over(&client, |(store, operation), key| async move {
            let body = || async { Ok::<_, idem::Error>(body(false).await) };
            right(operation.run(&store, key, body).await? == RECEIPT)
        })
    };
    let nothing = |works: bool| {
        over(&(), move |(), _| async move { right(std::hint::black_box(body(works).await) == RECEIPT) })
    };
    vec![
        hand,
        Arm {
            name: "idem, `#[idempotent]`",
            fresh: attribute(false),
            replay: attribute(false),
            work: Some(attribute(true)),
        },
        Arm { name: "idem, `Operation::run`", fresh: operation(), replay: operation(), work: None },
        Arm {
            name: "no idempotency",
            fresh: nothing(false),
            replay: nothing(false),
            work: Some(nothing(true)),
        },
    ]
}
