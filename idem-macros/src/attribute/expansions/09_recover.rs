#[idempotent(key = "{id}", recover = Self::find, store = self.store)]
async fn charge(&self, id: u64) -> Result<Receipt, ChargeError> {
    self.gateway.charge(id).await
}

// becomes

async fn charge(&self, id: u64) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::method(::core::module_path!(), "charge",
            ::core::any::type_name:: < Here >, & [("key", "{id}"), ("argument",
            "id: u64"), ("returns", "Result<Receipt, ChargeError>")],)
        );
    }
    let __idem_codec = __idem::codec::<Result<Receipt, ChargeError>>();
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::option::Option::None,
            ::core::module_path!(),
            "charge",
            true,
            __idem::Policy {
                recovers: true,
                ..__idem::Policy::new()
            },
        );
        __idem::Operation::at(
            &SITE,
            ::core::option::Option::Some(::core::any::type_name::<Self>()),
            &|| (),
        )
    };
    let __idem_store = __idem::store(&self.store);
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < Receipt, ChargeError > > { return __idem_never; } match __idem_codec
        .begin_recovery(). await {
        ::core::result::Result::Ok(::core::option::Option::None) => {}
        ::core::result::Result::Ok(::core::option::Option::Some(__idem_recovery)) => {
        let __idem_recovered = __idem_codec.recover(Self::find(& self, & __idem_recovery,
        & id)). await; if let ::core::option::Option::Some(__idem_result) =
        __idem_recovered { return __idem_result; } }
        ::core::result::Result::Err(__idem_result) => return __idem_result, } { self
        .gateway.charge(id). await } })
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
