//! Which offsets are done with.
//!
//! Owns the rule that an offset is committed only when everything before it in its partition is done. It
//! knows no Kafka.

use std::collections::{BTreeMap, HashMap};

/// A topic, and one of its partitions.
pub(crate) type Partition = (String, i32);

/// Where a message stands, in which assignment of its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) partition: Partition,
    pub(crate) offset: i64,
    assignment: u64,
}

/// What was delivered of the partitions that are this worker's, and is not done.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    partitions: HashMap<Partition, Track>,
    assignments: u64,
}

/// Whether a partition is fetched from.
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
    /// It is about to go to another worker.
    leaving: bool,
    /// Delivered and not done; whether somebody works at it.
    open: BTreeMap<i64, bool>,
    /// After the last that was delivered.
    next: Option<i64>,
}

impl Track {
    /// From where another worker would have to go on.
    fn committable(&self) -> Option<i64> {
        self.open.first_key_value().map(|(offset, _)| *offset).or(self.next)
    }
}

impl Offsets {
    /// A partition is now this worker's.
    pub(crate) fn assign(&mut self, partition: Partition) {
        self.assignments += 1;
        self.partitions.insert(partition, Track { assignment: self.assignments, ..Track::default() });
    }

    /// A message came; `None` where its partition is not, or no longer, this worker's.
    pub(crate) fn deliver(&mut self, partition: Partition, offset: i64) -> Option<Place> {
        let track = self.partitions.get_mut(&partition).filter(|track| !track.leaving)?;
        track.open.insert(offset, false);
        track.next = Some(offset + 1);
        Some(Place { partition, offset, assignment: track.assignment })
    }

    fn track(&mut self, place: &Place) -> Option<&mut Track> {
        self.partitions.get_mut(&place.partition).filter(|track| track.assignment == place.assignment)
    }

    /// Somebody begins to work at a message, if it is still this worker's.
    pub(crate) fn begin(&mut self, place: &Place) -> bool {
        let begun = self.track(place).filter(|track| !track.leaving);
        begun.and_then(|track| track.open.get_mut(&place.offset)).map(|begun| *begun = true).is_some()
    }

    /// A message is done with. Gives the offset to commit, where there is a new one.
    pub(crate) fn done(&mut self, place: &Place) -> Option<i64> {
        let track = self.track(place)?;
        let before = track.committable();
        track.open.remove(&place.offset);
        track.committable().filter(|now| before != Some(*now))
    }

    /// Nobody works at a message any more, and it is not done: it holds up its partition.
    pub(crate) fn abandon(&mut self, place: &Place) {
        if let Some(begun) = self.track(place).and_then(|track| track.open.get_mut(&place.offset)) {
            *begun = false;
        }
    }

    /// No message of these is begun any more.
    pub(crate) fn leave(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            if let Some(track) = self.partitions.get_mut(partition) {
                track.leaving = true;
            }
        }
    }

    /// How many messages of these are in work.
    pub(crate) fn in_work(&self, partitions: &[Partition]) -> usize {
        let tracks = partitions.iter().filter_map(|partition| self.partitions.get(partition));
        tracks.map(|track| track.open.values().filter(|begun| **begun).count()).sum()
    }

    /// A partition is no longer this worker's. Gives the offset from which another one is to go on.
    pub(crate) fn revoke(&mut self, partition: &Partition) -> Option<i64> {
        self.partitions.remove(partition)?.committable()
    }

    /// No partition is this worker's any more.
    pub(crate) fn forget(&mut self) {
        self.partitions.clear();
    }

    /// The partitions to pause and those to fetch from again, so that each has its share of `held`, and none less than `least`.
    ///
    /// A share is freed by half before its partition is fetched from again.
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

    /// Those of these that are paused.
    pub(crate) fn paused(&self, partitions: &[Partition]) -> Vec<Partition> {
        let is_paused = |partition: &&Partition| {
            self.partitions.get(*partition).is_some_and(|track| track.flow == Flow::Paused)
        };
        partitions.iter().filter(is_paused).cloned().collect()
    }

    /// The client did as it was told.
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
        // 6 is missing in the log itself.
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
        // A third one that comes changes the shares, and leaves what is known of the others.
        offsets.assign(orders(2));
        assert_eq!(offsets.paused(&[orders(0), orders(1), orders(2)]), one);
        // No share is so small that handlers are idle.
        assert_eq!(offsets.to_change(3, 9)[0].1, none);
    }
}
