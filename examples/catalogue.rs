//! Prints the catalogue of this program: `cargo run --release --example catalogue`.

use idem::{Error, KeyPart, MemoryStore, idempotent};

#[derive(KeyPart)]
enum Payer {
    Customer(u64),
    Guest { mail: String },
}

#[idempotent(key = "order/{order}", fingerprint = cents, scope = "shop.charge", store = store)]
async fn charge(store: &MemoryStore, order: u64, cents: u64) -> Result<u64, Error> {
    Ok(cents)
}

struct Refunds {
    store: MemoryStore,
}

impl Refunds {
    #[idempotent(key = "{payer}/{number}", ttl = "7d", on_crash = "in_doubt", store = self.store)]
    async fn refund(&self, payer: Payer, number: u32) -> Result<u32, Error> {
        Ok(number)
    }
}

/// Nothing calls it: the catalogue has it all the same.
#[allow(dead_code)]
#[idempotent(key = "{id}", scope = "shop.generic", store = store)]
async fn never_called<K: KeyPart>(store: &MemoryStore, id: K) -> Result<(), Error> {
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    charge(&store, 1, 100).await?;
    let refunds = Refunds { store };
    refunds.refund(Payer::Customer(7), 1).await?;
    refunds.refund(Payer::Guest { mail: "a@b".into() }, 1).await?;
    print!("{}", idem::catalogue());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_catalogue_is_as_it_was_committed() {
        assert_eq!(idem::catalogue().to_string(), include_str!("catalogue.catalogue"));
    }
}
