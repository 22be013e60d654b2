//! The store in memory, a store chosen when the program runs, and stores that wrap another.
//!
//! Owns [`StoreExt`] and what it makes. The trait of a store, and stores with a client, have crates of their own.

#[cfg(feature = "cache")]
mod cached;
#[cfg(feature = "zstd")]
mod compressed;
#[cfg(feature = "encryption")]
mod digested;
mod dynamic;
#[cfg(feature = "encryption")]
mod encrypted;
mod memory;
#[cfg(any(feature = "zstd", feature = "encryption"))]
mod transformed;

use idem_core::Store;

#[cfg(feature = "cache")]
pub use cached::{CacheCounts, Cached, Caching};
#[cfg(feature = "zstd")]
pub use compressed::{Compressed, Compression};
#[cfg(feature = "encryption")]
pub use digested::{DigestedKeys, KeyDigests};
pub use dynamic::DynStore;
#[cfg(feature = "encryption")]
pub use encrypted::{Encrypted, Encryption, KeyRing, SealError};
pub use memory::MemoryStore;
#[cfg(any(feature = "zstd", feature = "encryption"))]
pub use transformed::Transformed;

/// What every store can be wrapped in, each behind the feature of its name.
pub trait StoreExt: Store {
    /// This store, with results kept compressed where that makes them smaller: see [`Compressed`]. A
    /// result is at most 16 MiB before it is compressed.
    #[cfg(feature = "zstd")]
    #[must_use]
    fn compressed(self) -> Compressed<Self> {
        self.compressed_up_to(16 << 20)
    }

    /// As [`compressed`](Self::compressed), for results of at most `bytes` before they are compressed. It
    /// bounds the memory that reading a result takes.
    #[cfg(feature = "zstd")]
    #[must_use]
    fn compressed_up_to(self, bytes: usize) -> Compressed<Self> {
        Compressed::new(self, Compression::up_to(bytes))
    }

    /// This store, with recorded results replayed from this process's memory: see [`Cached`]. At most so
    /// many, or as [`Caching`] says.
    #[cfg(feature = "cache")]
    #[must_use]
    fn cached(self, caching: impl Into<Caching>) -> Cached<Self> {
        Cached::new(self, caching.into())
    }

    /// This store, with results kept encrypted by `keys`: see [`Encrypted`].
    #[cfg(feature = "encryption")]
    #[must_use]
    fn encrypted(self, keys: KeyRing) -> Encrypted<Self> {
        Encrypted::new(self, Encryption::with(keys))
    }

    /// This store, with keys and fingerprints that cannot be read in it nor guessed without `secret`, 32
    /// bytes from a cryptographic generator: see [`DigestedKeys`].
    #[cfg(feature = "encryption")]
    #[must_use]
    fn digest_keys(self, secret: &[u8; 32]) -> DigestedKeys<Self> {
        DigestedKeys::new(self, KeyDigests::under(secret))
    }
}

impl<S: Store> StoreExt for S {}
