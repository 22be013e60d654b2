//! Which store a program uses, from one word of its command line. Included by the examples.

#[cfg(feature = "cli-aws")]
#[path = "../../src/bin/idem/dynamodb.rs"]
mod dynamodb;
#[path = "../../src/bin/idem/store.rs"]
mod url;

use std::path::PathBuf;
use std::str::FromStr;

use idem::{DynStore, MemoryStore, SqliteStore, StoreError};

use self::url::StoreUrl;

/// What a user may write.
#[allow(dead_code, reason = "not every example shows it")]
pub(crate) const FORMS: &str = "sqlite:FILE | redis://.. | postgres://.. | memory";

/// A store by name, not open yet. It has no `Debug`: a URL may hold a password.
#[derive(Clone)]
pub(crate) enum Choice {
    Memory,
    Sqlite(PathBuf),
    /// `dynamodb://host:port/TABLE`, of an emulator.
    #[cfg(feature = "dynamodb")]
    Emulated {
        endpoint: String,
        table: String,
    },
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
        Ok(match StoreUrl::parse(text)? {
            StoreUrl::Sqlite(file) => Self::Sqlite(file),
            url => Self::Url(url),
        })
    }
}

impl Choice {
    /// Opens it, or connects to it; what is not there is made.
    pub(crate) async fn open(&self) -> Result<DynStore, StoreError> {
        Ok(match self {
            Self::Memory => DynStore::new(MemoryStore::new()),
            Self::Sqlite(file) => DynStore::new(SqliteStore::open(file)?),
            #[cfg(feature = "dynamodb")]
            Self::Emulated { endpoint, table } => DynStore::new(emulated(endpoint, table).await?),
            Self::Url(url) => url.open(&url::Names::default()).await?,
        })
    }
}

/// A table of an emulator on this machine, made where it is not there.
#[cfg(feature = "dynamodb")]
async fn emulated(endpoint: &str, table: &str) -> Result<idem::DynamoDbStore, StoreError> {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};

    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "examples"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    // One machine, one clock.
    let store = idem::DynamoDbStore::builder(client, table).clock_skew(std::time::Duration::ZERO).build();
    store.create_table().await?;
    Ok(store)
}
