#[idempotent(key = "{id}", store = store, crate = ::framework::idem)]
async fn charge<S: Store, K: KeyPart>(store: Arc<S>, id: K) -> Result<Receipt, ChargeError> {
    id.charge().await
}

// becomes

async fn charge<S: Store, K: KeyPart>(
    store: Arc<S>,
    id: K,
) -> Result<Receipt, ChargeError> {
    use ::framework::idem::__private as __idem;
    let codec = __idem::codec::<Result<Receipt, ChargeError>>();
    let operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "charge",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
        __idem::Operation::at_types(
            &SITE,
            ::core::option::Option::None,
            &[::core::any::type_name::<S>(), ::core::any::type_name::<K>()],
        )
    };
    let store = __idem::store(&store);
    let key = __idem::KeyBuilder::new().part(&id);
    let fingerprint = ::core::option::Option::None;
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        Receipt, ChargeError > > { return never; } { id.charge(). await } })
    );
    let result = __idem::run(codec, operation, store, key, fingerprint, body).await;
    result
}
