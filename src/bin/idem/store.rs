//! Which store is meant, from a URL. Included by the examples, too.
//!
//! Owns the URLs and what opens them; it knows nothing of commands. A URL may hold a password, so it is never
//! repeated, and nothing here has a `Debug`.

use idem::{DynStore, StoreError};

/// What a user may write.
pub(crate) const FORMS: &str = "sqlite:FILE, redis://.., rediss://.., redis-cluster://.., redis-sentinel://.., \
                                postgres://.. or dynamodb://TABLE";

/// A store by name, not open yet.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
    #[cfg(feature = "redis")]
    Redis(String),
    /// `redis-cluster://[user:password@]host:port,host:port`.
    #[cfg(feature = "redis-cluster")]
    RedisCluster(Vec<String>),
    /// `redis-sentinel://[user:password@]SERVICE@host:port,host:port`, with `?replicas=N` to wait for N replicas.
    #[cfg(feature = "redis-sentinel")]
    RedisSentinel { service: String, sentinels: Vec<String>, replicas: u32 },
    #[cfg(feature = "postgres")]
    Postgres(String),
    #[cfg(feature = "cli-aws")]
    DynamoDb(super::dynamodb::Table),
    /// No store is built in.
    #[cfg(not(any(feature = "sqlite", feature = "redis", feature = "postgres", feature = "cli-aws")))]
    #[allow(dead_code, reason = "nobody can make one")]
    Nothing(std::convert::Infallible),
}

/// What a store is told besides its URL.
#[derive(Clone, Default)]
#[allow(dead_code, reason = "what is read of it depends on the stores that are built in")]
pub(crate) struct Names {
    /// What keys begin with, on Redis and DynamoDB.
    pub(crate) prefix: Option<String>,
    /// The schema and the table, on PostgreSQL.
    pub(crate) schema: Option<String>,
    pub(crate) table: Option<String>,
    /// Whether nothing is to be made or migrated.
    pub(crate) must_exist: bool,
}

/// What is said where a store's feature is off.
#[allow(dead_code, reason = "with all features on nothing is missing")]
fn without(feature: &str) -> String {
    format!("this program was built without the feature `{feature}`, which that store needs")
}

impl StoreUrl {
    /// The store that `text` names.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let _ = rest;
        match kind {
            #[cfg(feature = "sqlite")]
            "sqlite" if rest.is_empty() => Err("write sqlite:FILE".to_owned()),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite(rest.into())),
            #[cfg(not(feature = "sqlite"))]
            "sqlite" => Err(without("sqlite")),
            #[cfg(feature = "redis")]
            "redis" | "redis+unix" => Ok(Self::Redis(text.to_owned())),
            #[cfg(all(feature = "redis", feature = "redis-tls"))]
            "rediss" => Ok(Self::Redis(text.to_owned())),
            #[cfg(all(feature = "redis", not(feature = "redis-tls")))]
            "rediss" => Err(without("redis-tls")),
            #[cfg(not(feature = "redis"))]
            "redis" | "rediss" | "redis+unix" => Err(without("redis")),
            #[cfg(feature = "redis-cluster")]
            "redis-cluster" => {
                let nodes = rest.trim_start_matches("//");
                let (user, nodes) = nodes.rsplit_once('@').unwrap_or(("", nodes));
                Ok(Self::RedisCluster(urls(user, nodes)))
            }
            #[cfg(not(feature = "redis-cluster"))]
            "redis-cluster" => Err(without("redis-cluster")),
            #[cfg(feature = "redis-sentinel")]
            "redis-sentinel" => sentinel(rest),
            #[cfg(not(feature = "redis-sentinel"))]
            "redis-sentinel" => Err(without("redis-sentinel")),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            #[cfg(not(feature = "postgres"))]
            "postgres" | "postgresql" => Err(without("postgres")),
            #[cfg(feature = "cli-aws")]
            "dynamodb" => super::dynamodb::Table::parse(rest).map(Self::DynamoDb),
            #[cfg(not(feature = "cli-aws"))]
            "dynamodb" => Err(without("cli-aws")),
            _ => Err(format!("a store is written as {FORMS}")),
        }
    }

    /// Opens it, or connects to it.
    pub(crate) async fn open(&self, names: &Names) -> Result<DynStore, StoreError> {
        let _ = names;
        Ok(match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => {
                let builder = idem::SqliteStore::builder(file);
                let builder = if names.must_exist { builder.must_exist() } else { builder };
                DynStore::new(builder.open()?)
            }
            #[cfg(feature = "redis")]
            Self::Redis(url) => redis(idem::RedisStore::builder(url), names).await?,
            #[cfg(feature = "redis-cluster")]
            Self::RedisCluster(nodes) => redis(idem::RedisStore::cluster(nodes), names).await?,
            #[cfg(feature = "redis-sentinel")]
            Self::RedisSentinel { service, sentinels, replicas } => {
                let builder = idem::RedisStore::sentinel(service, sentinels);
                let within = std::time::Duration::from_millis(500);
                let builder = if *replicas > 0 { builder.wait_replicas(*replicas, within) } else { builder };
                redis(builder, names).await?
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let mut builder = idem::PostgresStore::builder(url);
                if let Some(schema) = &names.schema {
                    builder = builder.schema(schema);
                }
                if let Some(table) = &names.table {
                    builder = builder.table(table);
                }
                let builder = if names.must_exist { builder.must_exist() } else { builder };
                DynStore::new(builder.connect().await?)
            }
            #[cfg(feature = "cli-aws")]
            Self::DynamoDb(table) => DynStore::new(table.open(names.prefix.as_deref()).await),
            #[cfg(not(any(
                feature = "sqlite",
                feature = "redis",
                feature = "postgres",
                feature = "cli-aws"
            )))]
            Self::Nothing(never) => match *never {},
        })
    }
}

#[cfg(feature = "redis")]
async fn redis(builder: idem::RedisStoreBuilder, names: &Names) -> Result<DynStore, StoreError> {
    let builder = match &names.prefix {
        Some(prefix) => builder.prefix(prefix),
        None => builder,
    };
    Ok(DynStore::new(builder.connect().await?))
}

/// A URL for each of `host:port,host:port`.
#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn urls(user: &str, nodes: &str) -> Vec<String> {
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    nodes.split(',').map(|node| format!("redis://{user}{}/", node.trim_end_matches('/'))).collect()
}

#[cfg(feature = "redis-sentinel")]
fn sentinel(rest: &str) -> Result<StoreUrl, String> {
    let wrong =
        || "write redis-sentinel://[user:password@]SERVICE@host:port,host:port[?replicas=N]".to_owned();
    let (rest, replicas) = rest.split_once("?replicas=").unwrap_or((rest, "0"));
    let (service, nodes) = rest.trim_start_matches("//").rsplit_once('@').ok_or_else(wrong)?;
    let (user, service) = service.rsplit_once('@').unwrap_or(("", service));
    let replicas = replicas.parse().map_err(|_| wrong())?;
    Ok(StoreUrl::RedisSentinel { service: service.to_owned(), sentinels: urls(user, nodes), replicas })
}
