//! One function and one type, and copies with one change each: the cases for comparing catalogues. The effect
//! of each change on the records of `before` is in `catalogue/changes.txt`.

/// The function and the type, with the change of a case.
macro_rules! shop {
    ($module:ident, [$($option:tt)*], $argument:ident: $Argument:ty, $returns:ty, [$($fields:tt)*]) => {
        pub(crate) mod $module {
            #![allow(dead_code, unused_imports)]
            use idem::{Error, KeyPart, MemoryStore, idempotent};

            pub(crate) struct Order {
                pub(crate) id: u64,
                pub(crate) number: u64,
                pub(crate) amount: u64,
            }

            #[derive(KeyPart)]
            pub(crate) struct Sku { $($fields)* }

            #[idempotent($($option)*, store = store)]
            pub(crate) async fn charge(store: &MemoryStore, $argument: $Argument, sku: Sku) -> Result<$returns, Error> {
                Ok(<$returns>::default())
            }
        }
    };
}

shop!(before, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount], order: &Order, u64, [shop: u16, item: String]);
shop!(same, [scope = "payments.charge", fingerprint = order.amount, key = "{ order.id }/{sku}", ttl = "1440m"], order: &Order, u64, [shop: u16, item: String,]);
shop!(renamed_field, [key = "{order.number}/{sku}", scope = "payments.charge", fingerprint = order.amount], order: &Order, u64, [shop: u16, item: String]);
shop!(other_order, [key = "{sku}/{order.id}", scope = "payments.charge", fingerprint = order.amount], order: &Order, u64, [shop: u16, item: String]);
shop!(other_argument, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount], order: Box<Order>, u64, [shop: u16, item: String]);
shop!(other_scope, [key = "{order.id}/{sku}", scope = "billing.charge", fingerprint = order.amount], order: &Order, u64, [shop: u16, item: String]);
shop!(other_fingerprint, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = (order.amount, "EUR")], order: &Order, u64, [shop: u16, item: String]);
shop!(no_fingerprint, [key = "{order.id}/{sku}", scope = "payments.charge"], order: &Order, u64, [shop: u16, item: String]);
shop!(other_result, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount], order: &Order, String, [shop: u16, item: String]);
shop!(shorter, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount, ttl = "1h"], order: &Order, u64, [shop: u16, item: String]);
shop!(longer, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount, ttl = "7d"], order: &Order, u64, [shop: u16, item: String]);
shop!(other_lease, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount, lease = "1500ms"], order: &Order, u64, [shop: u16, item: String]);
shop!(in_doubt, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount, on_crash = "in_doubt"], order: &Order, u64, [shop: u16, item: String]);
shop!(reordered, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount], order: &Order, u64, [item: String, shop: u16]);

pub(crate) mod removed {
    #[derive(idem::KeyPart)]
    #[allow(dead_code)]
    pub(crate) struct Sku {
        shop: u16,
        item: String,
    }
}

#[allow(dead_code, reason = "they are in the catalogue whether they are called or not")]
pub(crate) mod clash {
    use idem::{Error, MemoryStore, idempotent};

    #[idempotent(key = "{id}", scope = "clash", store = store)]
    pub(crate) async fn charge(store: &MemoryStore, id: u8) -> Result<u8, Error> {
        Ok(id)
    }

    #[idempotent(key = "x/{id}", scope = "clash", store = store)]
    pub(crate) async fn refund(store: &MemoryStore, id: u8) -> Result<u8, Error> {
        Ok(id)
    }
}
