//! The groups of a broker's messages, as the program or the broker says.

use std::fmt;

use super::Delivery;

/// Which messages of a broker are handled one after another: those of one [`Delivery::group`], unless the program has set a
/// function. A [`Broker`](super::Broker) has one.
pub struct GroupBy<M>(Option<Box<Group<M>>>);

/// Returns the group of a message.
type Group<M> = dyn Fn(&M) -> Option<String> + Send + Sync;

impl<M: Delivery> GroupBy<M> {
    /// Those for which this function returns the same text.
    pub fn by(group: impl Fn(&M) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(group)))
    }

    pub(super) fn group(&self, message: &M) -> Option<String> {
        match &self.0 {
            Some(group) => group(message),
            None => message.group(),
        }
    }
}

impl<M> Default for GroupBy<M> {
    fn default() -> Self {
        Self(None)
    }
}

impl<M> fmt::Debug for GroupBy<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBy").field("is_set", &self.0.is_some()).finish()
    }
}
