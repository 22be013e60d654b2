//! Which layers a store was used under, according to its marks.
//!
//! Owns [`Layers`], for tools that open a store without its service's settings.

use super::marks;
use idem_core::Store;
use idem_core::StoreError;

/// The layers of [`StoreExt`](crate::StoreExt) under which a store was used, according to their marks.
///
/// A mark is a record that a layer leaves in the store at the first call through the layer. Only `encrypted`
/// and `digest_keys` leave marks. A store without marks was never used through these two layers, or was last
/// used before idem wrote marks.
///
/// ```
/// use idem::{KeyRing, Layers, MemoryStore, Operation, StoreExt as _};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bare = MemoryStore::new();
/// assert!(!Layers::of(&bare).await?.encrypted);
/// let store = bare.clone().encrypted(KeyRing::new(1, &[7; 32]));
/// Operation::new("shop.charge").run(&store, "order/42", || async { Ok::<_, idem::Error>(1) }).await?;
/// assert!(Layers::of(&bare).await?.encrypted);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layers {
    /// Results are encrypted: [`StoreExt::encrypted`](crate::StoreExt::encrypted).
    pub encrypted: bool,
    /// Keys are digests: [`StoreExt::digest_keys`](crate::StoreExt::digest_keys).
    pub digested: bool,
    /// `digest_keys` was called before `encrypted`. Avoid this order: a tool sees only the digests of keys,
    /// but needs the key itself to decrypt a result.
    pub digested_within: bool,
}

impl Layers {
    /// Reads the marks that wrappers left in this store. `store` must be the bare store, without wrappers.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub async fn of<S: Store>(store: &S) -> Result<Self, StoreError> {
        let read = async |layer: &str| store.get(&marks::name(layer, None)?).await;
        let encrypted = read(super::encrypted::LAYER).await?;
        let within = marks::over(encrypted.as_ref().and_then(|record| record.result.as_ref()));
        Ok(Self {
            encrypted: encrypted.is_some(),
            digested: read(super::digested::LAYER).await?.is_some(),
            digested_within: within.iter().any(|layer| layer == super::digested::LAYER),
        })
    }
}
