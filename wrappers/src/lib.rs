//! Stores that wrap another store. They compress, encrypt or cache results, or hide keys from anyone who can
//! read the store.
//!
//! Owns [`StoreExt`] and the stores that it returns. These stores use the inner store only through its public
//! trait. Use the crate `idem-rs`, which re-exports all of this as `idem`.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Only tests, examples and benches may panic or print.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "cache")]
mod cached;
#[cfg(feature = "zstd")]
mod compressed;
#[cfg(feature = "encryption")]
mod digested;
#[cfg(feature = "encryption")]
mod encrypted;
#[cfg(feature = "encryption")]
mod layers;
#[cfg(any(feature = "zstd", feature = "encryption"))]
mod marks;
#[cfg(any(feature = "zstd", feature = "encryption"))]
mod transformed;

use idem_core::Store;

#[cfg(feature = "cache")]
pub use cached::{Cached, Caching};
#[cfg(feature = "zstd")]
pub use compressed::{Compressed, Compression};
#[cfg(feature = "encryption")]
pub use digested::{DigestedKeys, KeyDigests};
#[cfg(feature = "encryption")]
pub use encrypted::{Encrypted, Encryption, KeyRing};
#[cfg(feature = "encryption")]
pub use layers::Layers;
#[cfg(any(feature = "zstd", feature = "encryption"))]
pub use transformed::Transformed;

/// The wrappers for every store, each behind a feature.
pub trait StoreExt: Store {
    /// This store, with results compressed if that makes them smaller: see [`Compressed`]. A result may have
    /// at most 16 MiB before compression.
    #[cfg(feature = "zstd")]
    #[must_use]
    fn compressed(self) -> Compressed<Self> {
        self.compressed_up_to(16 << 20)
    }

    /// As [`compressed`](Self::compressed), for results of at most `bytes` before compression. This limits
    /// the memory that reading a result takes.
    #[cfg(feature = "zstd")]
    #[must_use]
    fn compressed_up_to(self, bytes: usize) -> Compressed<Self> {
        Compressed::new(self, Compression::up_to(bytes))
    }

    /// This store, with recorded results replayed from this process's memory: see [`Cached`]. `caching` is
    /// the maximum number of results, or a [`Caching`].
    #[cfg(feature = "cache")]
    #[must_use]
    fn cached(self, caching: impl Into<Caching>) -> Cached<Self> {
        Cached::new(self, caching.into())
    }

    /// This store, with results encrypted with `keys`: see [`Encrypted`].
    #[cfg(feature = "encryption")]
    #[must_use]
    fn encrypted(self, keys: KeyRing) -> Encrypted<Self> {
        Encrypted::new(self, Encryption::with(keys))
    }

    /// This store, with keys and fingerprints that nobody can read or guess without `secret`: see
    /// [`DigestedKeys`]. The secret is 32 bytes from a cryptographic generator.
    #[cfg(feature = "encryption")]
    #[must_use]
    fn digest_keys(self, secret: &[u8; 32]) -> DigestedKeys<Self> {
        DigestedKeys::new(self, KeyDigests::under(secret))
    }
}

impl<S: Store> StoreExt for S {}
