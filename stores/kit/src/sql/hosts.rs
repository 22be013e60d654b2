//! The servers of a URL, and which one a connection tries first. Opens no connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The servers in the URL's order, and which of them the store's next connection tries first.
#[derive(Debug)]
pub(super) struct Hosts {
    pub(super) count: usize,
    first: AtomicUsize,
}

/// One of the servers.
#[derive(Clone, Debug)]
pub struct Host {
    hosts: Arc<Hosts>,
    index: usize,
}

impl Hosts {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { count, first: AtomicUsize::new(0) })
    }

    /// The server that the next connection tries first. [`Host::prefer`] sets it to the server that accepted
    /// the last connection, so that a server that is down costs its timeout only once.
    pub(super) fn first(self: &Arc<Self>) -> Host {
        Host { hosts: self.clone(), index: self.first.load(Ordering::Relaxed) }
    }

    /// All servers in the order in which a connection tries them.
    pub(super) fn in_turn(self: &Arc<Self>) -> impl Iterator<Item = Host> + use<> {
        let Host { hosts, index: first } = self.first();
        (0..hosts.count).map(move |step| Host { index: (first + step) % hosts.count, hosts: hosts.clone() })
    }
}

impl Host {
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    /// Whether the next connections try this server first.
    pub(super) fn is_first(&self) -> bool {
        self.hosts.first.load(Ordering::Relaxed) == self.index
    }

    /// Makes the next connections try this server first.
    pub(super) fn prefer(&self) {
        self.hosts.first.store(self.index, Ordering::Relaxed);
    }

    /// If connections try this server first, makes the next connections begin with the server that follows it
    /// in the URL.
    pub fn leave(&self) {
        let next = (self.index + 1) % self.hosts.count;
        let _ = self.hosts.first.compare_exchange(self.index, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_begin_with_the_server_that_was_of_use_and_not_with_one_that_was_left() {
        let hosts = Hosts::new(3);
        let order = || hosts.in_turn().map(|host| host.index()).collect::<Vec<_>>();
        let host = |index| hosts.in_turn().find(|host| host.index() == index).unwrap();
        assert_eq!(order(), [0, 1, 2]);
        host(2).prefer();
        assert_eq!(order(), [2, 0, 1]);
        host(2).leave();
        assert_eq!(order(), [0, 1, 2]);
        // An old session leaves a server that the store no longer uses. This changes nothing.
        host(2).leave();
        assert_eq!(order(), [0, 1, 2]);
        let alone = Hosts::new(1);
        let only = alone.in_turn().next().unwrap();
        only.leave();
        assert_eq!(alone.in_turn().map(|host| host.index()).collect::<Vec<_>>(), [0]);
    }
}
