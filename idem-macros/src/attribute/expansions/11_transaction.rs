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
    let codec = __idem::codec::<Result<Receipt, TransferError>>();
    let operation = {
        static SITE: __idem::Site = __idem::Site::new(
            ::core::module_path!(),
            "transfer",
            ::core::file!(),
            ::core::line!(),
            ::core::column!(),
        );
        __idem::Operation::at(&SITE)
    };
    let store = __idem::transaction_store(&app.store);
    let key = __idem::KeyBuilder::new().part(&id);
    let fingerprint = ::core::option::Option::None;
    let result = {
        let entered = __idem::enter(codec, operation, store, key, fingerprint, tx).await;
        let mut entered = match entered {
            ::core::result::Result::Ok(entered) => entered,
            ::core::result::Result::Err(result) => return result,
        };
        let running = entered.running();
        let ended = {
            let tx = entered.carrier();
            let _ = &tx;
            running
                .drive(
                    ::core::pin::pin!(
                        ::core::option::Option::Some(async move { if let
                        ::core::option::Option::Some(never) =
                        ::core::option::Option::None:: < Result < Receipt, TransferError
                        > > { return never; } { app.move_money(tx, id). await } })
                    ),
                )
                .await
        };
        entered.leave(running, ended).await
    };
    result
}
