#[idempotent(key = "{id}", wait = "5s", lease = LEASE, on_crash = "in_doubt", store = app.store)]
async fn charge(app: &App, id: u64) -> Result<Receipt, ChargeError> {
    app.gateway.charge(id).await
}

// becomes

async fn charge(app: &App, id: u64) -> Result<Receipt, ChargeError> {
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
        .lease(LEASE)
        .wait(::core::time::Duration::from_millis(5_000))
        .on_crash(__idem::OnCrash::InDoubt);
    let store = __idem::store(&app.store);
    let key = __idem::KeyBuilder::new().part(&id);
    let fingerprint = ::core::option::Option::None;
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        Receipt, ChargeError > > { return never; } { app.gateway.charge(id). await } })
    );
    let result = __idem::run(codec, operation, store, key, fingerprint, body).await;
    result
}
