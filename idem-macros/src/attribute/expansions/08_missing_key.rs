#[idempotent(key = "{tenant}/{note.id}", missing_key = "run", store = app.store)]
async fn notify(app: &App, tenant: u8, note: &Note) -> Result<(), Error> {
    app.mail.send(note).await
}

// becomes

async fn notify(app: &App, tenant: u8, note: &Note) -> Result<(), Error> {
    use ::idem::__private as __idem;
    let codec = __idem::codec::<Result<(), Error>>();
    let operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "notify",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
        __idem::Operation::at(&SITE)
    };
    let store = __idem::store(&app.store);
    let key = __idem::OptionalKey::new()
        .part(&tenant)
        .literal("/")
        .part(&note.id)
        .run_missing();
    let fingerprint = ::core::option::Option::None;
    let body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(never) = ::core::option::Option::None:: < Result <
        (), Error > > { return never; } { app.mail.send(note). await } })
    );
    let result = __idem::run_or_plainly(codec, operation, store, key, fingerprint, body)
        .await;
    result
}
