//! Sends each guarded request of a user's own HTTP test several times, and fails the test if a handler did something twice.
//!
//! Owns what is sent and when: at the same time, over connections that break, and after the answer. `answer` compares.

mod answer;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, join};
use http::request::Parts;
use http::{HeaderName, Request, Response};
use tokio::time::{Instant, sleep};
use tower_service::Service;

use answer::{Answer, whole};

/// How many pairs of requests are cut off at most, each one poll later than the pair before.
const BREAKS: usize = 16;

/// How long a request is repeated while another one with its key is in flight.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two of those.
const PAUSE: Duration = Duration::from_millis(20);

/// Counts the effects.
type Effects = Arc<dyn Fn() -> BoxFuture<'static, u64> + Send + Sync>;

/// Wraps a service, such as an axum `Router`, for its own integration test: see [`Twice`].
pub fn twice<S>(service: S) -> Twice<S> {
    let header = HeaderName::from_static("idempotency-key");
    Twice { inner: service, effects: None, header, breaks: BREAKS }
}

/// A service that receives each request with an `Idempotency-Key` several times, all with that key, and answers it once. Make one
/// by [`twice`].
///
/// 1. Two requests arrive at the same time, and their connections break as soon as their handlers wait; then two more,
///    whose connections break one wait later, and so on until one is answered. So a handler is dropped at each of its awaits, unless it
///    runs in a task of its own.
/// 2. The request arrives once more, as if its client had never read the answer.
///
/// All answers must be the same, except for those that ask the client to try again: 401, 403, 407, 408, 425, 429, 5xx, and 409 with
/// `Retry-After` for a key in flight, which the client repeats, as it does after the 202 of a long operation. [`effects`](Self::effects) may rise by one. Requests without the header
/// pass unchanged.
///
/// ```
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::Full;
/// # use tower_service::Service as _;
/// # #[derive(Clone)] struct Router;
/// # impl tower_service::Service<Request<Full<Bytes>>> for Router {
/// #     type Response = Response<Full<Bytes>>;
/// #     type Error = std::convert::Infallible;
/// #     type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future { std::future::ready(Ok(Response::default())) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let (router, charges) = (Router, Arc::new(AtomicU64::new(0)));
/// let mut app = idem_testing::twice(router).effects(move || {
///     let charges = charges.clone();
///     async move { charges.load(Relaxed) } // or a `SELECT count(*)`
/// });
/// let request = Request::post("/payments").header("Idempotency-Key", "k-1").body("7".into()).unwrap();
/// assert_eq!(app.call(request).await.unwrap().status(), 200);
/// # }
/// ```
///
/// # Panics
///
/// The future of a request panics if its handler did something twice or answered otherwise, and names the method, the path and the
/// difference.
#[derive(Clone)]
pub struct Twice<S> {
    inner: S,
    effects: Option<Effects>,
    header: HeaderName,
    breaks: usize,
}

impl<S> Twice<S> {
    /// Counts what a request may do once, such as charges or messages; called before and after each request. One
    /// request may raise it by one: count orders, not their rows. Guarded requests must then not run at the same time.
    #[must_use]
    pub fn effects<F>(mut self, count: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.effects = Some(Arc::new(move || count().boxed()));
        self
    }

    /// The header with the key, where it is not `Idempotency-Key`.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// No connection breaks: for handlers that a broken connection leaves in doubt, or that `max_attempts` limits.
    #[must_use]
    pub fn unbroken(mut self) -> Self {
        self.breaks = 0;
        self
    }

