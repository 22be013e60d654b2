//! Redis without a disk. It deletes expired records by itself.

use idem::RedisStore;
use idem_test_servers::Redis;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, cmd, pipe};

use crate::subject::{Anything, KEPT, MODEL, Subject, key};

/// The number of commands that are sent together.
const CHUNK: u64 = 1_000;
/// The approximate size of a record in the server's memory.
const RECORD: u64 = 400;
/// The memory that is left for all other programs.
const SPARE: u64 = 4 << 30;

pub(crate) struct OnRedis {
    store: RedisStore,
    connection: MultiplexedConnection,
    filled: u64,
    _server: Redis,
}

impl OnRedis {
    pub(crate) async fn new() -> Anything<Self> {
        let server = Redis::start();
        let store = RedisStore::connect(&server.url()).await?;
        // A busy machine may need a long time for a thousand commands.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(server.url())?;
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        Ok(Self { store, connection, filled: 0, _server: server })
    }

    /// A value that the server reports about itself.
    async fn said(&self, section: &str, name: &str) -> Anything<String> {
        let said: String = cmd("INFO").arg(section).query_async(&mut self.connection.clone()).await?;
        let mut lines = said.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(found.ok_or("the server does not tell that of itself")?.to_owned())
    }
}

fn name(key: &str) -> String {
    format!("idem:{{{KEPT}|{key}}}")
}

impl Subject for OnRedis {
    type Store = RedisStore;

    async fn name(&self) -> Anything<String> {
        Ok(format!("Redis {}", self.said("server", "redis_version").await?))
    }

    fn store(&self) -> Anything<&RedisStore> {
        Ok(&self.store)
    }

    fn has_room(&self, records: u64) -> Result<(), String> {
        let Ok(said) = std::fs::read_to_string("/proc/meminfo") else { return Ok(()) };
        let available = said.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let kib = available.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        match kib {
            Some(kib) if kib * 1_024 < records * RECORD + SPARE => {
                Err(format!("{} MB of memory are available", kib / 1_000))
            }
            _ => Ok(()),
        }
    }

    async fn fill(&mut self, from: u64, to: u64) -> Anything<()> {
        let model = name(MODEL);
        let mut connection = self.connection.clone();
        let record: Vec<u8> = cmd("GET").arg(&model).query_async(&mut connection).await?;
        let expires: u64 = cmd("PEXPIRETIME").arg(&model).query_async(&mut connection).await?;
        let mut number = from;
        while number < to {
            let end = (number + CHUNK).min(to);
            let mut pipeline = pipe();
            for number in number..end {
                let set = pipeline.cmd("SET").arg(name(&key(number))).arg(&record);
                set.arg("PXAT").arg(expires + number).ignore();
            }
            pipeline.query_async::<()>(&mut connection).await?;
            number = end;
        }
        self.filled = to;
        Ok(())
    }

    async fn left(&self) -> Anything<u64> {
        let all: u64 = cmd("DBSIZE").query_async(&mut self.connection.clone()).await?;
        // One of them is the model.
        Ok(all.saturating_sub(self.filled + 1))
    }

    async fn bytes(&self) -> Anything<u64> {
        Ok(self.said("memory", "used_memory").await?.parse()?)
    }
}
