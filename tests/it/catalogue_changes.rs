//! One function and one type, and copies with one change each: the cases for comparing catalogues.

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
shop!(other_lease, [key = "{order.id}/{sku}", scope = "payments.charge", fingerprint = order.amount, lease = "5s"], order: &Order, u64, [shop: u16, item: String]);
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

/// Each module with the reported effect on the records of `before`.
pub(crate) const CASES: &[(&str, &str)] = &[
    (
        "renamed_field",
        "payments.charge: the key was `{order.id}/{sku}` and is `{order.number}/{sku}`: records of the last 24h are not \
         found, and calls that repeat them run again",
    ),
    (
        "other_order",
        "payments.charge: the key was `{order.id}/{sku}` and is `{sku}/{order.id}`: records of the last 24h are not \
         found, and calls that repeat them run again",
    ),
    (
        "other_argument",
        "payments.charge: the key is made of `order: Box<Order>, sku: Sku`, which was `order: &Order, sku: Sku`: unless \
         every value is rendered as before, records of the last 24h are not found, and calls that repeat them run again",
    ),
    (
        "other_scope",
        "shop::charge: the scope was `payments.charge` and is `billing.charge`: records of the last 24h are not found, \
         and calls that repeat them run again; `scope = \"payments.charge\"` keeps them",
    ),
    (
        "other_fingerprint",
        "payments.charge: the fingerprint was `order.amount` and is `(order.amount, \"EUR\")`: calls that repeat those of \
         the last 24h are refused as a mismatch (`Error::Mismatch`), their results are not given",
    ),
    (
        "no_fingerprint",
        "payments.charge: the fingerprint was `order.amount` and is nothing: calls with other values under one key are \
         given its result",
    ),
    (
        "other_result",
        "payments.charge: the return type was `Result<u64, Error>` and is `Result<String, Error>`: results of the last \
         24h may not decode, and then calls that repeat them get `Error::Undecodable`: keep the form that serde writes, \
         or give the new one a new scope",
    ),
    ("shorter", "payments.charge: the ttl was 24h and is 1h: duplicates that come later than 1h run again"),
    (
        "longer",
        "payments.charge: the ttl was 24h and is 7d: results that are already there are still kept for 24h only",
    ),
    (
        "other_lease",
        "payments.charge: the lease was 30s and is 5s: what is in flight keeps the old one; workers that are silent for \
         longer than the new one are taken for dead",
    ),
    (
        "in_doubt",
        "payments.charge: after a crash keys are in doubt until an operator has looked, and were run again: `idem list \
         --state in_doubt`",
    ),
    (
        "reordered",
        "shop::Sku: it was rendered as `shop: u16, item: String` and is as `item: String, shop: u16`: keys with it are \
         not found where the values or their order differ, and their calls run again",
    ),
    (
        "removed",
        "payments.charge: the operation is gone: its records stay until they expire (24h), and nobody is given their \
         results; under another name and path its calls run again",
    ),
];
