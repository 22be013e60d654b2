//! Connects a consumer group of Redis streams with `idem::message::Consumer`: a stream of messages, and how
//! each message is settled. Another queue needs about as much code.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use idem::message::{DeadLetter, Delivery};
use redis::aio::MultiplexedConnection;
use redis::streams::{
    StreamAutoClaimOptions, StreamAutoClaimReply, StreamClaimOptions, StreamId, StreamPendingCountReply,
    StreamReadOptions, StreamReadReply,
};
use redis::{AsyncCommands as _, RedisResult};

/// How long a message stays with a worker that does not renew it. After that time, the message goes to
/// another worker. This is also the longest pause before a retry.
pub const IDLE: Duration = Duration::from_secs(3);

/// How many messages are fetched at once. If the consumer ends before it has begun to handle a fetched
/// message, the message is delivered again after [`IDLE`].
const AT_ONCE: usize = 10;

/// A stream, its only consumer group, and a worker in it.
#[derive(Clone, Debug)]
pub struct Group {
    /// The key of the stream. The dead letters are in `STREAM-dead`.
    pub stream: String,
    /// The consumer group.
    pub group: String,
    /// The worker's own name in the group.
    pub worker: String,
}

/// A message of the stream.
#[derive(Debug)]
pub struct Message {
    /// The entry: its id and its fields.
    pub entry: StreamId,
    deliveries: u32,
    connection: MultiplexedConnection,
    of: Group,
}

impl Group {
    /// Creates the group if it is missing, and returns its messages: first the messages that no worker has
    /// renewed for [`IDLE`], then new messages.
    ///
    /// # Errors
    ///
    /// The errors of Redis.
    pub async fn messages(
        self,
        client: &redis::Client,
    ) -> RedisResult<impl Stream<Item = RedisResult<Message>> + use<>> {
        let (mut connection, reader) = (connect(client).await?, connect(client).await?);
        let made: RedisResult<()> = connection.xgroup_create_mkstream(&self.stream, &self.group, "0").await;
        if let Err(error) = made
            && error.code() != Some("BUSYGROUP")
        {
            return Err(error);
        }
        // `reader` blocks while it waits for messages, so all other commands use `connection`.
        let rounds = stream::unfold((self, connection, reader, "0-0".to_owned()), |mut state| async {
            let round = state.0.round(&mut state.1, &mut state.2, &mut state.3).await;
            Some((round, state))
        });
        Ok(rounds.map_ok(|messages| stream::iter(messages).map(Ok)).try_flatten())
    }

    async fn round(
        &self,
        connection: &mut MultiplexedConnection,
        reader: &mut MultiplexedConnection,
        cursor: &mut String,
    ) -> RedisResult<Vec<Message>> {
        let Self { stream, group, worker } = self;
        let options = StreamAutoClaimOptions::default().count(AT_ONCE);
        let idle = millis(IDLE);
        let silent: StreamAutoClaimReply =
            connection.xautoclaim_options(stream, group, worker, idle, &*cursor, options).await?;
        *cursor = silent.next_stream_id;
        let mut messages = Vec::new();
        for entry in silent.claimed {
            let pending: StreamPendingCountReply =
                connection.xpending_count(stream, group, &entry.id, &entry.id, 1).await?;
            let deliveries = pending.ids.first().map_or(1, |pending| pending.times_delivered);
            messages.push(self.message(entry, u32::try_from(deliveries).unwrap_or(u32::MAX), connection));
        }
        if messages.is_empty() {
            let options = StreamReadOptions::default().group(group, worker).count(AT_ONCE).block(500);
            let new: Option<StreamReadReply> = reader.xread_options(&[stream], &[">"], &options).await?;
            let entries = new.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids);
            messages.extend(entries.map(|entry| self.message(entry, 1, connection)));
        }
        Ok(messages)
    }

    fn message(&self, entry: StreamId, deliveries: u32, connection: &MultiplexedConnection) -> Message {
        Message { entry, deliveries, connection: connection.clone(), of: self.clone() }
    }
}

/// A connection whose response timeout is longer than a blocking read.
async fn connect(client: &redis::Client) -> RedisResult<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn millis(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
}

impl Message {
    /// Adds the commands that take the message out of the group and delete it from the stream. Without the
    /// deletion, the stream would grow for ever. Redis executes all commands of the pipe, or none. If a
    /// stream has several groups, do not delete its entries here. Instead trim the stream where its entries
    /// are added, with `XADD .. MAXLEN`.
    fn leave(&self, pipe: &mut redis::Pipeline) {
        let Group { stream, group, .. } = &self.of;
        let ids = [&self.entry.id];
        pipe.atomic().xack(stream, group, &ids).ignore().xdel(stream, &ids).ignore();
    }

    /// Sets the message's idle time. The group delivers the message again when its idle time reaches
    /// [`IDLE`].
    async fn silent_for(&self, idle: Duration) -> RedisResult<()> {
        // This also takes back a message that went to another worker because this worker did not renew it.
        // Then both workers handle the message, and both get the same result.
        let options = StreamClaimOptions::default().idle(millis(idle)).with_justid();
        let Group { stream, group, worker } = &self.of;
        let ids = [&self.entry.id];
        self.connection
            .clone()
            .xclaim_options::<_, _, _, _, _, ()>(stream, group, worker, 0, &ids, options)
            .await
    }
}

impl Delivery for Message {
    type Error = redis::RedisError;

    async fn acknowledge(&self) -> RedisResult<()> {
        let mut done = redis::pipe();
        self.leave(&mut done);
        done.query_async(&mut self.connection.clone()).await
    }

    async fn retry(&self, after: Duration) -> RedisResult<()> {
        self.silent_for(IDLE.saturating_sub(after)).await
    }

    async fn reject(&self, letter: &DeadLetter) -> RedisResult<()> {
        let entry = &self.entry;
        let mut fields: Vec<(&str, Vec<u8>)> =
            entry.map.keys().map(|name| (name.as_str(), entry.get(name).unwrap_or_default())).collect();
        let headers = letter.headers(self, &self.of.group, &self.of.stream).into_iter();
        fields.extend(headers.map(|(name, value)| (name, value.into_bytes())));
        let mut aside = redis::pipe();
        aside.xadd(format!("{}-dead", self.of.stream), "*", &fields).ignore();
        self.leave(&mut aside);
        aside.query_async(&mut self.connection.clone()).await
    }

    async fn give_back(&self) -> RedisResult<()> {
        self.silent_for(IDLE).await
    }

    async fn extend(&self) -> RedisResult<()> {
        self.silent_for(Duration::ZERO).await
    }

    fn deliveries(&self) -> Option<u32> {
        Some(self.deliveries)
    }

    fn id(&self) -> Option<String> {
        Some(self.entry.id.clone())
    }
}
