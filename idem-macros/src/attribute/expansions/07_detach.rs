#[idempotent(key = "{id}", detach, store = app.store)]
async fn charge(State(app): State<App>, Path(id): Path<u64>) -> Result<Receipt, ChargeError> {
    app.gateway.charge(id).await
}

// becomes

async fn charge(
    State(app): State<App>,
    Path(id): Path<u64>,
) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    __idem::detachable::<State<App>>();
    __idem::detachable::<Path<u64>>();
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
    let fingerprint = ::core::option::Option::None;
    let body = async move {
        if let ::core::option::Option::Some(never) = ::core::option::Option::None::<
            Result<Receipt, ChargeError>,
        > {
            return never;
        }
        { app.gateway.charge(id).await }
    };
    let result = __idem::run_detached(codec, operation, store, key, fingerprint, body)
        .await;
    result
}
