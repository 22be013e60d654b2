//! Tests workers on a real server. One of them is killed between its effect and its acknowledgement.

use std::process::Command;

use idem_test_servers::program::Process;
use idem_test_servers::{Redis, until};
use redis::Commands as _;
use redis::streams::{StreamInfoGroupsReply, StreamRangeReply};

/// Starts a worker, which ends when its `Process` is dropped.
fn worker(url: &str, millis: u64) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redis-streams"));
    Process::start(command.args([url, &millis.to_string()]))
}

fn send(redis: &mut redis::Connection, order: &str) {
    let _: Option<String> = redis.xadd("orders", "*", &[("order", order)]).unwrap();
}

fn effects(redis: &mut redis::Connection) -> Vec<String> {
    redis.lrange("effects", 0, -1).unwrap()
}

/// How many messages are not acknowledged yet.
fn left(redis: &mut redis::Connection) -> usize {
    let groups: StreamInfoGroupsReply = redis.xinfo_groups("orders").unwrap();
    let shippers = &groups.groups[0];
    shippers.pending + shippers.lag.unwrap_or(1)
}

#[test]
fn a_killed_workers_orders_go_to_the_next_and_a_message_that_is_no_order_is_set_aside() {
    let server = Redis::start();
    let (url, mut redis) =
        (server.url(), redis::Client::open(server.url()).unwrap().get_connection().unwrap());
    let first = worker(&url, 600_000);
    for order in ["1", "2", "1", "none"] {
        send(&mut redis, order);
    }
    until("it has shipped both", || effects(&mut redis).len() == 2);
    drop(first);
    let second = worker(&url, 0);
    until("all is done", || left(&mut redis) == 0);
    // The killed worker made the effects of orders 1 and 2, and recorded no result, because an effect and its
    // result are not committed together. So the second worker made both effects again. The third message
    // repeats order 1, so it gets the recorded result and has no effect.
    let mut shipped = effects(&mut redis);
    shipped.sort();
    assert_eq!(shipped, ["1", "1", "2", "2"]);
    send(&mut redis, "2");
    until("the duplicate is done", || left(&mut redis) == 0);
    second.signal("-INT");
    let ended = second.end();
    assert!(ended.code == Some(0) && ended.stdout.contains("acknowledged: 4, replayed: 2"), "{ended:?}");
    assert_eq!(effects(&mut redis).len(), 4);
    let entries: usize = redis.xlen("orders").unwrap();
    assert_eq!(entries, 0, "a stream that keeps what is done grows for ever");
    let dead: StreamRangeReply = redis.xrange_all("orders-dead").unwrap();
    let letters: Vec<_> = dead.ids.iter().map(|letter| letter.get::<String>("order").unwrap()).collect();
    assert_eq!(letters, ["none"]);
    let field = |name: &str| dead.ids[0].get::<String>(name).unwrap();
    assert_eq!(field("idem-reason"), "terminal");
    assert_eq!(field("idem-error"), "the message has no field `order` with a number");
}
