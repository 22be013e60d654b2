//! Which store a program uses, from one word of its command line. Included by the examples.

use std::path::PathBuf;
use std::str::FromStr;

use idem::{DynStore, MemoryStore, SqliteStore, StoreError};

/// What a user may write.
pub(crate) const FORMS: &str = "sqlite:FILE | redis://.. | postgres://.. | memory";

/// A store by name, not open yet. It has no `Debug`: a URL may hold a password.
#[derive(Clone)]
pub(crate) enum Choice {
    Memory,
    Sqlite(PathBuf),
    #[cfg(feature = "redis")]
    Redis(String),
    /// `redis-cluster://host:port,host:port`.
    #[cfg(feature = "redis-cluster")]
    RedisCluster(Vec<String>),
    /// `redis-sentinel://SERVICE@host:port,host:port`, with `?replicas=N` to wait for N replicas.
    #[cfg(feature = "redis-sentinel")]
    RedisSentinel {
        service: String,
        sentinels: Vec<String>,
        replicas: u32,
    },
    /// `dynamodb://host:port/TABLE`, of an emulator.
    #[cfg(feature = "dynamodb")]
    DynamoDb {
        endpoint: String,
        table: String,
    },
    #[cfg(feature = "postgres")]
    Postgres(String),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "sqlite" if !rest.is_empty() => Ok(Self::Sqlite(PathBuf::from(rest))),
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+unix" => Ok(Self::Redis(text.to_owned())),
            #[cfg(feature = "redis-cluster")]
            "redis-cluster" => Ok(Self::RedisCluster(urls(rest))),
            #[cfg(feature = "redis-sentinel")]
            "redis-sentinel" => {
                let wrong = || "write redis-sentinel://SERVICE@host:port,..[?replicas=N]".to_owned();
                let (rest, replicas) = rest.split_once("?replicas=").unwrap_or((rest, "0"));
                let (service, nodes) = rest.trim_start_matches("//").split_once('@').ok_or_else(wrong)?;
                let replicas = replicas.parse().map_err(|_| wrong())?;
                Ok(Self::RedisSentinel { service: service.to_owned(), sentinels: urls(nodes), replicas })
            }
            #[cfg(feature = "dynamodb")]
            "dynamodb" => {
                let (host, table) = rest
                    .trim_start_matches("//")
                    .split_once('/')
                    .ok_or_else(|| "write dynamodb://host:port/TABLE".to_owned())?;
                Ok(Self::DynamoDb { endpoint: format!("http://{host}"), table: table.to_owned() })
            }
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            _ if kind.starts_with("redis") => Err(format!(
                "write one of {FORMS}; a program built without the feature `redis` takes no Redis"
            )),
            _ => Err(format!("write one of {FORMS}")),
        }
    }
}

#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn urls(nodes: &str) -> Vec<String> {
    nodes.trim_start_matches("//").split(',').map(|node| format!("redis://{node}/")).collect()
}

impl Choice {
    /// Opens it, or connects to it.
    pub(crate) async fn open(&self) -> Result<DynStore, StoreError> {
        Ok(match self {
            Self::Memory => DynStore::new(MemoryStore::new()),
            Self::Sqlite(file) => DynStore::new(SqliteStore::open(file)?),
            #[cfg(feature = "redis")]
            Self::Redis(url) => DynStore::new(idem::RedisStore::connect(url).await?),
            #[cfg(feature = "redis-cluster")]
            Self::RedisCluster(nodes) => DynStore::new(idem::RedisStore::cluster(nodes).connect().await?),
            #[cfg(feature = "redis-sentinel")]
            Self::RedisSentinel { service, sentinels, replicas } => {
                let builder = idem::RedisStore::sentinel(service, sentinels);
                let within = std::time::Duration::from_millis(500);
                let builder = if *replicas > 0 { builder.wait_replicas(*replicas, within) } else { builder };
                DynStore::new(builder.connect().await?)
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb { endpoint, table } => DynStore::new(dynamodb(endpoint, table).await?),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => DynStore::new(idem::PostgresStore::connect(url).await?),
        })
    }
}

/// A table of an emulator on this machine, made where it is not there.
#[cfg(feature = "dynamodb")]
async fn dynamodb(endpoint: &str, table: &str) -> Result<idem::DynamoDbStore, StoreError> {
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
