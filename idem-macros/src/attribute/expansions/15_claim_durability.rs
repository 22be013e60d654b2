#[idempotent(key = "{id}", claim_durability = "relaxed", store = store)]
pub async fn thumbnail(store: &Pool, id: u64) -> Result<Image, Error> {
    shrink(id).await
}

// becomes

pub async fn thumbnail(store: &Pool, id: u64) -> Result<Image, Error> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "thumbnail",
            ::core::any::type_name:: < Here >, & [("key", "{id}"), ("argument",
            "id: u64"), ("claim_durability", "relaxed"), ("returns",
            "Result<Image, Error>")],)
        );
    }
    let __idem_codec = __idem::codec::<Result<Image, Error>>();
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "thumbnail",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
        __idem::Operation::at(&SITE, &|| ())
    }
        .claim_durability(__idem::Durability::Relaxed);
    let __idem_store = __idem::store(&store);
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    let __idem_fingerprint = ::core::option::Option::None;
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < Image, Error > > { return __idem_never; } { shrink(id). await } })
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
