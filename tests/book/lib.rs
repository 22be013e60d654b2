//! The code in the pages of the book, as doc tests. `scripts/links` fails if a page with Rust code is missing
//! here. Code that a page shows from a file of this repository does not count, because that file is compiled
//! as a part of its own package.

macro_rules! pages {
    ($($name:ident $path:literal)*) => {$(
        #[cfg(doctest)]
        #[doc = include_str!(concat!("../../docs/", $path))]
        struct $name;
    )*};
}

pages! {
    Attribute "attribute.md"
    Http "http.md"
    Messages "messages.md"
    Outbox "outbox.md"
    Production "production.md"
    Steps "steps.md"
    Testing "testing.md"
    Transactions "transactions.md"
    Tutorial "tutorial.md"
    Webhooks "webhooks.md"
    Wrappers "wrappers.md"
    DynamoDb "stores/dynamodb.md"
    NatsKv "stores/nats-kv.md"
    Objects "stores/object.md"
    PostgreSql "stores/postgresql.md"
    Redis "stores/redis.md"
    Sqlite "stores/sqlite.md"
}
