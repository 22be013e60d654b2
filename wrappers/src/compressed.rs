//! Results compressed on their way into any store.
//!
//! Owns the format. This module changes nothing of a record except the bytes of its result and of the results
//! of its steps.

use std::io::Read as _;

use bytes::Bytes;

use super::transformed::{Part, Transform, Transformed};
use idem_core::RecordKey;
use idem_core::StoreError;

/// The magic number of a Zstandard frame: RFC 8878, section 3.1.1. No JSON begins with it.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Results shorter than this are not compressed, unless they begin with `FRAME`.
const WORTH_IT: usize = 256;

const LEVEL: i32 = 3;

/// A store that keeps a result of 256 bytes or more as a Zstandard frame if the frame is smaller: the return
/// type of [`StoreExt::compressed`](crate::StoreExt::compressed). Feature `zstd`.
///
/// This store can read results that were stored without compression. A store without the wrapper cannot read
/// compressed results. So enable the wrapper first in all programs that only read results, and then in the
/// programs that record results.
pub type Compressed<S> = Transformed<S, Compression>;

/// The transform of a [`Compressed`] store.
#[derive(Clone)]
pub struct Compression {
    largest: usize,
}

impl Compression {
    pub(super) const fn up_to(largest: usize) -> Self {
        Self { largest }
    }
}

impl Transform for Compression {
    const NAME: &'static str = "Compressed";

    fn pack(&self, _name: &RecordKey, _part: Part<'_>, plain: &Bytes) -> Result<Bytes, StoreError> {
        // A result that begins like a frame must be compressed, because otherwise reading would try to
        // decompress it.
        let must = plain.starts_with(&FRAME);
        if plain.len() < WORTH_IT && !must {
            return Ok(plain.clone());
        }
        let frame = zstd::bulk::compress(plain, LEVEL).map_err(|error| {
            StoreError::unavailable("there is no memory to compress the result").with_source(error)
        })?;
        Ok(if must || frame.len() < plain.len() { frame.into() } else { plain.clone() })
    }

    fn unpack(&self, _name: &RecordKey, _part: Part<'_>, stored: Bytes) -> Result<Bytes, StoreError> {
        if !stored.starts_with(&FRAME) {
            return Ok(stored);
        }
        let largest = self.largest;
        let broken = |error: std::io::Error| {
            StoreError::corrupt_record(
                "its result is no whole Zstandard frame; forget the key, or find out who wrote it",
            )
            .with_source(error)
        };
        let mut plain = Vec::new();
        let reader = zstd::Decoder::with_buffer(&*stored).map_err(broken)?;
        reader.take((largest as u64).saturating_add(1)).read_to_end(&mut plain).map_err(broken)?;
        if plain.len() > largest {
            return Err(StoreError::corrupt_record(format!(
                "its result is larger than {largest} bytes when it is unpacked; allow more with `compressed_up_to`"
            )));
        }
        Ok(Bytes::from(plain))
    }

    fn max_result_bytes(&self, _inner: Option<usize>) -> Option<usize> {
        Some(self.largest)
    }
}
