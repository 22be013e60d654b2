//! Opens the store that the command line of an example or a rig names.

#[cfg(feature = "servers")]
pub mod servers;

use std::str::FromStr;

use idem_cli::store::Names;
pub use idem_cli::store::StoreUrl;
use idem_core::StoreError;
use idem_runtime::{DynStore, MemoryStore};

/// The forms that a user may write.
pub const FORMS: &str = "sqlite:FILE | redis://.. | postgres://.. | mysql://.. | nats-kv://HOST:PORT/BUCKET | object:s3://BUCKET/PREFIX | object:FOLDER | memory";

/// A store that is not open yet. It has no `Debug`, because a URL may contain a password.
#[derive(Clone)]
pub enum Choice {
    /// The store in this process's memory.
    Memory,
    /// `dynamodb://host:port/TABLE`, on an emulator.
    #[cfg(feature = "dynamodb")]
    Emulated {
        /// The address of the emulator.
        endpoint: String,
        /// The name of the table.
        table: String,
    },
    /// Any other store, by its URL.
    Url(StoreUrl),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[cfg(feature = "dynamodb")]
        if let Some(rest) = text.strip_prefix("dynamodb://")
            && let Some((host, table)) = rest.split_once('/').filter(|(host, _)| !host.contains('?'))
        {
            return Ok(Self::Emulated { endpoint: format!("http://{host}"), table: table.to_owned() });
        }
        if text == "memory" {
            return Ok(Self::Memory);
        }
        StoreUrl::parse(text).map(Self::Url)
    }
}

impl Choice {
    /// Opens the store, or connects to it. Creates its file or table if it is missing.
    ///
    /// # Errors
    ///
    /// The errors of the store.
    pub async fn open(&self) -> Result<DynStore, StoreError> {
        Ok(match self {
            Self::Memory => DynStore::new(MemoryStore::new()),
            #[cfg(feature = "dynamodb")]
            Self::Emulated { endpoint, table } => DynStore::new(emulated(endpoint, table).await?),
            Self::Url(url) => url.open(&Names::default()).await?,
        })
    }
}

/// A table of an emulator on this machine, created if it is missing.
#[cfg(feature = "dynamodb")]
async fn emulated(endpoint: &str, table: &str) -> Result<idem_dynamodb::DynamoDbStore, StoreError> {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};

    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "examples"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    // All workers run on one machine, so their clocks agree.
    let store =
        idem_dynamodb::DynamoDbStore::builder(client, table).clock_skew(std::time::Duration::ZERO).build();
    store.create_table().await?;
    Ok(store)
}
