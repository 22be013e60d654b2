//! Opens a store by its URL.
//!
//! Owns the forms of the URLs; knows nothing of commands. A URL may contain a password, so no error repeats it, and no type
//! here implements `Debug`.

use idem_core::StoreError;
use idem_runtime::DynStore;

#[cfg(not(any(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "mysql",
    feature = "dynamodb",
    feature = "nats-kv",
    feature = "object"
)))]
compile_error!("enable a store: sqlite, redis, postgres, mysql, dynamodb, nats-kv or object");

/// The forms of a store's URL, for error texts.
pub const FORMS: &str = "sqlite:FILE, redis://.., rediss://.., redis-cluster://.., rediss-cluster://.., \
                                redis-sentinel://.., rediss-sentinel://.., postgres://.., mysql://.., dynamodb://TABLE, \
                                nats-kv://HOST:PORT/BUCKET, object:s3://BUCKET/PREFIX or object:FOLDER";

/// The parsed URL of a store that is not open yet.
#[derive(Clone)]
pub enum StoreUrl {
    /// `sqlite:FILE`.
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
    /// `redis://..` or `rediss://..`, with `?replicas=N` to wait for N replicas.
    #[cfg(feature = "redis")]
    Redis {
        /// The URL without `?replicas=N`.
        url: String,
        /// How many replicas must acknowledge a claim and a result.
        replicas: u32,
    },
    /// `redis-cluster://[user:password@]host:port,host:port`, or `rediss-cluster://..`.
    #[cfg(feature = "redis-cluster")]
    RedisCluster(Vec<String>),
    /// `redis-sentinel://[user:password@]SERVICE@host:port,host:port`, with `?replicas=N` to wait for N replicas, or
    /// `rediss-sentinel://..`.
    #[cfg(feature = "redis-sentinel")]
    RedisSentinel {
        /// The name of the master.
        service: String,
        /// The URLs of the sentinels.
        sentinels: Vec<String>,
        /// How many replicas must acknowledge a claim and a result.
        replicas: u32,
    },
    /// `postgres://..`.
    #[cfg(feature = "postgres")]
    Postgres(String),
    /// `mysql://..` or `mariadb://..`.
    #[cfg(feature = "mysql")]
    MySql(String),
    /// `dynamodb://TABLE`.
    #[cfg(feature = "dynamodb")]
    DynamoDb(crate::dynamodb::Table),
    /// `nats-kv://[user:password@]host:port/BUCKET`.
    #[cfg(feature = "nats-kv")]
    NatsKv {
        /// The URL of the server.
        server: String,
        /// The name of the bucket.
        bucket: String,
    },
    /// `object:FOLDER`.
    #[cfg(feature = "object")]
    Folder(std::path::PathBuf),
    /// `object:s3://BUCKET/PREFIX`, `gs://..`, `az://..`.
    #[cfg(feature = "object-cloud")]
    Objects(crate::object::Objects),
}

/// The options of a store besides its URL.
#[derive(Clone, Default)]
#[allow(dead_code, reason = "the fields in use depend on the stores that are built in")]
pub struct Names {
    /// The prefix of keys, on Redis, DynamoDB and NATS.
    pub prefix: Option<String>,
    /// The schema, on PostgreSQL.
    pub schema: Option<String>,
    /// The table, on PostgreSQL and MySQL.
    pub table: Option<String>,
    /// Whether the table must exist: if true, nothing is created or migrated.
    pub must_exist: bool,
}

/// The error for a store whose feature is off.
#[allow(dead_code, reason = "unused with all features on")]
fn without(feature: &str) -> String {
    format!("this program was built without the feature `{feature}`, which that store needs")
}

