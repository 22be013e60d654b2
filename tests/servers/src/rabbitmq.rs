//! RabbitMQ, from Debian's packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::required;
use crate::process::{Server, free_port};

/// A RabbitMQ node with the user `guest`, which keeps durable data on disk. Its start takes about ten
/// seconds.
pub struct RabbitMq {
    // The node is dropped first, because it is registered with the port mapper.
    node: Server,
    port_mapper: Server,
}

impl RabbitMq {
    /// Starts an empty node.
    pub fn start() -> Self {
        // Checks that RabbitMQ is installed. A failed start of the port mapper would not say how to install
        // it.
        script();
        // If no port mapper ran, the node would start one that outlives the node.
        let port_mapper = Server::start(|port, _| {
            let mut command = Command::new("epmd");
            command.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
            command
        });
        let mapper_port = port_mapper.port();
        let distribution_port = free_port();
        let node = Server::start_in(
            |folder| {
                std::fs::write(folder.join("conf"), "cluster_name = test\nloopback_users.guest = true\n")
                    .unwrap();
                std::fs::write(folder.join("plugins"), "[].").unwrap();
                // By default, quorum queues report their counts only after seconds. If a full queue refuses a
                // dead letter, they send the letter again only after minutes. These settings shorten both
                // times.
                let quick = "[{rabbit, [{quorum_tick_interval, 100}, \
                     {dead_letter_worker_publisher_confirm_timeout, 1000}]}].";
                std::fs::write(folder.join("advanced.config"), quick).unwrap();
            },
            move |port, folder| node(port, mapper_port, distribution_port, folder),
        );
        Self { node, port_mapper }
    }

    /// `amqp://guest:guest@127.0.0.1:PORT/%2f`.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.node.port())
    }

    /// The number of messages in the queues whose names begin with `queues`. Counts messages that were
    /// delivered and not acknowledged, but no dead letters. Counts twice and returns the larger count,
    /// because a message may be on its way from one queue to another.
    pub fn messages(&self, queues: &str) -> u64 {
        let count = format!(
            r#"Count = fun() -> lists:sum([Messages ||
                [{{name, {{resource, _, queue, Name}}}}, {{messages, Messages}}]
                    <- rabbit_amqqueue:info_all(<<"/">>, [name, messages]),
                lists:prefix("{queues}", binary_to_list(Name)),
                not lists:suffix("-dead", binary_to_list(Name))]) end,
            max(Count(), Count())."#
        );
        self.tell(&["eval", &count]).trim().parse().unwrap()
    }

    /// Makes the node save the list of its queues. By itself it saves a new queue only after a while, and a
    /// node that is killed earlier loses the queue.
    pub fn remember_queues(&self) {
        self.tell(&["eval", "mnesia:sync_log()."]);
    }

    /// Adds a user who may read and write everything, but may declare only what this pattern matches. Returns
    /// the URL with which this user connects.
    pub fn user(&self, name: &str, may_declare: &str) -> String {
        self.tell(&["add_user", name, "secret"]);
        self.tell(&["set_permissions", name, may_declare, ".*", ".*"]);
        format!("amqp://{name}:secret@127.0.0.1:{}/%2f", self.node.port())
    }

    /// Raises the alarm that blocks publishers, or ends it.
    pub fn alarm(&self, is_raised: bool) {
        self.tell(&["set_vm_memory_high_watermark", if is_raised { "0" } else { "0.6" }]);
    }

    /// Runs the node's own tool, and returns its output.
    fn tell(&self, arguments: &[&str]) -> String {
        let mut tool = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        tool.args(["-q", "-n", &name(self.node.port())])
            .args(arguments)
            .env("ERL_EPMD_PORT", self.port_mapper.port().to_string())
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("HOME", self.node.folder());
        let answer = tool.output().unwrap();
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8(answer.stdout).unwrap()
    }

    /// The node's process. Persistent messages in durable queues survive a restart. Before a kill, call
    /// [`remember_queues`](Self::remember_queues), because otherwise new queues may be lost.
    pub const fn server(&mut self) -> &mut Server {
        &mut self.node
    }
}

fn script() -> PathBuf {
    // This is the package's own script, because the script on the `PATH` changes the user.
    let script = PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server");
    required(Some(script).filter(|script| script.exists()), "RabbitMQ", "rabbitmq")
}

fn name(port: u16) -> String {
    format!("rabbit-{port}@localhost")
}

fn node(port: u16, mapper_port: u16, distribution_port: u16, folder: &Path) -> Command {
    let mut command = Command::new(script());
    command
        // Without this variable, the started process would be the node's parent, and not the node itself.
        .env("RUNNING_UNDER_SYSTEMD", "true")
        .env("RABBITMQ_NODENAME", name(port))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", distribution_port.to_string())
        .env("ERL_EPMD_PORT", mapper_port.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_CONFIG_FILE", folder.join("conf"))
        .env("RABBITMQ_ADVANCED_CONFIG_FILE", folder.join("advanced.config"))
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.join("logs"))
        .env("RABBITMQ_LOGS", "-")
        .env("RABBITMQ_PID_FILE", folder.join("pid"))
        // The node has two schedulers, which do not spin while they wait for work.
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 2:2 +sbwt none")
        .env("HOME", folder);
    command
}
