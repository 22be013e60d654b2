//! HTTP requests in a transaction, on PostgreSQL and MariaDB. One commit contains what a request wrote and
//! the record of its response.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod bank;
mod cases;
mod crashes;
mod databases;
mod only_postgres;
#[path = "../../it/support/mod.rs"]
mod support;

/// The cases on one database.
macro_rules! on {
    ($database:ident $engine:ident $($module:ident: $($case:ident)*;)*) => {
        mod $database {$($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::$module::$case::<idem_test_servers::$engine>().await;
            }
        )*)*}
    };
}

/// The cases that every database must pass.
macro_rules! on_both {
    ($($cases:tt)*) => {
        on! { on_postgres PostgresEngine $($cases)* }
        on! { on_mariadb MariaDbEngine $($cases)* }
    };
}

on_both! {
    cases:
        twenty_duplicates_at_once_have_one_effect_one_record_and_one_response
        duplicates_that_wait_use_no_connection_of_a_pool_of_two
        a_handler_that_fails_or_cannot_be_recorded_leaves_nothing_and_the_same_request_runs_at_once
        a_response_that_breaks_off_and_a_client_that_goes_away_leave_nothing
        a_refusal_is_replayed_or_forgotten_and_what_its_handler_wrote_is_undone
        a_key_is_for_one_request_while_it_is_processed_and_after_also_in_another_process
        a_transaction_is_taken_once_only_where_there_is_one_and_leaves_no_trace_of_a_crash
        a_transaction_that_a_handler_leaves_behind_is_not_committed;
    crashes:
        a_killed_process_leaves_nothing_before_its_commit_and_a_replay_after_it
        a_process_killed_at_its_commit_leaves_one_effect;
}
