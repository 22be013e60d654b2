#[idempotent(key = ("order/{id}"), fingerprint = (order.amount, order.currency), terminal = ChargeError::is_final, max_attempts = 5, wait = "5s", timeout = "2m", lease = LEASE, on_crash = "in_doubt", store = app.store)]
async fn charge(app: &App, id: u64, order: &Order) -> Result<Receipt, ChargeError> {
    app.gateway.charge(id, order).await
}

// becomes

async fn charge(app: &App, id: u64, order: &Order) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "charge",
            ::core::any::type_name:: < Here >, & [("key", "order/{id}"), ("argument",
            "id: u64"), ("fingerprint", "(order.amount, order.currency)"), ("lease",
            "LEASE"), ("on_crash", "in_doubt"), ("returns",
            "Result<Receipt, ChargeError>")],)
        );
    }
    let __idem_codec = __idem::codec::<Result<Receipt, ChargeError>>()
        .terminal(ChargeError::is_final);
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::option::Option::None,
            ::core::module_path!(),
            "charge",
            true,
            __idem::Policy {
                wait: ::core::time::Duration::from_millis(5000),
                timeout: ::core::option::Option::Some(
                    ::core::time::Duration::from_millis(120000),
                ),
                on_crash: __idem::OnCrash::InDoubt,
                max_attempts: ::core::option::Option::Some(5),
                ..__idem::Policy::new()
            },
        );
        __idem::Operation::at(&SITE, ::core::option::Option::None, &|| ())
    }
        .lease(LEASE);
    let __idem_store = __idem::store(&app.store);
    let __idem_key = __idem::KeyBuilder::new().literal("order/").part(&id);
    let __idem_operation = __idem_operation
        .with_fingerprint(__idem::fingerprint(&(&order.amount, &order.currency)));
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < Receipt, ChargeError > > { return __idem_never; } { app.gateway
        .charge(id, order). await } })
    );
    let __idem_result = __idem::run(
            __idem_codec,
            __idem_operation,
            __idem_store,
            __idem_key,
            __idem_body,
        )
        .await;
    __idem_result
}
