#[idempotent(key = "{id}", transaction = tx, store = app.store)]
async fn transfer(app: &App, tx: &mut Transaction<'_, Postgres>, id: u64) -> Result<Receipt, TransferError> {
    app.move_money(tx, id).await
}

// becomes

async fn transfer(
    app: &App,
    tx: &mut Transaction<'_, Postgres>,
    id: u64,
) -> Result<Receipt, TransferError> {
    use ::idem::__private as __idem;
    {
        struct Here;
        __idem::register!(
            __idem::Registered::function(::core::module_path!(), "transfer",
            ::core::any::type_name:: < Here >, & [("key", "{id}"), ("argument",
            "id: u64"), ("returns", "Result<Receipt, TransferError>")],)
        );
    }
    let __idem_codec = __idem::codec::<Result<Receipt, TransferError>>();
    let __idem_operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::option::Option::None,
            ::core::module_path!(),
            "transfer",
            true,
            __idem::Policy::new(),
        );
        __idem::Operation::at(&SITE, ::core::option::Option::None, &|| ())
    };
    let __idem_store = __idem::transaction_store(&app.store);
    let __idem_key = __idem::KeyBuilder::new().part(&id);
    let __idem_result = {
        let __idem_entered = __idem::enter(
                __idem_codec,
                __idem_operation,
                __idem_store,
                __idem_key,
                tx,
            )
            .await;
        let mut __idem_entered = match __idem_entered {
            ::core::result::Result::Ok(__idem_entered) => __idem_entered,
            ::core::result::Result::Err(__idem_result) => return __idem_result,
        };
        let __idem_running = __idem_entered.running();
        let __idem_ended = {
            let tx = __idem_entered.carrier();
            let _ = &tx;
            __idem_running
                .drive(
                    ::core::pin::pin!(
                        ::core::option::Option::Some(async move { if let
                        ::core::option::Option::Some(__idem_never) =
                        ::core::option::Option::None:: < Result < Receipt, TransferError
                        > > { return __idem_never; } { app.move_money(tx, id). await } })
                    ),
                )
                .await
        };
        __idem_entered.leave(__idem_ended).await
    };
    __idem_result
}
