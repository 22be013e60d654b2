#[idempotent(key = "{id}", key_fn = charge_key, retry_after = "1s..5m", record_if = Receipt::is_final, store_timeout = "2s", store = store)]
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
        .record_if(Receipt::is_final);
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::option::Option::None,
            ::core::module_path!(),
            "charge",
            true,
            __idem::Policy {
                store_timeout: ::core::time::Duration::from_millis(2000),
                retry_after: ::core::option::Option::Some(
                    __idem::RetryAfter::between(
                        ::core::time::Duration::from_millis(1000),
                        ::core::option::Option::Some(
                            ::core::time::Duration::from_millis(300000),
                        ),
                    ),
                ),
                ..__idem::Policy::new()
            },
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
///The record of a call of `charge` with these arguments.
#[allow(
    dead_code,
    unused_variables,
    unused_mut,
    clippy::all,
    clippy::pedantic,
    clippy::nursery
)]
pub fn charge_key(store: &Pool, id: u64) -> ::idem::__private::KeyOfCall {
    use ::idem::__private as __idem;
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    __idem::key_of_call(
        {
            static SITE: __idem::Site = __idem::Site::new(
                ::core::option::Option::None,
                ::core::module_path!(),
                "charge",
                false,
                __idem::Policy::new(),
            );
            __idem::Operation::at(&SITE, ::core::option::Option::None, &|| ())
        },
        __idem_key,
    )
}
