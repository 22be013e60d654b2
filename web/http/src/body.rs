//! The body type of requests and responses, and reading a body up to a limit.
//!
//! Owns the rule that no byte and no trailer is lost. Knows nothing about keys or about what is recorded.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, LengthLimitError};
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How many bytes of a refused request's body are read and discarded.
const MOST_DISCARDED: usize = 64 * 1024 * 1024;

/// For how long the body of a refused request is read.
const LONGEST_DISCARDING: Duration = Duration::from_secs(10);

/// The error type of a [`Body`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request or response that went through the layer: whole in memory, or a stream.
///
/// For a service that takes only its own body type, map the request, for example with
/// `ServiceBuilder::new().layer(layer).map_request(|request: Request<idem::http::Body>| request.map(axum::body::Body::new))`.
/// axum's `Router` takes any body type and needs no mapping.
pub struct Body(Kind);

enum Kind {
    Whole {
        data: Bytes,
        trailers: Option<Box<HeaderMap>>,
    },
    /// The frames that are already read, and the rest of the body.
    Stream {
        read: VecDeque<Result<Frame<Bytes>, BoxError>>,
        rest: Option<UnsyncBoxBody<Bytes, BoxError>>,
    },
}

impl Body {
    /// A body that is streamed.
    #[must_use]
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = UnsyncBoxBody::new(Plain { body });
        Self(Kind::Stream { read: VecDeque::new(), rest: Some(body) })
    }

    pub(super) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self(Kind::Whole { data, trailers: trailers.map(Box::new) })
    }

    /// The same, but with an unknown length. An empty body has a frame without data, so that it does not look empty.
    pub(super) fn of_unsaid_length(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        let frames = [Frame::data(data)].into_iter().chain(trailers.map(Frame::trailers));
        Self(Kind::Stream { read: frames.map(Ok).collect(), rest: None })
    }
}

impl From<Bytes> for Body {
    fn from(data: Bytes) -> Self {
        Self::whole(data, None)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole { data, .. } => write!(f, "Body({} bytes)", data.len()),
            Kind::Stream { .. } => f.write_str("Body(stream)"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole { data, .. } if !data.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(data)))))
            }
            Kind::Whole { trailers, .. } => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
            }
            Kind::Stream { read, rest } => match (read.pop_front(), rest) {
                (Some(frame), _) => Poll::Ready(Some(frame)),
                (None, Some(rest)) => Pin::new(rest).poll_frame(cx),
                (None, None) => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole { data, trailers } => data.is_empty() && trailers.is_none(),
            Kind::Stream { read, rest } => {
                read.is_empty() && rest.as_ref().is_none_or(http_body::Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole { data, trailers: None } => SizeHint::with_exact(data.len() as u64),
            // A server that knows the length sends it in a header and then sends no trailers.
            Kind::Whole { .. } => SizeHint::default(),
            Kind::Stream { read, rest } => {
                let known = |frame: &Result<Frame<Bytes>, BoxError>| {
                    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64)
                };
                let read: u64 = read.iter().map(known).sum();
                let rest = rest.as_ref().map(http_body::Body::size_hint).unwrap_or_default();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
                    hint.set_upper(upper);
                }
                hint
            }
        }
    }
}

pin_project! {
    /// A body whose data is converted to `Bytes` and whose errors to [`BoxError`]. Its length stays.
    struct Plain<B> {
        #[pin]
        body: B,
    }
}

impl<B> http_body::Body for Plain<B>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let plain = |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        self.project().body.poll_frame(cx).map_ok(plain).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The result of gathering a body.
pub(super) enum Gathered {
    /// It ended within the limit.
    Whole(Bytes, Option<HeaderMap>),
    /// The body is larger than the limit. The returned body is complete.
    TooLarge(Body),
    /// The body ended with an error, which is the last frame of `read`. `limited` says whether it exceeds the limit of
    /// another layer.
    Broken { read: Body, limited: bool },
}

/// Reads `body` to its end, or to the first frame that exceeds `limit` bytes.
pub(super) async fn gather<B>(body: B, limit: usize) -> Gathered
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Body::new(body);
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Gathered::TooLarge(body);
    }
    let mut data = Gathering::default();
    let mut trailers: Option<HeaderMap> = None;
    loop {
        match body.frame().await {
            None => return Gathered::Whole(data.finish(), trailers),
            Some(Err(error)) => {
                let limited = is_limit(&*error);
                return Gathered::Broken { read: rest([data.finish()], Err(error), None), limited };
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(more) if data.len() + more.len() > limit => {
                    return Gathered::TooLarge(rest([data.finish()], Ok(Frame::data(more)), Some(body)));
                }
                Ok(more) => data.add(more),
                Err(frame) => {
                    if let Ok(more) = frame.into_trailers() {
                        trailers.get_or_insert_default().extend(more);
                    }
                }
            },
        }
    }
}

