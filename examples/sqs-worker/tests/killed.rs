//! A worker that is killed between its effect and its acknowledgement.

use sqs_worker::OnSqs;

#[tokio::test]
async fn a_worker_killed_between_effect_and_record_is_followed_by_one_that_records_once() {
    let program = env!("CARGO_BIN_EXE_sqs-worker");
    let (effects, answers) = worker_demo::killed_between_effect_and_record::<OnSqs>(program).await.unwrap();
    // The effect is not part of the result's commit, so it happened twice. There is one result.
    assert_eq!((effects, answers), (2, 1));
}
