//! Wakes the workers when a message was enqueued.

use std::future::pending;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::super::handle::Outbox;
use super::settings::Settings;

/// Wakes a worker by `ring` after each `NOTIFY`, and whenever the relay may have missed one.
///
/// A failure here delays messages, but loses none, because the workers also poll the outbox.
pub(super) async fn listen(outbox: &Outbox, settings: &Settings, ring: &Notify) {
    let mut failures = 0;
    loop {
        if outbox.0.connector.opener.is_shared() {
            // Behind a pooler, listening is useless: the server's notifications would go to the client that
            // has the session at that time.
            return pending().await;
        }
        let mut heard = false;
        let _ = hear(outbox, ring, &mut heard).await;
        failures = if heard { 1 } else { failures + 1 };
        sleep(settings.pause(failures)).await;
    }
}

async fn hear(outbox: &Outbox, ring: &Notify, heard: &mut bool) -> Result<(), sqlx::Error> {
    // `PgListener` needs a pool, so this is a pool of one connection.
    let options = outbox.0.connector.options().await;
    let options = options.map_err(|error| sqlx::Error::Configuration(error.into()))?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(outbox.0.connector.timeout())
        .connect_lazy_with(options.disable_statement_logging());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(&outbox.0.names.channel).await?;
    ring.notify_one();
    // `None` means that the connection was lost, and perhaps notifications with it.
    while listener.try_recv().await?.is_some() {
        *heard = true;
        ring.notify_one();
    }
    Ok(())
}
