//! RabbitMQ, as Debian packages it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{missing, required};
use crate::process::{Server, free_port};

/// A RabbitMQ node of its own, with the user `guest` and what it is told kept on disk. It takes about ten
/// seconds to start.
#[derive(Debug)]
pub struct RabbitMq {
    // Ended before the port mapper that it is registered with.
    node: Server,
    port_mapper: Server,
}

impl RabbitMq {
    /// Whether it can be started.
    ///
    /// # Errors
    ///
    /// What to do, in one line, where it is not installed.
    pub fn installed() -> Result<(), String> {
        script().map(drop)
    }

    /// An empty one.
    #[must_use]
    pub fn start() -> Self {
        required(script());
        // Otherwise the node would start one that outlives it.
        let port_mapper = Server::start(
            |_| {},
            |port, _| {
                let mut command = Command::new("epmd");
                command.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
                command
            },
        );
        let mapper_port = port_mapper.port();
        let distribution_port = free_port();
        let node = Server::start(
            |folder| {
                std::fs::write(folder.join("conf"), "cluster_name = test\nloopback_users.guest = true\n")
                    .unwrap();
                std::fs::write(folder.join("plugins"), "[].").unwrap();
            },
            move |port, folder| node(port, mapper_port, distribution_port, folder),
        );
        Self { node, port_mapper }
    }

    /// `amqp://guest:guest@127.0.0.1:PORT/%2f`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.node.port())
    }

    /// How many messages there are in the queues whose names begin so, but for dead letters: those included that
    /// somebody was given and has not acknowledged.
    #[must_use]
    pub fn messages(&self, queues: &str) -> u64 {
        let text = self.tell(&["list_queues", "--no-table-headers", "name", "messages"]);
        let counts = text.lines().filter_map(|line| line.split_once('\t'));
        let counts = counts.filter(|(queue, _)| queue.starts_with(queues) && !queue.ends_with("-dead"));
        counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
    }

    /// Has the node write down which queues there are, which it does a while after they are declared: one that is killed
    /// before has lost them.
    pub fn remember_queues(&self) {
        self.tell(&["eval", "mnesia:sync_log()."]);
    }

    /// What the node's tool prints.
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

    /// Its process. What was persistent in durable queues is there again after a restart.
    #[must_use]
    pub const fn server(&mut self) -> &mut Server {
        &mut self.node
    }
}

fn script() -> Result<PathBuf, String> {
    // Of the package itself, and not the one in the path, which changes the user.
    let script = Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
    if script.exists() { Ok(script.to_owned()) } else { Err(missing("RabbitMQ", "rabbitmq")) }
}

fn name(port: u16) -> String {
    format!("rabbit-{port}@localhost")
}

fn node(port: u16, mapper_port: u16, distribution_port: u16, folder: &Path) -> Command {
    let mut command = Command::new(required(script()));
    command
        // So that the node is the process that was started, and not a child of it.
        .env("RUNNING_UNDER_SYSTEMD", "true")
        .env("RABBITMQ_NODENAME", name(port))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", distribution_port.to_string())
        .env("ERL_EPMD_PORT", mapper_port.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_CONFIG_FILE", folder.join("conf"))
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.join("logs"))
        .env("RABBITMQ_LOGS", "-")
        .env("RABBITMQ_PID_FILE", folder.join("pid"))
        // Two schedulers are as many as there are cores, and it spins less.
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 2:2 +sbwt none")
        .env("HOME", folder);
    command
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::path::Path;

    use super::RabbitMq;

    #[test]
    fn a_rabbitmq_node_and_its_port_mapper_end_with_their_owner() {
        let mut rabbit = RabbitMq::start();
        let (id, port) = (rabbit.server().id().unwrap(), rabbit.server().port());
        let mapper = rabbit.port_mapper.id().unwrap();
        rabbit.server().kill();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        rabbit.server().restart();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        let again = rabbit.server().id().unwrap();
        drop(rabbit);
        for id in [id, again, mapper] {
            assert!(!Path::new(&format!("/proc/{id}")).exists());
        }
    }
}
