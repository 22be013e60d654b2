//! Tests of operations with relaxed claims, on a store that ignores them: what is refused, and what stays as it is.

use crate::support;

use idem::{Durability, Error, MemoryStore, OnCrash, Operation, Recovery, StepError, idempotent};
use support::{Failure, Runs, operation, record_key};
use tokio::sync::Notify;

fn relaxed() -> Operation {
    operation().claim_durability(Durability::Relaxed)
}

#[tokio::test]
async fn a_step_is_refused_before_it_runs_and_the_key_is_free_again() {
    let (store, steps) = (MemoryStore::new(), Runs::default());
    let body = || async { idem::step("a", || async { Ok::<_, Failure>(steps.run()) }).await };
    let Err(Failure::Idem(error)) = relaxed().run(&store, "k", body).await else { panic!("it ran") };
    assert!(matches!(&error, Error::Step { source: StepError::RelaxedClaim, .. }), "{error:?}");
    assert!(error.to_string().contains("leave `claim_durability` out"), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(steps.count(), 0);
    // Without relaxed claims, the same body runs.
    assert_eq!(operation().run(&store, "k", body).await.unwrap(), 1);
}

#[tokio::test]
async fn what_depends_on_a_record_of_each_start_is_refused_and_the_text_says_why() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = || async { Ok::<_, Failure>(runs.run()) };
    let recovering = relaxed().recover(|_: Recovery| async { Ok::<Option<usize>, Failure>(None) });
    for (refused, names) in [
        (relaxed().on_crash(OnCrash::InDoubt).run(&store, "k", body).await, "in_doubt"),
        (relaxed().max_attempts(3).run(&store, "k", body).await, "`max_attempts`"),
        (recovering.run(&store, "k", body).await, "`recover`"),
    ] {
        let Err(Failure::Idem(Error::Configuration { detail, .. })) = refused else { panic!("{names}") };
        assert!(detail.contains("relaxed claims") && detail.contains(names), "{detail}");
    }
    assert_eq!(runs.count(), 0);
    assert!(store.is_empty());
    // Full durability goes with all of them.
    let full = operation().claim_durability(Durability::Full).on_crash(OnCrash::InDoubt).max_attempts(3);
    assert_eq!(full.run(&store, "k", body).await.unwrap(), 1);
}

#[tokio::test]
async fn a_relaxed_claim_excludes_duplicates_while_its_body_runs() {
    let (store, runs, begun, ends) = (MemoryStore::new(), Runs::default(), Notify::new(), Notify::new());
    let operation = relaxed();
    let first = operation.run(&store, "k", || async {
        begun.notify_one();
        ends.notified().await;
        Ok::<_, Failure>(runs.run())
    });
    let second = async {
        begun.notified().await;
        let refused = operation.run(&store, "k", || async { Ok::<_, Failure>(runs.run()) }).await;
        ends.notify_one();
        refused
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.unwrap(), second.unwrap_err().kind()), (1, "in_flight"));
}

#[tokio::test]
async fn the_option_comes_and_goes_without_a_change_of_keys() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = || async { Ok::<_, Failure>(runs.run()) };
    assert_eq!(operation().run(&store, "before", body).await.unwrap(), 1);
    assert_eq!(relaxed().run(&store, "before", body).await.unwrap(), 1);
    assert_eq!(relaxed().run(&store, "after", body).await.unwrap(), 2);
    assert_eq!(operation().run(&store, "after", body).await.unwrap(), 2);
    assert_eq!(relaxed().record_key("k").unwrap(), record_key("k"));
}

#[idempotent(key = "{id}", scope = "relaxed.attribute", store = store, claim_durability = "relaxed")]
async fn thumbnail(store: &MemoryStore, id: u64, runs: &Runs) -> Result<usize, Failure> {
    Ok(runs.run())
}

#[idempotent(key = "{id}", scope = "relaxed.attribute", store = store, claim_durability = "full")]
async fn thumbnail_before(store: &MemoryStore, id: u64, runs: &Runs) -> Result<usize, Failure> {
    Ok(runs.run())
}

#[idempotent(key = "{id}", store = store, claim_durability = "relaxed")]
async fn with_a_step(store: &MemoryStore, id: u64) -> Result<u8, Failure> {
    idem::step("a", || async { Ok(1) }).await
}

#[tokio::test]
async fn the_attribute_sets_it_and_its_catalogue_says_so() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    assert_eq!(thumbnail_before(&store, 7, &runs).await.unwrap(), 1);
    assert_eq!(thumbnail(&store, 7, &runs).await.unwrap(), 1);
    assert_eq!(with_a_step(&store, 7).await.unwrap_err().kind(), "step_relaxed_claim");
    let catalogue = idem::catalogue().within("it::relaxed_claims");
    let said: Vec<_> = catalogue
        .operations()
        .iter()
        .map(|operation| (operation.path.rsplit("::").next().unwrap(), operation.claim_durability.as_deref()))
        .collect();
    for (path, durability) in
        [("thumbnail", Some("relaxed")), ("thumbnail_before", None), ("with_a_step", Some("relaxed"))]
    {
        assert!(said.contains(&(path, durability)), "{said:?}");
    }
    assert!(catalogue.to_string().contains("claim_durability relaxed"), "{catalogue}");
}
