#[idempotent(key = "{self.id}/{line}", store = self.store)]
pub async fn charge<'a>(&'a self, line: &'a str) -> Result<Receipt, ChargeError> {
    self.gateway.charge(line).await
}

// becomes

pub async fn charge<'a>(&'a self, line: &'a str) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::method(::core::module_path!(), "charge",
            ::core::any::type_name:: < Here >, & [("key", "{self.id}/{line}"),
            ("argument", "&'a self"), ("argument", "line: &'a str"), ("returns",
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
        __idem::Operation::at(
            &SITE,
            ::core::option::Option::Some(::core::any::type_name::<Self>()),
            &|| (),
        )
    };
    let __idem_store = __idem::store(&self.store);
    let __idem_key = __idem::KeyBuilder::new().part(&self.id).literal("/").part(&line);
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < Receipt, ChargeError > > { return __idem_never; } { self.gateway
        .charge(line). await } })
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
