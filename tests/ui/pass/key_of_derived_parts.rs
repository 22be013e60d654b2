//! Every shape that `#[derive(KeyPart)]` takes.
use idem::{Error, MemoryStore, idempotent};

use idem::KeyPart;

#[derive(KeyPart)]
struct Id(u64);

#[derive(KeyPart)]
struct Pair<A, B>(A, B);

#[derive(KeyPart)]
struct Sku<'a, T: ?Sized> {
    warehouse: u16,
    item: &'a T,
}

#[derive(KeyPart)]
enum Region {
    #[key_part(rename = "eu-west")]
    EuWest,
    Us {},
}

#[derive(KeyPart)]
enum Place<'a, T: ?Sized> {
    Nowhere,
    Shop(u16, Id),
    #[key_part(rename = "w")]
    Web { host: &'a T },
}

#[idempotent(key = "{id}/{pair}/{sku}/{region}/{place}", store = store)]
async fn charge(
    store: &MemoryStore,
    id: Id,
    pair: Pair<u8, String>,
    sku: &Sku<'_, str>,
    region: Region,
    place: Place<'_, str>,
) -> Result<u8, Error> {
    Ok(1)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    let pair = Pair(1, String::new());
    let sku = Sku { warehouse: 1, item: "a" };
    drop(charge(&store, Id(1), pair, &sku, Region::EuWest, Place::Web { host: "a" }));
    let _ = (Region::Us {}, Place::<str>::Nowhere, Place::<str>::Shop(1, Id(1)));
}