impl StoreUrl {
    /// The store that `text` names.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong. It does not repeat the URL, which may contain a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let _ = rest;
        match kind {
            #[cfg(feature = "sqlite")]
            "sqlite" if rest.is_empty() => Err("expected sqlite:FILE".to_owned()),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite(rest.into())),
            #[cfg(not(feature = "sqlite"))]
            "sqlite" => Err(without("sqlite")),
            #[cfg(feature = "redis")]
            "redis" | "redis+unix" => single(text),
            #[cfg(all(feature = "redis", feature = "redis-tls"))]
            "rediss" => single(text),
            #[cfg(all(feature = "redis", not(feature = "redis-tls")))]
            "rediss" => Err(without("redis-tls")),
            #[cfg(not(feature = "redis"))]
            "redis" | "rediss" | "redis+unix" => Err(without("redis")),
            #[cfg(feature = "redis-cluster")]
            "rediss-cluster" if cfg!(not(feature = "redis-tls")) => Err(without("redis-tls")),
            #[cfg(feature = "redis-cluster")]
            "redis-cluster" | "rediss-cluster" => {
                let scheme = kind.trim_end_matches("-cluster");
                let nodes = rest.trim_start_matches("//");
                let (user, nodes) = nodes.rsplit_once('@').unwrap_or(("", nodes));
                Ok(Self::RedisCluster(urls(scheme, user, nodes)))
            }
            #[cfg(not(feature = "redis-cluster"))]
            "redis-cluster" | "rediss-cluster" => Err(without("redis-cluster")),
            #[cfg(feature = "redis-sentinel")]
            "rediss-sentinel" if cfg!(not(feature = "redis-tls")) => Err(without("redis-tls")),
            #[cfg(feature = "redis-sentinel")]
            "redis-sentinel" | "rediss-sentinel" => sentinel(kind.trim_end_matches("-sentinel"), rest),
            #[cfg(not(feature = "redis-sentinel"))]
            "redis-sentinel" | "rediss-sentinel" => Err(without("redis-sentinel")),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            #[cfg(not(feature = "postgres"))]
            "postgres" | "postgresql" => Err(without("postgres")),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => Ok(Self::MySql(text.to_owned())),
            #[cfg(not(feature = "mysql"))]
            "mysql" | "mariadb" => Err(without("mysql")),
            #[cfg(feature = "dynamodb")]
            "dynamodb" => crate::dynamodb::Table::parse(rest).map(Self::DynamoDb),
            #[cfg(not(feature = "dynamodb"))]
            "dynamodb" => Err(without("dynamodb")),
            #[cfg(feature = "nats-kv")]
            "nats-kv" => nats_kv(rest),
            #[cfg(not(feature = "nats-kv"))]
            "nats-kv" => Err(without("nats-kv")),
            #[cfg(feature = "object")]
            "object" if rest.is_empty() => {
                Err("expected object:FOLDER or object:s3://BUCKET/PREFIX".to_owned())
            }
            #[cfg(feature = "object")]
            "object" => object(rest),
            #[cfg(not(feature = "object"))]
            "object" => Err(without("object")),
            _ => Err(format!("unknown store: expected {FORMS}")),
        }
    }

    /// Opens the store, or connects to it.
    ///
    /// # Errors
    ///
    /// Those of the store's builder.
    pub async fn open(&self, names: &Names) -> Result<DynStore, StoreError> {
        let _ = names;
        Ok(match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => {
                let builder = idem_sqlite::SqliteStore::builder(file);
                let builder = if names.must_exist { builder.must_exist() } else { builder };
                DynStore::new(builder.open()?)
            }
            #[cfg(feature = "redis")]
            Self::Redis { url, replicas } => {
                redis(idem_redis::RedisStore::builder(url), *replicas, names).await?
            }
            #[cfg(feature = "redis-cluster")]
            Self::RedisCluster(nodes) => redis(idem_redis::RedisStore::cluster(nodes), 0, names).await?,
            #[cfg(feature = "redis-sentinel")]
            Self::RedisSentinel { service, sentinels, replicas } => {
                redis(idem_redis::RedisStore::sentinel(service, sentinels), *replicas, names).await?
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let mut builder = idem_postgres::PostgresStore::builder(url);
                if let Some(schema) = &names.schema {
                    builder = builder.schema(schema);
                }
                if let Some(table) = &names.table {
                    builder = builder.table(table);
                }
                let builder = if names.must_exist { builder.must_exist() } else { builder };
                DynStore::new(builder.connect().await?)
            }
            #[cfg(feature = "mysql")]
            Self::MySql(url) => {
                let mut builder = idem_mysql::MySqlStore::builder(url);
                if let Some(table) = &names.table {
                    builder = builder.table(table);
                }
                let builder = if names.must_exist { builder.must_exist() } else { builder };
                DynStore::new(builder.connect().await?)
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(table) => DynStore::new(table.open(names.prefix.as_deref()).await),
            #[cfg(feature = "nats-kv")]
            Self::NatsKv { server, bucket } => {
                let builder = idem_nats_kv::NatsKvStore::builder(server, bucket);
                let builder = builder.prefix(names.prefix.as_deref().unwrap_or(""));
                let builder = if names.must_exist { builder.must_exist() } else { builder };
                DynStore::new(builder.connect().await?)
            }
            #[cfg(feature = "object")]
            Self::Folder(folder) => {
                if names.must_exist && !folder.is_dir() {
                    return Err(StoreError::configuration("the folder does not exist"));
                }
                DynStore::new(idem_object::FolderStore::open(folder)?)
            }
            #[cfg(feature = "object-cloud")]
            Self::Objects(objects) => DynStore::new(objects.open().await?),
        })
    }
}

