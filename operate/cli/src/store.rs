//! Opens a store by its URL.
//!
//! Owns the forms of the URLs, and knows nothing about commands. A URL may contain a password, so no error
//! repeats the URL, and no type here implements `Debug`.

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
    /// `redis://..`, `redis-cluster://[user:password@]host:port,host:port` or
    /// `redis-sentinel://[user:password@]SERVICE@host:port,host:port`. With TLS, `rediss` replaces `redis`. A
    /// URL of a server or of sentinels can end with `?replicas=N`, which makes the store wait for N replicas.
    #[cfg(feature = "redis")]
    Redis(idem_redis::RedisStoreBuilder),
    /// `postgres://..`.
    #[cfg(feature = "postgres")]
    Postgres(String),
    /// `mysql://..` or `mariadb://..`.
    #[cfg(feature = "mysql")]
    MySql(String),
    /// `dynamodb://TABLE`.
    #[cfg(feature = "dynamodb")]
    DynamoDb(crate::dynamodb::Table),
    /// `nats-kv://[user:password@]host:port/BUCKET`, as the URL of the server and the bucket.
    #[cfg(feature = "nats-kv")]
    NatsKv(String, String),
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
    /// Whether the table, file, folder or NATS bucket must exist. If true, the store creates and migrates
    /// none.
    pub must_exist: bool,
}

/// The error for a kind of store that is not built in.
fn unknown(kind: &str) -> String {
    let feature = match kind {
        "redis+unix" | "rediss" => "redis",
        "rediss-cluster" => "redis-cluster",
        "rediss-sentinel" => "redis-sentinel",
        "postgresql" => "postgres",
        "mariadb" => "mysql",
        "sqlite" | "redis" | "redis-cluster" | "redis-sentinel" | "redis-tls" | "postgres" | "mysql"
        | "dynamodb" | "nats-kv" | "object" | "object-cloud" => kind,
        _ => return format!("unknown store: expected {FORMS}"),
    };
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
        if kind.starts_with("rediss") && cfg!(not(feature = "redis-tls")) {
            return Err(unknown("redis-tls"));
        }
        match kind {
            "sqlite" if rest.is_empty() => Err("expected sqlite:FILE".to_owned()),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite(rest.into())),
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+unix" => single(text),
            #[cfg(feature = "redis-cluster")]
            "redis-cluster" | "rediss-cluster" => {
                let nodes = rest.trim_start_matches("//");
                let (user, nodes) = nodes.rsplit_once('@').unwrap_or(("", nodes));
                let nodes = urls(kind.trim_end_matches("-cluster"), user, nodes);
                Ok(Self::Redis(idem_redis::RedisStore::cluster(nodes)))
            }
            #[cfg(feature = "redis-sentinel")]
            "redis-sentinel" | "rediss-sentinel" => sentinel(kind.trim_end_matches("-sentinel"), rest),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => Ok(Self::MySql(text.to_owned())),
            #[cfg(feature = "dynamodb")]
            "dynamodb" => crate::dynamodb::Table::parse(rest).map(Self::DynamoDb),
            #[cfg(feature = "nats-kv")]
            "nats-kv" => nats_kv(rest),
            "object" if rest.is_empty() => {
                Err("expected object:FOLDER or object:s3://BUCKET/PREFIX".to_owned())
            }
            #[cfg(feature = "object")]
            "object" => object(rest),
            _ => Err(unknown(kind)),
        }
    }

    /// Opens the store, or connects to it.
    ///
    /// # Errors
    ///
    /// The errors of the store's builder.
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
            Self::Redis(builder) => {
                let mut builder = builder.clone();
                if let Some(prefix) = &names.prefix {
                    builder = builder.prefix(prefix);
                }
                DynStore::new(builder.connect().await?)
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
            Self::NatsKv(server, bucket) => {
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
        return Err(unknown("object-cloud"));
    }
    Ok(StoreUrl::Folder(rest.into()))
}

/// A URL for each node in `host:port,host:port`.
#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn urls(scheme: &str, user: &str, nodes: &str) -> Vec<String> {
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    nodes.split(',').map(|node| format!("{scheme}://{user}{}/", node.trim_end_matches('/'))).collect()
}

/// Splits `?replicas=N` off a URL. `None` if N is not a number.
#[cfg(feature = "redis")]
fn replicas(url: &str) -> Option<(&str, u32)> {
    match url.split_once("?replicas=") {
        Some((url, replicas)) => Some((url, replicas.parse().ok()?)),
        None => Some((url, 0)),
    }
}

#[cfg(feature = "redis")]
fn waiting(builder: idem_redis::RedisStoreBuilder, replicas: u32) -> StoreUrl {
    let within = std::time::Duration::from_millis(500);
    StoreUrl::Redis(if replicas > 0 { builder.wait_replicas(replicas, within) } else { builder })
}

#[cfg(feature = "redis")]
fn single(text: &str) -> Result<StoreUrl, String> {
    let (url, replicas) =
        replicas(text).ok_or("expected a number of replicas, as in redis://host:port/?replicas=1")?;
    Ok(waiting(idem_redis::RedisStore::builder(url), replicas))
}

#[cfg(feature = "nats-kv")]
fn nats_kv(rest: &str) -> Result<StoreUrl, String> {
    let (host, bucket) = rest
        .trim_start_matches("//")
        .split_once('/')
        .filter(|(host, bucket)| !host.is_empty() && !bucket.is_empty())
        .ok_or("expected nats-kv://[user:password@]host:port/BUCKET")?;
    Ok(StoreUrl::NatsKv(format!("nats://{host}"), bucket.to_owned()))
}

#[cfg(feature = "redis-sentinel")]
fn sentinel(scheme: &str, rest: &str) -> Result<StoreUrl, String> {
    let wrong =
        || "expected redis-sentinel://[user:password@]SERVICE@host:port,host:port[?replicas=N]".to_owned();
    let (rest, replicas) = replicas(rest).ok_or_else(wrong)?;
    let (service, nodes) = rest.trim_start_matches("//").rsplit_once('@').ok_or_else(wrong)?;
    let (user, service) = service.rsplit_once('@').unwrap_or(("", service));
    Ok(waiting(idem_redis::RedisStore::sentinel(service, urls(scheme, user, nodes)), replicas))
}

#[cfg(all(test, any(feature = "redis-cluster", feature = "redis-sentinel")))]
mod tests {
    use super::urls;

    #[test]
    fn each_node_of_a_cluster_has_the_user_and_the_scheme_of_the_url() {
        let expected = ["a:1", "b:2"].map(|node| format!("rediss://user:secret@{node}/"));
        assert_eq!(urls("rediss", "user:secret", "a:1,b:2/"), expected);
        assert_eq!(urls("redis", "", "a:1"), ["redis://a:1/"]);
    }
}
