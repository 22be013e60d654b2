#[idempotent(key = "{id}", terminal = ChargeError::is_final, max_attempts = 5, store = app.store)]
async fn charge(app: &App, id: u64) -> Result<Receipt, ChargeError> {
    app.gateway.charge(id).await
}

// becomes

async fn charge(app: &App, id: u64) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "charge",
            ::core::any::type_name:: < Here >, & [("key", "{id}"), ("argument",
            "id: u64"), ("returns", "Result<Receipt, ChargeError>")],)
        );
    }
    let __idem_codec = __idem::codec::<Result<Receipt, ChargeError>>()
        .terminal(ChargeError::is_final);
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "charge",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
            __idem::Policy::new().max_attempts(5),
        );
        __idem::Operation::at(&SITE, &|| ())
    };
    let __idem_store = __idem::store(&app.store);
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    let __idem_fingerprint = ::core::option::Option::None;
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < Receipt, ChargeError > > { return __idem_never; } { app.gateway
        .charge(id). await } })
    );
    let __idem_result = __idem::run(
            __idem_codec,
            __idem_operation,
            __idem_store,
            __idem_key,
            __idem_fingerprint,
            __idem_body,
        )
        .await;
    __idem_result
}
