//! The finished offsets.
//!
//! Owns the rule that an offset is committed only when every message before it in its partition is done. This
//! module knows nothing about Kafka's client.

use std::collections::{BTreeSet, HashMap};

/// A topic, and one of its partitions.
pub(crate) type Partition = (String, i32);

/// The partition and offset of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) partition: Partition,
    pub(crate) offset: i64,
    /// The number of the assignment in which the message was delivered. A partition may be assigned to this
    /// worker several times.
    assignment: u64,
}

/// The messages of this worker's partitions that were delivered and are not done.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    partitions: HashMap<Partition, Track>,
    assignments: u64,
}

#[derive(Debug, Default)]
struct Track {
    assignment: u64,
    /// Whether the client has paused the partition.
    is_paused: bool,
    /// The offsets that were delivered and are not done.
    open: BTreeSet<i64>,
    /// The offset after the last delivered offset.
    next: Option<i64>,
}

impl Track {
    /// The offset from which another worker would have to continue. `None` if nothing was delivered.
    fn committable(&self) -> Option<i64> {
        self.open.first().copied().or(self.next)
    }
}

impl Offsets {
    /// Adds a partition that now belongs to this worker.
    pub(crate) fn assign(&mut self, partition: Partition) {
        self.assignments += 1;
        self.partitions.insert(partition, Track { assignment: self.assignments, ..Track::default() });
    }

    /// Adds a message that arrived. `None` if the partition does not belong to this worker now.
    pub(crate) fn deliver(&mut self, partition: Partition, offset: i64) -> Option<Place> {
        let track = self.partitions.get_mut(&partition)?;
        track.open.insert(offset);
        track.next = Some(offset + 1);
        Some(Place { partition, offset, assignment: track.assignment })
    }

    fn track(&mut self, place: &Place) -> Option<&mut Track> {
        self.partitions.get_mut(&place.partition).filter(|track| track.assignment == place.assignment)
    }

    /// Whether a message still belongs to this worker.
    pub(crate) fn holds(&self, place: &Place) -> bool {
        self.partitions.get(&place.partition).is_some_and(|track| track.assignment == place.assignment)
    }

    /// Marks a message as done. Returns the offset to commit, if it has changed.
    pub(crate) fn done(&mut self, place: &Place) -> Option<i64> {
        let track = self.track(place)?;
        let before = track.committable();
        track.open.remove(&place.offset);
        track.committable().filter(|now| before != Some(*now))
    }

    /// Removes a partition that no longer belongs to this worker. Returns the offset from which another
    /// worker continues.
    pub(crate) fn revoke(&mut self, partition: &Partition) -> Option<i64> {
        self.partitions.remove(partition)?.committable()
    }

    pub(crate) fn forget(&mut self) {
        self.partitions.clear();
    }

    /// Returns the partitions to pause, and then the partitions to resume.
    ///
    /// The share of each partition is an equal part of `held` messages, but at least `least`. A partition
    /// that holds its share is paused. A paused partition is resumed when half of its share is free.
    pub(crate) fn to_change(&self, held: usize, least: usize) -> [(bool, Vec<Partition>); 2] {
        let share = held.checked_div(self.partitions.len()).unwrap_or(held).max(least).max(1);
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        for (partition, track) in &self.partitions {
            let open = track.open.len();
            if !track.is_paused && open >= share {
                pause.push(partition.clone());
            } else if track.is_paused && open <= share / 2 {
                resume.push(partition.clone());
            }
        }
        [(true, pause), (false, resume)]
    }

    /// The partitions in this list that are paused.
    pub(crate) fn paused(&self, partitions: &[Partition]) -> Vec<Partition> {
        let is_paused =
            |partition: &&Partition| self.partitions.get(*partition).is_some_and(|track| track.is_paused);
        partitions.iter().filter(is_paused).cloned().collect()
    }

    /// Records that the client paused or resumed these partitions.
    pub(crate) fn changed(&mut self, partitions: &[Partition], is_paused: bool) {
        for partition in partitions {
            if let Some(track) = self.partitions.get_mut(partition) {
                track.is_paused = is_paused;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Offsets, Partition, Place};

    fn orders(partition: i32) -> Partition {
        ("orders".to_owned(), partition)
    }

    /// Assigns partition 0, and delivers messages with these offsets.
    fn delivered(offsets: &mut Offsets, delivered: &[i64]) -> Vec<Place> {
        offsets.assign(orders(0));
        delivered.iter().map(|offset| offsets.deliver(orders(0), *offset).unwrap()).collect()
    }

    #[test]
    fn an_offset_is_committed_when_everything_before_it_is_done() {
        let mut offsets = Offsets::default();
        // Offset 6 does not exist in the log.
        let places = delivered(&mut offsets, &[4, 5, 7, 8]);
        assert_eq!(offsets.done(&places[1]), None);
        assert_eq!(offsets.done(&places[2]), None);
        assert_eq!(offsets.done(&places[0]), Some(8));
        assert_eq!(offsets.done(&places[3]), Some(9));
        assert_eq!(offsets.done(&places[3]), None);
    }

    #[test]
    fn what_was_not_done_is_where_the_next_worker_goes_on() {
        let mut offsets = Offsets::default();
        let places = delivered(&mut offsets, &[4, 5, 6]);
        offsets.done(&places[0]);
        offsets.done(&places[2]);
        assert_eq!(offsets.revoke(&orders(0)), Some(5));
        assert_eq!(offsets.deliver(orders(0), 7), None, "the partition is another worker's");
        offsets.assign(orders(0));
        assert_eq!(offsets.revoke(&orders(0)), None, "nothing was delivered: what is committed stays");
    }

    #[test]
    fn a_late_word_of_an_earlier_assignment_changes_nothing() {
        let mut offsets = Offsets::default();
        let mut late = delivered(&mut offsets, &[4, 5]);
        offsets.revoke(&orders(0));
        late.extend(delivered(&mut offsets, &[4, 5]));
        offsets.forget();
        delivered(&mut offsets, &[4, 5]);
        for late in &late {
            assert_eq!(offsets.done(late), None);
            assert!(!offsets.holds(late));
        }
        assert_eq!(offsets.revoke(&orders(0)), Some(4));
    }

    #[test]
    fn a_partition_that_used_up_its_share_is_paused_alone_and_fetched_from_when_half_of_it_is_free() {
        let mut offsets = Offsets::default();
        offsets.assign(orders(1));
        let places = delivered(&mut offsets, &[0, 1, 2, 3]);
        let (none, one) = (Vec::new(), vec![orders(0)]);
        let [(_, pause), (_, fetch)] = offsets.to_change(8, 1);
        assert_eq!((&pause, &fetch), (&one, &none));
        offsets.changed(&pause, true);
        offsets.done(&places[0]);
        assert_eq!(offsets.to_change(8, 1).map(|(_, partitions)| partitions), [none.clone(), none.clone()]);
        offsets.done(&places[1]);
        assert_eq!(offsets.to_change(8, 1).map(|(_, partitions)| partitions), [none.clone(), one.clone()]);
        // A third partition makes the shares smaller, but does not change which partitions are paused.
        offsets.assign(orders(2));
        assert_eq!(offsets.paused(&[orders(0), orders(1), orders(2)]), one);
        // However many partitions there are, a share is at least `least`, so that no handler is idle.
        assert_eq!(offsets.to_change(3, 9)[0].1, none);
    }
}
