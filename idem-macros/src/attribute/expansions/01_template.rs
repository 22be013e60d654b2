#[idempotent(key = "order/{order.id}", ttl = "24h", store = app.store)]
async fn charge(app: &App, order: &Order) -> Result<Receipt, ChargeError> {
    app.gateway.charge(order.amount).await
}

// becomes

async fn charge(app: &App, order: &Order) -> Result<Receipt, ChargeError> {
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
    }
        .ttl(::core::time::Duration::from_millis(86_400_000));
    let store = __idem::store(&app.store);
    let key = __idem::KeyBuilder::new().literal("order/").part(&order.id);
    let fingerprint = ::core::option::Option::None;
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        Receipt, ChargeError > > { return never; } { app.gateway.charge(order.amount).
        await } })
    );
    let result = __idem::run(codec, operation, store, key, fingerprint, body).await;
    result
}
