//! Which span a recorded result is from, kept with the result, so that a replay can be linked to it.
//!
//! Owns the bytes before a result. It knows no library of traces: [`TraceLinks`] is a few lines in the program that has one.

use bytes::{Bytes, BytesMut};

use super::transformed::{Part, Transform, Transformed};
use crate::error::StoreError;
use idem_core::RecordKey;
use idem_core::protocol::ResultFormat;

/// The first byte of a result with a trace context: [`ResultFormat::Traced`].
const TRACED: u8 = ResultFormat::TRACED;
/// How much is before the result: the byte, and the context.
const OVERHEAD: usize = 1 + TraceContext::BYTES;

/// The context of a span, after W3C's Trace Context: what a link to it needs.
///
/// ```
/// # use idem_runtime as idem;
/// let context = idem::TraceContext::new([1; 16], [2; 8], 1);
/// assert_eq!(context.to_string(), "00-01010101010101010101010101010101-0202020202020202-01");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span in it.
    pub span_id: [u8; 8],
    /// Its flags: 1 where it is sampled.
    pub flags: u8,
}

impl TraceContext {
    const BYTES: usize = 16 + 8 + 1;

    /// The context of this span.
    #[must_use]
    pub const fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Self {
        Self { trace_id, span_id, flags }
    }

    /// Splits what [`StoreExt::traced`](crate::StoreExt::traced) keeps into the context and the result; `None` of any other
    /// bytes.
    #[must_use]
    pub fn split(stored: &[u8]) -> Option<(Self, &[u8])> {
        let (&TRACED, rest) = stored.split_first()? else { return None };
        let (trace_id, rest) = rest.split_first_chunk()?;
        let (span_id, rest) = rest.split_first_chunk()?;
        let (&flags, rest) = rest.split_first()?;
        Some((Self::new(*trace_id, *span_id, flags), rest))
    }
}

/// As a `traceparent`.
impl std::fmt::Display for TraceContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

/// What a program's library of traces does for [`StoreExt::traced`](crate::StoreExt::traced). The page on OpenTelemetry has one for
/// `tracing-opentelemetry`.
pub trait TraceLinks: Clone + Send + Sync + 'static {
    /// The context of the current span, if it is one that can be linked to. Called when a result is recorded.
    fn current(&self) -> Option<TraceContext>;

    /// Links the current span to this one, in which the result was recorded. Called for each replay.
    fn link(&self, first: TraceContext);
}

/// Links nothing, and keeps nothing: for tools that read results.
impl TraceLinks for () {
    fn current(&self) -> Option<TraceContext> {
        None
    }

    fn link(&self, _first: TraceContext) {}
}

/// A store that keeps the span of the first run with each result: what [`StoreExt::traced`](crate::StoreExt::traced) gives. Feature
/// `trace-links`.
///
/// 26 bytes a result. Results that were stored without it stay readable with it, not the other way round: switch it on in every
/// reader before the first writer.
pub type Traced<S, L> = Transformed<S, Tracing<L>>;

/// What makes a store [`Traced`].
#[derive(Clone)]
pub struct Tracing<L>(L);

impl<L> Tracing<L> {
    pub(super) const fn by(links: L) -> Self {
        Self(links)
    }
}

impl<L: TraceLinks> Transform for Tracing<L> {
    const NAME: &'static str = "Traced";

    fn pack(&self, _name: &RecordKey, part: Part<'_>, plain: &Bytes) -> Result<Bytes, StoreError> {
        // A step is the same bytes each time it is asked. What looks as if it had a context gets one.
        let context = match part {
            Part::Result(_) => self.0.current(),
            Part::Step { .. } => None,
        };
        let none = || {
            plain.first().is_some_and(|byte| *byte == TRACED).then(|| TraceContext::new([0; 16], [0; 8], 0))
        };
        let Some(context) = context.or_else(none) else { return Ok(plain.clone()) };
        let mut stored = BytesMut::with_capacity(OVERHEAD + plain.len());
        stored.extend_from_slice(&[TRACED]);
        stored.extend_from_slice(&context.trace_id);
        stored.extend_from_slice(&context.span_id);
        stored.extend_from_slice(&[context.flags]);
        stored.extend_from_slice(plain);
        Ok(stored.freeze())
    }

    fn unpack(&self, _name: &RecordKey, part: Part<'_>, stored: Bytes) -> Result<Bytes, StoreError> {
        let Some((context, _)) = TraceContext::split(&stored) else { return Ok(stored) };
        if matches!(part, Part::Result(_)) && context.trace_id != [0; 16] {
            self.0.link(context);
        }
        Ok(stored.slice(OVERHEAD..))
    }

    fn max_result_bytes(&self, inner: Option<usize>) -> Option<usize> {
        inner.map(|most| most.saturating_sub(OVERHEAD))
    }
}
