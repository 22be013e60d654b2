//! Workers on a real server, one of them killed between its effect and its acknowledgement.

use std::process::{Child, Command, Stdio};

use idem_test_servers::{Redis, until};
use redis::Commands as _;
use redis::streams::{StreamInfoGroupsReply, StreamRangeReply};

struct Worker(Child);

impl Worker {
    fn start(url: &str, millis: u64) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redis-streams"));
        Self(command.args([url, &millis.to_string()]).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Sends `SIGINT`, and returns the output.
    fn end(mut self) -> String {
        assert!(Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().unwrap().success());
        let mut said = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert!(self.0.wait().unwrap().success());
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn send(redis: &mut redis::Connection, order: &str) {
    let _: Option<String> = redis.xadd("orders", "*", &[("order", order)]).unwrap();
}

fn effects(redis: &mut redis::Connection) -> Vec<String> {
    redis.lrange("effects", 0, -1).unwrap()
}

/// How many messages nobody has acknowledged.
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
    let first = Worker::start(&url, 600_000);
    for order in ["1", "2", "1", "none"] {
        send(&mut redis, order);
    }
    until("it has shipped both", || effects(&mut redis).len() == 2);
    drop(first);
    let second = Worker::start(&url, 0);
    until("all is done", || left(&mut redis) == 0);
    // The effects and the results are not one commit, so the kill leaves each effect twice. The third message is a replay.
    let mut shipped = effects(&mut redis);
    shipped.sort();
    assert_eq!(shipped, ["1", "1", "2", "2"]);
    send(&mut redis, "2");
    until("the duplicate is done", || left(&mut redis) == 0);
    let said = second.end();
    assert!(said.contains("acknowledged: 4, replayed: 2"), "{said}");
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

#[test]
fn a_worker_without_its_server_says_so_in_one_line() {
    let port = idem_test_servers::free_port();
    let mut worker = Command::new(env!("CARGO_BIN_EXE_redis-streams"));
    let ended = worker.arg(format!("redis://127.0.0.1:{port}/")).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
