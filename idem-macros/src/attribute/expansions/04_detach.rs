#[idempotent(key = "{id}", detach, store = app.store)]
async fn charge(State(app): State<App>, Path(id): Path<u64>, _permit: Permit, #[cfg(feature = "audit")] _audit: Audit) -> Result<Receipt, ChargeError> {
    app.gateway.charge(id).await
}

// becomes

async fn charge(
    State(app): State<App>,
    Path(id): Path<u64>,
    _permit: Permit,
    #[cfg(feature = "audit")]
    _audit: Audit,
) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "charge",
            ::core::any::type_name:: < Here >, & [("key", "{id}"), ("argument",
            "Path(id): Path<u64>"), ("returns", "Result<Receipt, ChargeError>")],)
        );
    }
    __idem::detachable::<State<App>>();
    __idem::detachable::<Path<u64>>();
    __idem::detachable::<Permit>();
    #[cfg(feature = "audit")] __idem::detachable::<Audit>();
    let __idem_codec = __idem::codec::<Result<Receipt, ChargeError>>();
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::option::Option::None,
            ::core::module_path!(),
            "charge",
            true,
            __idem::Policy::new(),
        );
        __idem::Operation::at(&SITE, ::core::option::Option::None, &|| ())
    };
    let __idem_store = __idem::store(&app.store);
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    let __idem_body = async move {
        #[allow(clippy::used_underscore_binding)]
        let _ = &app;
        #[allow(clippy::used_underscore_binding)]
        let _ = &id;
        #[allow(clippy::used_underscore_binding)]
        let _ = &_permit;
        #[cfg(feature = "audit")]
        #[allow(clippy::used_underscore_binding)]
        let _ = &_audit;
        if let ::core::option::Option::Some(__idem_never) = ::core::option::Option::None::<
            Result<Receipt, ChargeError>,
        > {
            return __idem_never;
        }
        { app.gateway.charge(id).await }
    };
    let __idem_result = __idem::run_detached(
            __idem_codec,
            __idem_operation,
            __idem_store,
            __idem_key,
            __idem_body,
        )
        .await;
    __idem_result
}
