//! The smallest program that uses the enabled features of the library. Without features, it does not use the
//! library. The program is only built and never run.

#[cfg(feature = "macros")]
mod uses;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        #[cfg(feature = "macros")]
        uses::all().await?;
        Ok(())
    })
}