fn is_limit(error: &(dyn Error + 'static)) -> bool {
    error.is::<LengthLimitError>() || error.source().is_some_and(is_limit)
}

/// Reads and discards the rest of a refused request's body, in the background.
///
/// Without this, a client that reads the response only after it has sent everything would find its connection reset. A
/// client that sent `Expect` sends its body only after the server has begun to read it; if nothing was read, there is
/// nothing to discard.
pub(super) fn discard(headers: &HeaderMap, mut body: Body) {
    let is_begun = matches!(&body.0, Kind::Stream { read, .. } if !read.is_empty());
    if (headers.contains_key(EXPECT) && !is_begun) || http_body::Body::is_end_stream(&body) {
        return;
    }
    let discarding = async move {
        let mut bytes_left = MOST_DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            bytes_left = bytes_left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if bytes_left == 0 {
                break;
            }
        }
    };
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(timeout(LONGEST_DISCARDING, discarding));
    }
}

/// A body made of the data that was read, the last frame, and the rest.
fn rest<const N: usize>(
    read: [Bytes; N],
    last: Result<Frame<Bytes>, BoxError>,
    following: Option<Body>,
) -> Body {
    let read = read.into_iter().filter(|data| !data.is_empty()).map(|data| Ok(Frame::data(data)));
    let rest = following.and_then(|body| match body.0 {
        Kind::Stream { rest, .. } => rest,
        Kind::Whole { .. } => None,
    });
    Body(Kind::Stream { read: read.chain([last]).collect(), rest })
}

/// Bytes that came in several frames. They are copied together, because each frame keeps the whole buffer alive that
/// the connection was read into.
#[derive(Default)]
enum Gathering {
    #[default]
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

impl Gathering {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(data) => data.len(),
            Self::Many(data) => data.len(),
        }
    }

    fn add(&mut self, more: Bytes) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::One(more),
            Self::One(first) => {
                let mut data = BytesMut::with_capacity(first.len() + more.len());
                data.extend_from_slice(&first);
                data.extend_from_slice(&more);
                Self::Many(data)
            }
            Self::Many(mut data) => {
                data.extend_from_slice(&more);
                Self::Many(data)
            }
        };
    }

    fn finish(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(data) => data,
            Self::Many(data) => data.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http::{HeaderName, HeaderValue};
    use http_body::Body as _;
    use http_body_util::{Full, StreamBody};

    use super::*;

    type Piece = Result<Frame<Bytes>, BoxError>;

    fn pieces(pieces: Vec<Piece>) -> StreamBody<stream::Iter<std::vec::IntoIter<Piece>>> {
        StreamBody::new(stream::iter(pieces))
    }

    fn data(text: &'static str) -> Piece {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    fn checksum() -> HeaderMap {
        [(HeaderName::from_static("checksum"), HeaderValue::from_static("1"))].into_iter().collect()
    }

    #[tokio::test]
    async fn a_body_within_the_limit_is_whole_with_its_trailers() {
        let body = pieces(vec![data("ab"), data(""), data("cde"), Ok(Frame::trailers(checksum()))]);
        let Gathered::Whole(bytes, trailers) = gather(body, 5).await else { panic!("not whole") };
        assert_eq!((&bytes[..], trailers.clone()), (&b"abcde"[..], Some(checksum())));

        let again = Body::whole(bytes, trailers);
        assert_eq!(again.size_hint().exact(), None);
        let collected = again.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&checksum()));
        assert_eq!(collected.to_bytes(), "abcde");
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_goes_on_with_every_byte_and_trailer() {
        let body = pieces(vec![data("ab"), data("cd"), data("ef"), Ok(Frame::trailers(checksum()))]);
        let Gathered::TooLarge(body) = gather(body, 3).await else { panic!("not too large") };
        assert_eq!(body.size_hint().lower(), 4);
        let collected = body.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&checksum()));
        assert_eq!(collected.to_bytes(), "abcdef");
    }

    #[tokio::test]
    async fn a_body_that_says_its_length_is_not_read_beyond_the_limit() {
        let Gathered::TooLarge(body) = gather(Full::new(Bytes::from_static(b"abcd")), 3).await else {
            panic!("not too large")
        };
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcd");
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_gives_what_it_had_and_then_its_error() {
        let Gathered::Broken { read: mut body, limited: false } =
            gather(pieces(vec![data("ab"), Err("gone".into())]), 9).await
        else {
            panic!("not broken")
        };
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "gone");
        assert!(body.frame().await.is_none());
    }
}
