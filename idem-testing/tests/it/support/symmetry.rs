//! Worlds that differ only in the names of equal workers count as one world.
//!
//! This is sound for two reasons. The protocol only compares owners for equality. Equal workers have the same
//! policy, the same arguments and the same number of lives.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};

use super::protocol::{OnCrash, Owner};
use super::setup::Setup;
use super::worker::{Call, owner, worker_of};
use super::world::World;

/// Puts equal workers in an order that depends on their state and not on their names.
pub fn sort(world: &mut World, setup: &Setup) {
    let count = world.workers.len();
    let mut order: Vec<usize> = (0..count).collect();
    // The workers under `in_doubt` come last, as in each setup. So each worker keeps its own policy.
    order.sort_by_cached_key(|index| (setup.workers[*index] == OnCrash::InDoubt, look(world, *index)));
    if order.is_sorted() {
        return;
    }
    let mut place = vec![0; count];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new;
    }
    let name = |old: Owner| match worker_of(old, count) {
        Some(worker) => owner(place[worker], old.as_bytes()[1]),
        None => old,
    };
    world.workers = order.iter().map(|old| world.workers[*old].clone()).collect();
    if let Some(record) = &mut world.key.record {
        record.owner = name(record.owner);
    }
    world.key.shadow.rename(name);
    for late in &mut world.late {
        late.0 = place[late.0];
    }
    sort_late(&mut world.late);
}

/// Sorts the late copies, so that their order does not distinguish worlds. Any fixed order would do.
pub fn sort_late(late: &mut [(usize, u8, Call)]) {
    late.sort_by_key(hash_of);
}

fn look(world: &World, index: usize) -> u64 {
    let record = world.key.record.as_ref();
    let holder = record.and_then(|record| worker_of(record.owner, world.workers.len()));
    hash_of(&(&world.workers[index], holder == Some(index)))
}

fn hash_of(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(value)
}
