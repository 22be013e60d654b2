//! The offsets that are done.
//!
//! Owns the rule that an offset is committed only when every message before it in its partition is done. It
//! knows nothing of Kafka's client.

use std::collections::{BTreeMap, HashMap};

/// A topic, and one of its partitions.
pub(crate) type Partition = (String, i32);

/// The partition and offset of a message, and the assignment of the partition that delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) partition: Partition,
    pub(crate) offset: i64,
    assignment: u64,
}

/// The messages of this worker's partitions that were delivered and are not done.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    partitions: HashMap<Partition, Track>,
    assignments: u64,
}

/// Whether the client fetches from a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    #[default]
    Fetched,
    Paused,
}

#[derive(Debug, Default)]
struct Track {
    assignment: u64,
    flow: Flow,
    /// The partition is about to go to another worker.
    leaving: bool,
    /// The offsets that were delivered and are not done, each with whether a handler has begun it.
    open: BTreeMap<i64, bool>,
    /// The offset after the last one that was delivered.
    next: Option<i64>,
}

impl Track {
    /// The offset from which another worker would have to continue.
    fn committable(&self) -> Option<i64> {
        self.open.first_key_value().map(|(offset, _)| *offset).or(self.next)
    }
}

impl Offsets {
    /// Adds a partition that is now this worker's.
    pub(crate) fn assign(&mut self, partition: Partition) {
        self.assignments += 1;
        self.partitions.insert(partition, Track { assignment: self.assignments, ..Track::default() });
    }

    /// Adds a message that arrived; `None` where its partition is not, or no longer, this worker's.
    pub(crate) fn deliver(&mut self, partition: Partition, offset: i64) -> Option<Place> {
        let track = self.partitions.get_mut(&partition).filter(|track| !track.leaving)?;
        track.open.insert(offset, false);
        track.next = Some(offset + 1);
        Some(Place { partition, offset, assignment: track.assignment })
    }

    fn track(&mut self, place: &Place) -> Option<&mut Track> {
        self.partitions.get_mut(&place.partition).filter(|track| track.assignment == place.assignment)
    }

    /// Marks a message as begun. Returns whether it is still this worker's.
    pub(crate) fn begin(&mut self, place: &Place) -> bool {
        let begun = self.track(place).filter(|track| !track.leaving);
        begun.and_then(|track| track.open.get_mut(&place.offset)).map(|begun| *begun = true).is_some()
    }

    /// Marks a message as done. Returns the offset to commit, where there is a new one.
    pub(crate) fn done(&mut self, place: &Place) -> Option<i64> {
        let track = self.track(place)?;
        let before = track.committable();
        track.open.remove(&place.offset);
        track.committable().filter(|now| before != Some(*now))
    }

    /// Marks a message as not begun again. It is not done, so it still holds up the commit of its partition.
    pub(crate) fn abandon(&mut self, place: &Place) {
        if let Some(begun) = self.track(place).and_then(|track| track.open.get_mut(&place.offset)) {
            *begun = false;
        }
    }

