//! Shapes that `#[derive(KeyPart)]` takes, with lifetimes and with type parameters that are `?Sized`.
use idem::{Error, KeyPart, MemoryStore, idempotent};

#[derive(KeyPart)]
struct Id(u64);

#[derive(KeyPart)]
struct Sku<'a, T: ?Sized> {
    warehouse: u16,
    item: &'a T,
}

#[derive(KeyPart)]
enum Place<'a, T: ?Sized> {
    Nowhere {},
    Shop(u16, Id),
    #[key_part(rename = "w")]
    Web {
        host: &'a T,
    },
}

#[idempotent(key = "{sku}/{place}", store = store)]
async fn charge(store: &MemoryStore, sku: &Sku<'_, str>, place: Place<'_, str>) -> Result<u8, Error> {
    Ok(1)
}