/// A bucket of an object store, or a folder.
#[cfg(feature = "object")]
fn object(rest: &str) -> Result<StoreUrl, String> {
    #[cfg(feature = "object-cloud")]
    if let Some(objects) = crate::object::Objects::parse(rest)? {
        return Ok(StoreUrl::Objects(objects));
    }
    if cfg!(not(feature = "object-cloud")) && rest.contains("://") {
        return Err(without("object-cloud"));
    }
    Ok(StoreUrl::Folder(rest.into()))
}

#[cfg(feature = "redis")]
async fn redis(
    builder: idem_redis::RedisStoreBuilder,
    replicas: u32,
    names: &Names,
) -> Result<DynStore, StoreError> {
    let within = std::time::Duration::from_millis(500);
    let builder = if replicas > 0 { builder.wait_replicas(replicas, within) } else { builder };
    let builder = match &names.prefix {
        Some(prefix) => builder.prefix(prefix),
        None => builder,
    };
    Ok(DynStore::new(builder.connect().await?))
}

/// A URL for each of `host:port,host:port`.
#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn urls(scheme: &str, user: &str, nodes: &str) -> Vec<String> {
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    nodes.split(',').map(|node| format!("{scheme}://{user}{}/", node.trim_end_matches('/'))).collect()
}

/// Splits `?replicas=N` off the URL of one server.
#[cfg(feature = "redis")]
fn replicas(url: &str) -> Option<(&str, u32)> {
    match url.split_once("?replicas=") {
        Some((url, replicas)) => Some((url, replicas.parse().ok()?)),
        None => Some((url, 0)),
    }
}

#[cfg(feature = "redis")]
fn single(text: &str) -> Result<StoreUrl, String> {
    let (url, replicas) =
        replicas(text).ok_or("expected a number of replicas, as in redis://host:port/?replicas=1")?;
    Ok(StoreUrl::Redis { url: url.to_owned(), replicas })
}

#[cfg(feature = "nats-kv")]
fn nats_kv(rest: &str) -> Result<StoreUrl, String> {
    let (host, bucket) = rest
        .trim_start_matches("//")
        .split_once('/')
        .filter(|(host, bucket)| !host.is_empty() && !bucket.is_empty())
        .ok_or("expected nats-kv://[user:password@]host:port/BUCKET")?;
    Ok(StoreUrl::NatsKv { server: format!("nats://{host}"), bucket: bucket.to_owned() })
}

#[cfg(feature = "redis-sentinel")]
fn sentinel(scheme: &str, rest: &str) -> Result<StoreUrl, String> {
    let wrong =
        || "expected redis-sentinel://[user:password@]SERVICE@host:port,host:port[?replicas=N]".to_owned();
    let (rest, replicas) = replicas(rest).ok_or_else(wrong)?;
    let (service, nodes) = rest.trim_start_matches("//").rsplit_once('@').ok_or_else(wrong)?;
    let (user, service) = service.rsplit_once('@').unwrap_or(("", service));
    Ok(StoreUrl::RedisSentinel {
        service: service.to_owned(),
        sentinels: urls(scheme, user, nodes),
        replicas,
    })
}

#[cfg(all(test, feature = "redis-cluster", feature = "redis-sentinel", feature = "redis-tls"))]
mod tests {
    use super::StoreUrl;

    #[test]
    fn the_nodes_of_a_cluster_and_the_sentinels_are_reached_over_tls_where_the_url_says_so() {
        for scheme in ["redis", "rediss"] {
            let parsed = StoreUrl::parse(&format!("{scheme}-cluster://user:secret@a:1,b:2"));
            let Ok(StoreUrl::RedisCluster(nodes)) = parsed else { panic!("{scheme}") };
            let expected = ["a:1", "b:2"].map(|node| format!("{scheme}://user:secret@{node}/"));
            assert_eq!(nodes, expected);
            let parsed = StoreUrl::parse(&format!("{scheme}-sentinel://user:secret@master@a:1,b:2"));
            let Ok(StoreUrl::RedisSentinel { sentinels, .. }) = parsed else { panic!("{scheme}") };
            assert_eq!(sentinels, expected);
        }
    }
}