    /// From now on no message of these partitions is begun.
    pub(crate) fn leave(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            if let Some(track) = self.partitions.get_mut(partition) {
                track.leaving = true;
            }
        }
    }

    /// How many messages of these partitions are in work.
    pub(crate) fn in_work(&self, partitions: &[Partition]) -> usize {
        let tracks = partitions.iter().filter_map(|partition| self.partitions.get(partition));
        tracks.map(|track| track.open.values().filter(|begun| **begun).count()).sum()
    }

    /// Removes a partition that is no longer this worker's. Returns the offset from which another worker continues.
    pub(crate) fn revoke(&mut self, partition: &Partition) -> Option<i64> {
        self.partitions.remove(partition)?.committable()
    }

    /// Removes all partitions.
    pub(crate) fn forget(&mut self) {
        self.partitions.clear();
    }

    /// The partitions to pause and those to resume, so that each has an equal share of `held`, and at least `least`.
    ///
    /// A paused partition is resumed when half of its share is free.
    pub(crate) fn to_change(&self, held: usize, least: usize) -> [(Flow, Vec<Partition>); 2] {
        let share = held.checked_div(self.partitions.len()).unwrap_or(held).max(least).max(1);
        let (mut pause, mut fetch) = (Vec::new(), Vec::new());
        for (partition, track) in self.partitions.iter().filter(|(_, track)| !track.leaving) {
            let open = track.open.len();
            match track.flow {
                Flow::Fetched if open >= share => pause.push(partition.clone()),
                Flow::Paused if open <= share / 2 => fetch.push(partition.clone()),
                Flow::Fetched | Flow::Paused => {}
            }
        }
        [(Flow::Paused, pause), (Flow::Fetched, fetch)]
    }

    /// The paused ones of these partitions.
    pub(crate) fn paused(&self, partitions: &[Partition]) -> Vec<Partition> {
        let is_paused = |partition: &&Partition| {
            self.partitions.get(*partition).is_some_and(|track| track.flow == Flow::Paused)
        };
        partitions.iter().filter(is_paused).cloned().collect()
    }

    /// Records that the client paused or resumed these partitions.
    pub(crate) fn changed(&mut self, partitions: &[Partition], flow: Flow) {
        for partition in partitions {
            if let Some(track) = self.partitions.get_mut(partition) {
                track.flow = flow;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, Offsets, Partition, Place};

    fn orders(partition: i32) -> Partition {
        ("orders".to_owned(), partition)
    }

    /// The first partition, with these offsets delivered and begun.
    fn begun(offsets: &mut Offsets, delivered: &[i64]) -> Vec<Place> {
        offsets.assign(orders(0));
        let places: Vec<_> =
            delivered.iter().map(|offset| offsets.deliver(orders(0), *offset).unwrap()).collect();
        assert!(places.iter().all(|place| offsets.begin(place)));
        places
    }

    #[test]
    fn an_offset_is_committed_when_everything_before_it_is_done() {
        let mut offsets = Offsets::default();
        // Offset 6 does not exist in the log.
        let places = begun(&mut offsets, &[4, 5, 7, 8]);
        assert_eq!(offsets.done(&places[1]), None);
        assert_eq!(offsets.done(&places[2]), None);
        assert_eq!(offsets.done(&places[0]), Some(8));
        assert_eq!(offsets.done(&places[3]), Some(9));
        assert_eq!(offsets.done(&places[3]), None);
    }

    #[test]
    fn what_was_not_done_is_where_the_next_worker_goes_on() {
        let mut offsets = Offsets::default();
        let places = begun(&mut offsets, &[4, 5, 6]);
        offsets.done(&places[0]);
        offsets.done(&places[2]);
        assert_eq!(offsets.revoke(&orders(0)), Some(5));
        offsets.assign(orders(0));
        assert_eq!(offsets.revoke(&orders(0)), None, "nothing was delivered: what is committed stays");
    }

    #[test]
    fn nothing_is_begun_in_a_partition_that_leaves_and_what_is_begun_is_waited_for() {
        let mut offsets = Offsets::default();
        let places = begun(&mut offsets, &[4, 5]);
        let waiting = offsets.deliver(orders(0), 6).unwrap();
        offsets.leave(&[orders(0)]);
        assert!(!offsets.begin(&waiting));
        assert_eq!(offsets.deliver(orders(0), 7), None);
        assert_eq!(offsets.in_work(&[orders(0), orders(1)]), 2);
        offsets.done(&places[0]);
        offsets.abandon(&places[1]);
        assert_eq!(offsets.in_work(&[orders(0)]), 0);
        assert_eq!(offsets.revoke(&orders(0)), Some(5));
    }

    #[test]
    fn a_late_word_of_an_earlier_assignment_changes_nothing() {
        let mut offsets = Offsets::default();
        let mut late = begun(&mut offsets, &[4, 5]);
        offsets.revoke(&orders(0));
        late.extend(begun(&mut offsets, &[4, 5]));
        offsets.forget();
        begun(&mut offsets, &[4, 5]);
        for late in &late {
            assert_eq!(offsets.done(late), None);
            assert!(!offsets.begin(late));
        }
        assert_eq!(offsets.revoke(&orders(0)), Some(4));
    }

    #[test]
    fn a_partition_that_used_up_its_share_is_paused_alone_and_fetched_from_when_half_of_it_is_free() {
        let mut offsets = Offsets::default();
        offsets.assign(orders(1));
        let places = begun(&mut offsets, &[0, 1, 2, 3]);
        let (none, one) = (Vec::new(), vec![orders(0)]);
        let [(_, pause), (_, fetch)] = offsets.to_change(8, 1);
        assert_eq!((&pause, &fetch), (&one, &none));
        offsets.changed(&pause, Flow::Paused);
        offsets.done(&places[0]);
        assert_eq!(offsets.to_change(8, 1).map(|(_, partitions)| partitions), [none.clone(), none.clone()]);
        offsets.done(&places[1]);
        assert_eq!(offsets.to_change(8, 1).map(|(_, partitions)| partitions), [none.clone(), one.clone()]);
        // A third partition changes the shares, but not the state of the others.
        offsets.assign(orders(2));
        assert_eq!(offsets.paused(&[orders(0), orders(1), orders(2)]), one);
        // A share is never so small that handlers are idle.
        assert_eq!(offsets.to_change(3, 9)[0].1, none);
    }
}
