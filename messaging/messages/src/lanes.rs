//! The order of messages in a group.
//!
//! Owns that order. This module knows neither messages nor brokers.

use std::collections::HashMap;

use tokio::sync::oneshot::{self, error::TryRecvError};

/// The groups that have a message in work.
#[derive(Default)]
pub(super) struct Lanes {
    /// For each group, a receiver that is closed when the last place of the group ends.
    last: HashMap<String, oneshot::Receiver<()>>,
}

/// The place of one message in its group. The next message may run when this place is dropped.
pub(super) struct Place {
    group: String,
    before: Option<oneshot::Receiver<()>>,
    over: oneshot::Sender<()>,
}

impl Lanes {
    /// The next place in a group.
    pub(super) fn enter(&mut self, group: String) -> Place {
        let (over, last) = oneshot::channel();
        let before = self.last.insert(group.clone(), last);
        Place { group, before, over }
    }

    pub(super) fn leave(&mut self, place: Place) {
        let Place { group, over, .. } = place;
        drop(over);
        // A group is forgotten when its last place has ended.
        let last = self.last.get_mut(&group).map(oneshot::Receiver::try_recv);
        if last == Some(Err(TryRecvError::Closed)) {
            self.last.remove(&group);
        }
    }
}

impl Place {
    /// Waits until the message before this one is done.
    pub(super) async fn turn(&mut self) {
        if let Some(before) = self.before.take() {
            // The sender sends nothing. Its drop ends this wait.
            let _ = before.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lanes;

    #[test]
    fn a_group_is_forgotten_when_nobody_is_left_in_it() {
        let mut lanes = Lanes::default();
        let places = ["a", "a", "b"].map(|group| lanes.enter(group.to_owned()));
        let groups = places.map(|place| {
            lanes.leave(place);
            lanes.last.len()
        });
        assert_eq!(groups, [2, 1, 0]);
    }
}
