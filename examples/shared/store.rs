//! Which store a program uses, from one word of its command line. Included by the examples.

use std::path::PathBuf;
use std::str::FromStr;

use idem::{DynStore, MemoryStore, SqliteStore, StoreError};

/// What a user may write.
pub(crate) const FORMS: &str = "sqlite:FILE | redis://.. | memory";

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
    /// `redis-sentinel://SERVICE@host:port,host:port`.
    #[cfg(feature = "redis-sentinel")]
    RedisSentinel(String, Vec<String>),
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
            "redis-sentinel" => match rest.trim_start_matches("//").split_once('@') {
                Some((service, nodes)) => Ok(Self::RedisSentinel(service.to_owned(), urls(nodes))),
                None => Err("write redis-sentinel://SERVICE@host:port,..".to_owned()),
            },
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
            Self::RedisSentinel(service, nodes) => {
                DynStore::new(idem::RedisStore::sentinel(service, nodes).connect().await?)
            }
        })
    }
}
