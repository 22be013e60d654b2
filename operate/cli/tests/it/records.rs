//! Makes records, for the tests of the command and of the console.

use std::time::Duration;

use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, OnCrash, Owner, Release, ReleaseCause, State, StoredResult, Verdict,
};
use idem_core::{Key, RecordKey, Scope, Store};

/// Part of keys and results in these tests. It must appear only if an option asks for it.
pub(crate) const SECRET: &str = "hush";
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn key_of(scope: &str, text: &str) -> RecordKey {
    RecordKey::new(Scope::new(scope.to_owned()).unwrap(), Key::new(text).unwrap())
}

/// A claim by a new owner.
pub(crate) fn claim() -> Claim {
    Claim::new(Owner::random(), DAY, DAY).with_on_crash(OnCrash::InDoubt)
}

/// Brings a fresh key to a state.
pub(crate) async fn bring<S: Store>(store: &S, key: &RecordKey, state: State) {
    let request = claim();
    let ClaimAnswer::Granted(grant) = store.claim(key, &request).await.unwrap() else {
        panic!("{key:?} is not fresh");
    };
    let (owner, fence) = (request.owner, grant.fence);
    let release = |cause| Release::new(owner, fence, cause);
    match state {
        State::InFlight => {}
        State::Released => drop(store.release(key, &release(ReleaseCause::Failed)).await.unwrap()),
        State::InDoubt => drop(store.release(key, &release(ReleaseCause::Abandoned)).await.unwrap()),
        State::Completed | State::Failed => {
            let verdict = if state == State::Failed { Verdict::Failed } else { Verdict::Completed };
            let result = StoredResult::Value(format!("{{\"receipt\":\"{SECRET}\"}}").into());
            let request = Complete::new(owner, fence, verdict, result, DAY);
            store.complete(key, &request).await.unwrap();
        }
        other => panic!("no record can be brought into the state {other:?}"),
    }
}
