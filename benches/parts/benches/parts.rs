//! Measures each part of a call on its own.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use idem::protocol::{Claim, ClaimAnswer, Complete, Owner, StoredResult, Verdict};
use idem::{Key, KeyBuilder, MemoryStore, Operation, RecordKey, Scope, Store};
use idem_part_costs::{
    Instant, Order, Receipt, by_attribute, by_hand, runtime, with_fingerprint, with_receipt,
};

fn keys(c: &mut Criterion) {
    let order = Order::new(42);
    c.bench_function("key: a literal and a number", |b| {
        b.iter(|| KeyBuilder::new().literal("order/").part(&black_box(&order).id).finish());
    });
    c.bench_function("key: two texts, one to be escaped", |b| {
        b.iter(|| {
            KeyBuilder::new().part(black_box("tenant-7")).literal("/").part(black_box("a/b c")).finish()
        });
    });
    c.bench_function("fingerprint: two fields", |b| {
        b.iter(|| Operation::new("parts").fingerprint(black_box(&(order.amount, &order.currency))));
    });
}

fn results(c: &mut Criterion) {
    let runtime = runtime().expect("a runtime");
    let order = Order::new(42);
    let receipt = Receipt::of(&order);
    let json: &'static [u8] = serde_json::to_vec(&receipt).expect("JSON").leak();
    let (granting, replaying) = (Instant::granting(), Instant::replaying(json));
    c.bench_function("encode: a receipt, JSON alone", |b| {
        b.iter(|| serde_json::to_vec(black_box(&receipt)));
    });
    c.bench_function("encode: call with a receipt, store that answers at once", |b| {
        b.iter(|| runtime.block_on(with_receipt(&granting, black_box(&order))));
    });
    c.bench_function("decode: a receipt, JSON alone", |b| {
        b.iter(|| serde_json::from_slice::<Receipt>(black_box(json)));
    });
    c.bench_function("decode: replay of a receipt, store that answers at once", |b| {
        b.iter(|| runtime.block_on(with_receipt(&replaying, black_box(&order))));
    });
}

fn calls(c: &mut Criterion) {
    let runtime = runtime().expect("a runtime");
    let orders: Vec<Order> = (0..100_000).map(Order::new).collect();
    let next = Cell::new(0);
    let fresh = || {
        next.set((next.get() + 1) % orders.len());
        &orders[next.get()]
    };
    let operation = Operation::new("parts.by_hand");
    let (granting, nothing) = (Instant::granting(), Instant::replaying(b"null"));
    let memory = MemoryStore::new();
    runtime.block_on(by_attribute(&memory, &orders[0])).expect("a call");

    // The keys may repeat, because this store grants every claim.
    c.bench_function("call: fresh, attribute, store that answers at once", |b| {
        b.iter(|| runtime.block_on(by_attribute(&granting, fresh())));
    });
    c.bench_function("call: fresh, by hand, store that answers at once", |b| {
        b.iter(|| runtime.block_on(by_hand(&operation, &granting, fresh())));
    });
    c.bench_function("call: fresh, with a fingerprint, store that answers at once", |b| {
        b.iter(|| runtime.block_on(with_fingerprint(&granting, fresh())));
    });
    c.bench_function("call: replay, attribute, store that answers at once", |b| {
        b.iter(|| runtime.block_on(by_attribute(&nothing, fresh())));
    });
    c.bench_function("call: replay, attribute, MemoryStore", |b| {
        b.iter(|| runtime.block_on(by_attribute(&memory, &orders[0])));
    });
    c.bench_function("call: fresh, attribute, MemoryStore", |b| {
        b.iter_custom(|rounds| {
            // A new store for each group of keys, so that all keys are new.
            let mut spent = Duration::ZERO;
            let mut left = rounds;
            while left > 0 {
                let (store, some) = (MemoryStore::new(), left.min(orders.len() as u64));
                let begin = std::time::Instant::now();
                for order in orders.iter().take(usize::try_from(some).unwrap_or(usize::MAX)) {
                    let _ = black_box(runtime.block_on(by_attribute(&store, order)));
                }
                spent += begin.elapsed();
                left -= some;
            }
            spent
        });
    });
    c.bench_function("call: none, the body alone", |b| {
        b.iter(|| {
            runtime.block_on(async {
                black_box(fresh());
                Ok::<(), idem::Error>(())
            })
        });
    });
}

fn memory(c: &mut Criterion) {
    let runtime = runtime().expect("a runtime");
    let store = MemoryStore::new();
    let scope = Scope::new("parts").expect("a scope");
    let next = Cell::new(0_u64);
    let claim = || Claim::new(Owner::random(), Duration::from_secs(30), Duration::from_millis(50));
    c.bench_function("MemoryStore: claim and complete", |b| {
        b.iter(|| {
            next.set(next.get() + 1);
            let key = RecordKey::new(scope.clone(), Key::new(next.get().to_string()).expect("a key"));
            let claim = claim();
            runtime.block_on(async {
                let Ok(ClaimAnswer::Granted(grant)) = store.claim(&key, &claim).await else { return };
                let complete = Complete::new(
                    claim.owner,
                    grant.fence,
                    Verdict::Completed,
                    StoredResult::Value(b"null"[..].into()),
                    claim.ttl,
                );
                let _ = black_box(store.complete(&key, &complete).await);
            });
        });
    });
}

fn memory_replay(c: &mut Criterion) {
    let runtime = runtime().expect("a runtime");
    let (store, order) = (MemoryStore::new(), Order::new(1));
    runtime.block_on(by_attribute(&store, &order)).expect("a call");
    let scope = Scope::new("parts.attribute").expect("a scope");
    let key = RecordKey::new(scope, Key::new("order/1").expect("a key"));
    c.bench_function("MemoryStore: get", |b| b.iter(|| runtime.block_on(store.get(black_box(&key)))));
}

criterion_group!(parts, keys, results, calls, memory, memory_replay);
criterion_main!(parts);
