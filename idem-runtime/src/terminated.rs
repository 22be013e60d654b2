//! The end of a program, as its operator asks for it.

/// Returns when the process should end: at SIGTERM, which Kubernetes, systemd and Docker send, and at Ctrl-C. For the shutdown of a
/// server or a consumer; [`drain`](crate::drain) comes after it. Feature `signal`.
///
/// From the first poll on, neither signal ends the process by itself. If the process cannot listen, which is an error event, they
/// do, and this never returns.
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
pub async fn terminated() {
    if let Err(error) = signal().await {
        tracing::error!(target: "idem", event = "signals_not_heard", %error, "the process cannot listen to signals");
        std::future::pending().await
    }
}

#[cfg(unix)]
async fn signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (terminate, interrupt) = (std::pin::pin!(terminate.recv()), std::pin::pin!(interrupt.recv()));
    futures_util::future::select(terminate, interrupt).await;
    Ok(())
}

#[cfg(not(unix))]
async fn signal() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
