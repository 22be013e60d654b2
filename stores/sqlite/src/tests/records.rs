//! Arbitrary records, written to a file and read again.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::{claim_request, folder, key, open};
use crate::reader::Readers;
use crate::{batch, clock};
use idem_core::protocol::{
    self, Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
};

/// Any instant that SQLite can store.
fn instant() -> impl Strategy<Value = Timestamp> {
    (0..=i64::MAX.unsigned_abs()).prop_map(Timestamp::from_micros)
}

fn result() -> impl Strategy<Value = StoredResult> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| StoredResult::Value(Bytes::from(bytes))),
        Just(StoredResult::Tombstone(Tombstone::TooLarge)),
        Just(StoredResult::Tombstone(Tombstone::NotEncodable)),
        Just(StoredResult::Tombstone(Tombstone::Exhausted)),
    ]
}

fn standing() -> impl Strategy<Value = (State, Option<StoredResult>, Option<Timestamp>)> {
    prop_oneof![
        Just((State::InFlight, None, None)),
        Just((State::Released, None, None)),
        Just((State::InDoubt, None, None)),
        (result(), instant()).prop_map(|(result, at)| (State::Completed, Some(result), Some(at))),
        (result(), instant()).prop_map(|(result, at)| (State::Failed, Some(result), Some(at))),
    ]
}

prop_compose! {
    fn step()(name in ".{0,12}", input: Option<[u8; 32]>, result in result()) -> RecordedStep {
        RecordedStep::new(name, input.map(Fingerprint::from_bytes), result)
    }
}

prop_compose! {
    fn record()(
        (state, result, completed_at) in standing(),
        steps in prop::collection::vec(step(), 0..4),
        owner: [u8; 16],
        fence in 0..=i64::MAX.unsigned_abs(),
        attempt: u32,
        recovered: bool,
        in_doubt: bool,
        [lease_until, retry_at, created_at] in [instant(), instant(), instant()],
        ttl in 0..=i64::MAX.unsigned_abs(),
        fingerprint: Option<[u8; 32]>,
        expires_at in prop::option::of(instant()),
    ) -> Record {
        let steps = if result.is_some() { Vec::new() } else { steps };
        Record::new(state, Owner::from_bytes(owner), Fence::new(fence)).with_attempt(attempt).with_recovered(recovered).with_on_crash(if in_doubt { OnCrash::InDoubt } else { OnCrash::Rerun }).with_lease_until(lease_until).with_retry_at(retry_at).with_ttl(Duration::from_micros(ttl)).with_fingerprint(fingerprint.map(Fingerprint::from_bytes)).with_result(result).with_steps(steps).with_created_at(created_at).with_completed_at(completed_at).with_expires_at(expires_at)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_claim_is_answered_beside_the_writer_as_by_the_whole_record(
        record in record(), fingerprint: Option<[u8; 32]>, same: bool, max_attempts in 0_u32..3
    ) {
        let folder = folder();
        let (file, connection) = open(&folder);
        let mut session = batch::Session::prepare(&connection).unwrap();
        session.put(&key("a"), None, &record).unwrap();
        let fingerprint = fingerprint.map(Fingerprint::from_bytes);
        let request = claim_request().with_fingerprint(if same { record.fingerprint } else { fingerprint }).with_max_attempts(std::num::NonZeroU32::new(max_attempts));
        let answered = |record: &Record| {
            let step = protocol::claim(Some(record), Fence::default(), &request, clock::now());
            // A transition that writes goes to the writer.
            step.write.is_none().then_some(step.answer)
        };
        let readers = Readers::new(file.into());
        let reading = readers.read(|reader| Ok(reader.find_for_claim(&key("a")))).unwrap().unwrap().unwrap();
        let terminal = record.result.is_some();
        prop_assert!(terminal || reading == record);
        if terminal {
            prop_assert_eq!(answered(&reading), answered(&record));
        }
    }
}
