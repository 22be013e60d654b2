//! The signals by which an operator ends a program.

use std::future::pending;
use std::io;

/// A future that ends when the process should end: at Ctrl-C, and on Unix also at SIGTERM, which Kubernetes,
/// systemd and Docker send. Use it to shut down a server or a consumer, before [`drain`](crate::drain). Needs
/// the feature `signal`.
///
/// From this call on, neither signal ends the process by itself. If the process cannot listen for the
/// signals, an error event reports this. Then the signals end the process as usual, and the future never
/// ends.
///
/// ```no_run
/// # use idem_runtime as idem;
/// # async fn serve(_: impl Future<Output = ()>) {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
///
/// serve(idem::terminated()).await;
/// let left = idem::drain(Duration::from_secs(20)).await;
/// # let _ = left;
/// # }
/// ```
///
/// # Panics
///
/// Outside a tokio runtime with I/O enabled.
#[must_use = "the signals no longer end the process, so something must wait for them"]
pub fn terminated() -> impl Future<Output = ()> + Send + 'static {
    let signals = signals().inspect_err(|error| {
        tracing::error!(target: "idem", event = "signals_not_heard", %error, "the process cannot listen to signals");
    });
    async move {
        match signals {
            Ok(ended) => ended.await,
            Err(_) => pending().await,
        }
    }
}

#[cfg(unix)]
fn signals() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use std::pin::pin;

    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        futures_util::future::select(pin!(terminate.recv()), pin!(interrupt.recv())).await;
    })
}

#[cfg(not(unix))]
fn signals() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        interrupt.recv().await;
    })
}
