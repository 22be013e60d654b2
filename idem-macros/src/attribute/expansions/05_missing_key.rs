#[idempotent(key = "{tenant}/{note.id}", missing_key = "run", store = app.store)]
async fn notify(app: &App, tenant: u8, note: &Note) -> Result<(), Error> {
    app.mail.send(note).await
}

// becomes

async fn notify(app: &App, tenant: u8, note: &Note) -> Result<(), Error> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "notify",
            ::core::any::type_name:: < Here >, & [("key", "{tenant}/{note.id}"),
            ("argument", "tenant: u8"), ("argument", "note: &Note"), ("returns",
            "Result<(), Error>")],)
        );
    }
    let __idem_codec = __idem::codec::<Result<(), Error>>();
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::option::Option::None,
            ::core::module_path!(),
            "notify",
            true,
            __idem::Policy::new(),
        );
        __idem::Operation::at(&SITE, ::core::option::Option::None, &|| ())
    };
    let __idem_store = __idem::store(&app.store);
    let __idem_key = __idem::OptionalKey::new()
        .part(&tenant)
        .literal("/")
        .part(&note.id)
        .run_missing();
    let __idem_body = ::core::pin::pin!(
        ::core::option::Option::Some(async move { if let
        ::core::option::Option::Some(__idem_never) = ::core::option::Option::None:: <
        Result < (), Error > > { return __idem_never; } { app.mail.send(note). await } })
    );
    let __idem_result = __idem::run_or_unguarded(
            __idem_codec,
            __idem_operation,
            __idem_store,
            __idem_key,
            __idem_body,
        )
        .await;
    __idem_result
}
