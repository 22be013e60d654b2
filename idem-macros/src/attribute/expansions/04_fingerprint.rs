#[idempotent(key = "{id}", fingerprint = (order.amount, order.currency), store = app.store)]
async fn charge(app: &App, id: Uuid, order: &Order) -> Result<Receipt, ChargeError> {
    app.gateway.charge(order.amount).await
}

// becomes

async fn charge(app: &App, id: Uuid, order: &Order) -> Result<Receipt, ChargeError> {
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
    let store = __idem::store(&app.store);
    let key = __idem::KeyBuilder::new().part(&id);
    let fingerprint = ::core::option::Option::Some(
        __idem::fingerprint(&(&order.amount, &order.currency)),
    );
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        Receipt, ChargeError > > { return never; } { app.gateway.charge(order.amount).
        await } })
    );
    let result = __idem::run(codec, operation, store, key, fingerprint, body).await;
    result
}
