//! Groups of Redis servers: a cluster, or a master with a replica and sentinels.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::process::{Server, free_port, until};
use crate::redis::{Redis, program};

/// Three masters without replicas, which share the slots.
pub struct RedisCluster(Vec<Server>);

impl RedisCluster {
    /// Starts a cluster whose nodes keep nothing on disk.
    pub fn start() -> Self {
        let cluster = Self((0..3).map(|_| node()).collect());
        let nodes: Vec<String> = cluster.0.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let create = format!("--cluster create {} --cluster-replicas 0 --cluster-yes", nodes.join(" "));
        assert!(cli(&create).status.success());
        for node in &cluster.0 {
            until("the cluster is ready", || ask(node.port(), "cluster info").contains("cluster_state:ok"));
        }
        cluster
    }

    /// The URL of each node.
    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(|node| format!("redis://127.0.0.1:{}/", node.port())).collect()
    }

    /// The process of one node.
    pub fn node(&mut self, node: usize) -> &mut Server {
        &mut self.0[node]
    }

    /// Moves this many slots, with their keys, from one node to another, and returns when all are moved.
    pub fn move_slots(&self, from: usize, to: usize, count: u32) {
        let id = |node: usize| ask(self.0[node].port(), "cluster myid").trim().to_owned();
        let (entry, from, to) = (self.0[0].port(), id(from), id(to));
        let moved = cli(&format!(
            "--cluster reshard 127.0.0.1:{entry} --cluster-from {from} --cluster-to {to} \
             --cluster-slots {count} --cluster-yes"
        ));
        assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stdout));
    }
}

fn node() -> Server {
    // By default, the port of the bus is the node's port plus 10,000, and another program may use that port.
    let bus = free_port().to_string();
    Server::start(move |port, folder| {
        let mut command = Command::new(program());
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string(), "--dir"]).arg(folder);
        command.args(["--cluster-enabled", "yes", "--cluster-port", &bus]);
        command
    })
}

/// A master, its replica, and three sentinels. The sentinels promote the replica after
/// [`kill_master`](Self::kill_master).
pub struct RedisSentinel {
    /// The server that is the master at first.
    pub master: Redis,
    /// The server that is the replica at first.
    pub replica: Redis,
    sentinels: Vec<Server>,
}

impl RedisSentinel {
    /// The sentinels' name for the master.
    pub const SERVICE: &str = "primary";

    /// Starts the servers with these additional arguments, such as `["--appendonly", "yes"]`.
    pub fn with(arguments: &[&str]) -> Self {
        let common =
            [arguments, &["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]].concat();
        let master = Redis::with(&common);
        let port = master.port();
        let replica = Redis::with(&[&common[..], &["--replicaof", "127.0.0.1", &port.to_string()]].concat());
        until("the replica follows", || ask(port, "info replication").contains("state=online"));
        let sentinels: Vec<Server> = (0..3).map(|_| sentinel(port)).collect();
        for sentinel in &sentinels {
            until("the sentinels know each other and the replica", || {
                let known = ask(sentinel.port(), &format!("sentinel master {}", Self::SERVICE));
                known.contains("num-other-sentinels\n2\n") && known.contains("num-slaves\n1\n")
            });
        }
        Self { master, replica, sentinels }
    }

    /// The URL of each sentinel.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("redis://127.0.0.1:{}/", sentinel.port())).collect()
    }

    /// Kills the master. From now on the sentinels promote the replica after half a second. Until now they
    /// waited longer, so that a master that pauses on a busy machine stays the master.
    pub fn kill_master(&mut self) {
        for sentinel in &self.sentinels {
            let setting = format!("sentinel set {} down-after-milliseconds 500", Self::SERVICE);
            assert_eq!(ask(sentinel.port(), &setting).trim(), "OK");
        }
        self.master.server().kill();
    }

    /// Returns once the sentinels name the replica as the master, and the replica has become a master.
    pub fn until_promoted(&self) {
        let port = self.replica.port();
        for sentinel in &self.sentinels {
            until("the replica is promoted", || {
                let named =
                    ask(sentinel.port(), &format!("sentinel get-master-addr-by-name {}", Self::SERVICE));
                named.contains(&port.to_string()) && ask(port, "role").starts_with("master")
            });
        }
    }
}

fn sentinel(master: u16) -> Server {
    let prepare = |folder: &Path| {
        let name = RedisSentinel::SERVICE;
        let text = format!(
            "bind 127.0.0.1\ndir {}\nsentinel monitor {name} 127.0.0.1 {master} 2\nsentinel \
                 down-after-milliseconds {name} 3600000\nsentinel failover-timeout {name} 2000\n",
            folder.display()
        );
        fs::write(folder.join("sentinel.conf"), text).unwrap();
    };
    Server::start_in(prepare, |port, folder| {
        let mut command = Command::new(program());
        command.arg(folder.join("sentinel.conf")).args(["--sentinel", "--port", &port.to_string()]);
        command
    })
}

fn ask(port: u16, command: &str) -> String {
    String::from_utf8_lossy(&cli(&format!("-p {port} {command}")).stdout).into_owned()
}

fn cli(arguments: &str) -> Output {
    Command::new("redis-cli").args(arguments.split(' ')).output().unwrap()
}
