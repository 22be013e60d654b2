#[idempotent(key = (tenant, order.id), store = store())]
async fn charge(tenant: &str, order: Order) -> Result<Receipt, ChargeError> {
    order.charge().await
}

// becomes

async fn charge(tenant: &str, order: Order) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "charge",
            ::core::any::type_name:: < Here >, & [("key", "{tenant}/{order.id}"),
            ("argument", "tenant: &str"), ("argument", "order: Order"), ("returns",
            "Result<Receipt, ChargeError>")],)
        );
    }
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
    let __idem_store = __idem::store(&store());
    let __idem_key = __idem::KeyBuilder::new()
        .part(&tenant)
        .literal("/")
        .part(&order.id);
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < Receipt, ChargeError > > { return __idem_never; } { order.charge().
        await } })
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
