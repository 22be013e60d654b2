#[idempotent(key = "{self.id}/{line}", scope = "payments.charge", store = self.store)]
pub async fn charge<'a>(&'a self, line: &'a str) -> Result<Receipt, ChargeError> {
    self.gateway.charge(line).await
}

// becomes

pub async fn charge<'a>(&'a self, line: &'a str) -> Result<Receipt, ChargeError> {
    use ::idem::__private as __idem;
    let codec = __idem::codec::<Result<Receipt, ChargeError>>();
    let operation = __idem::Operation::new("payments.charge");
    let store = __idem::store(&self.store);
    let key = __idem::KeyBuilder::new().part(&self.id).literal("/").part(&line);
    let fingerprint = ::core::option::Option::None;
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        Receipt, ChargeError > > { return never; } { self.gateway.charge(line). await }
        })
    );
    let result = __idem::run(codec, operation, store, key, fingerprint, body).await;
    result
}
