#[idempotent(key = "{id}", recover = Self::find, store = self.store)]
async fn charge(&self, id: u64) -> Result<Receipt, ChargeError> {
    self.gateway.charge(id).await
}

// becomes

async fn charge(&self, id: u64) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    let codec = __idem::codec::<Result<Receipt, ChargeError>>();
    let recovering = __idem::recovering(&codec);
    let operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "charge",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
        __idem::Operation::at_types(
            &SITE,
            ::core::option::Option::Some(::core::any::type_name::<Self>()),
            &[],
        )
    }
        .recovering();
    let store = __idem::store(&self.store);
    let key = __idem::KeyBuilder::new().part(&id);
    let fingerprint = ::core::option::Option::None;
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        Receipt, ChargeError > > { return never; } match recovering.begin(). await {
        ::core::result::Result::Ok(::core::option::Option::None) => {}
        ::core::result::Result::Ok(::core::option::Option::Some(recovery)) => { let
        recovered = recovering.ask(Self::find(& self, & recovery, & id)). await; if let
        ::core::option::Option::Some(result) = recovered { return result; } }
        ::core::result::Result::Err(result) => return result, } { self.gateway.charge(id)
        . await } })
    );
    let result = __idem::run(codec, operation, store, key, fingerprint, body).await;
    result
}
