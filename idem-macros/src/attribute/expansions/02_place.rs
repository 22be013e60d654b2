#[idempotent(key = "order.id()", store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<Receipt, ChargeError> {
    order.charge().await
}

// becomes

async fn charge(store: &MemoryStore, order: Order) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    let codec = __idem::codec::<Result<Receipt, ChargeError>>();
    let operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "charge",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
        __idem::Operation::at(&SITE)
    };
    let store = __idem::store(&store);
    let key = __idem::KeyBuilder::new().part(&(&order).id());
    let fingerprint = ::core::option::Option::None;
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        Receipt, ChargeError > > { return never; } { order.charge(). await } })
    );
    let result = __idem::run(codec, operation, store, key, fingerprint, body).await;
    result
}
