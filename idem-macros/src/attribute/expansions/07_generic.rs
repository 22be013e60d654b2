#[idempotent(key = "{id}", scope = "charge", store = store, crate = ::framework::idem)]
async fn charge<S: Store, K: KeyPart>(store: Arc<S>, id: K) -> Result<Receipt, ChargeError> {
    id.charge().await
}

// becomes

async fn charge<S: Store, K: KeyPart>(
    store: Arc<S>,
    id: K,
) -> Result<Receipt, ChargeError> {
    use ::framework::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "charge",
            ::core::any::type_name:: < Here >, & [("scope", "charge"), ("key", "{id}"),
            ("argument", "id: K"), ("returns", "Result<Receipt, ChargeError>")],)
        );
    }
    let __idem_codec = __idem::codec::<Result<Receipt, ChargeError>>();
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::option::Option::Some("charge"),
            ::core::module_path!(),
            "charge",
            true,
            __idem::Policy::new(),
        );
        __idem::Operation::at(&SITE, ::core::option::Option::None, &|| ())
    };
    let __idem_store = __idem::store(&store);
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < Receipt, ChargeError > > { return __idem_never; } { id.charge(). await }
        })
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