    async fn count(&self) -> u64 {
        match &self.effects {
            Some(effects) => effects().await,
            None => 0,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Twice<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Twice").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for Twice<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + Sync + 'static,
    S::Error: Send,
    B: http_body::Body<Data: Send, Error: fmt::Debug + Send> + From<Bytes> + Send + 'static,
    R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + From<Bytes> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !request.headers().contains_key(&self.header) {
            return self.inner.call(request).boxed();
        }
        let twice = self.clone();
        async move {
            let (head, body) = request.into_parts();
            let sender = Sender { service: twice.inner.clone(), head, body: whole(body).await };
            twice.exchange(&sender).await
        }
        .boxed()
    }
}

/// The service, and the request that it gets several times.
struct Sender<S> {
    service: S,
    head: Parts,
    body: Bytes,
}

/// How a request ended.
enum Ending {
    Answered(Answer),
    /// Its connection broke.
    Broken,
}

impl<S> Twice<S> {
    /// All requests, and the checks after them.
    async fn exchange<B, R>(&self, sender: &Sender<S>) -> Result<Response<R>, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Sync,
        B: From<Bytes>,
        R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + From<Bytes> + Send,
    {
        let name = format!("{} {}", sender.head.method, sender.head.uri.path());
        let before = self.count().await;
        let (mut answers, breaks) = sender.in_pairs(self.breaks).await?;
        let after = self.count().await;
        let broken =
            if breaks > 0 { format!(" and its connection broke {breaks} times") } else { String::new() };
        assert!(
            after.abs_diff(before) <= 1,
            "{name} did something twice: the effects went from {before} to {after} when the request came twice at the same \
             time{broken}; one request may raise them by one"
        );
        answers.push(sender.answered().await?);
        let last = self.count().await;
        assert!(
            last == after,
            "{name} did something twice: the effects went from {before} to {after}, and to {last} when the request came again after \
             its answer"
        );
        let mut finals = answers.iter().filter(|answer| answer.is_final());
        let first = finals.next();
        if let Some(difference) = first.and_then(|first| finals.find_map(|other| first.difference(other))) {
            panic!("{name} answered otherwise when the request came again: {difference}");
        }
        let position = answers.iter().position(Answer::is_final).unwrap_or(0);
        Ok(answers.swap_remove(position).response())
    }
}

impl<S> Sender<S> {
    /// Two requests at a time, until one is answered. The connections of the first `limit` pairs break. Returns the answers, and how
    /// many connections broke.
    async fn in_pairs<B, R>(&self, limit: usize) -> Result<(Vec<Answer>, usize), S::Error>
    where
        S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Sync,
        B: From<Bytes>,
        R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + Send,
    {
        let (mut waits, mut breaks, patience) = (1, 0, Instant::now() + PATIENCE);
        loop {
            let longest = if waits > limit { usize::MAX } else { waits };
            let is_answered = AtomicBool::new(false);
            let one = || self.until_broken(longest, &is_answered);
            let (first, second) = join(one(), one()).await;
            let (mut answers, mut broken) = (Vec::new(), 0);
            for ending in [first?, second?] {
                match ending {
                    Ending::Answered(answer) => answers.push(answer),
                    Ending::Broken => broken += 1,
                }
            }
            breaks += broken;
            let busy = answers.iter().filter(|answer| answer.is_busy()).count();
            if busy < answers.len() || Instant::now() > patience {
                answers.sort_by_key(Answer::is_busy);
                return Ok((answers, breaks));
            }
            if broken > 0 {
                waits += 1;
            } else {
                sleep(PAUSE).await;
            }
        }
    }

    /// One request, whose connection breaks when it has waited so often, unless another request is answered by then.
    async fn until_broken<B, R>(&self, waits: usize, is_answered: &AtomicBool) -> Result<Ending, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Sync,
        B: From<Bytes>,
        R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + Send,
    {
        let (mut request, mut waited) = (pin!(self.send()), 0);
        poll_fn(|cx| match request.as_mut().poll(cx) {
            Poll::Ready(answer) => {
                let counts = answer.as_ref().is_ok_and(|answer| !answer.is_busy());
                is_answered.fetch_or(counts, Ordering::Relaxed);
                Poll::Ready(answer.map(Ending::Answered))
            }
            Poll::Pending => {
                waited += 1;
                let breaks = waited >= waits && !is_answered.load(Ordering::Relaxed);
                if breaks { Poll::Ready(Ok(Ending::Broken)) } else { Poll::Pending }
            }
        })
        .await
    }

    /// One request, repeated while its key is in flight.
    async fn answered<B, R>(&self) -> Result<Answer, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Sync,
        B: From<Bytes>,
        R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + Send,
    {
        let patience = Instant::now() + PATIENCE;
        loop {
            let answer = self.send().await?;
            if !answer.is_busy() || Instant::now() > patience {
                return Ok(answer);
            }
            sleep(PAUSE).await;
        }
    }

    async fn send<B, R>(&self) -> Result<Answer, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Sync,
        B: From<Bytes>,
        R: http_body::Body<Data: Send, Error: fmt::Debug + Send> + Send,
    {
        let mut service = self.service.clone();
        poll_fn(|cx| service.poll_ready(cx)).await?;
        let request = Request::from_parts(self.head.clone(), B::from(self.body.clone()));
        let (head, body) = service.call(request).await?.into_parts();
        Ok(Answer { head, body: whole(body).await })
    }
}
