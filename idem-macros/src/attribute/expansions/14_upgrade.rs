#[idempotent(key = "{id}", upgrade = Receipt::of_last_year, store = store)]
pub async fn charge(store: &Pool, id: u64) -> Result<Receipt, ChargeError> {
    id.charge().await
}

// becomes

pub async fn charge(store: &Pool, id: u64) -> Result<Receipt, ChargeError> {
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
        .upgrade(Receipt::of_last_year);
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "charge",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
        __idem::Operation::at(&SITE, &|| ())
    };
    let __idem_store = __idem::store(&store);
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    let __idem_fingerprint = ::core::option::Option::None;
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
            __idem_fingerprint,
            __idem_body,
        )
        .await;
    __idem_result
}
