//! The error on a machine without PostgreSQL.

#[test]
fn a_machine_without_servers_is_told_how_to_get_them() {
    idem_test_servers::says_what_is_missing(
        env!("CARGO_BIN_EXE_transfer"),
        &[
            (&[], &["postgres"]),
            (&["--server", "pgbouncer"], &["postgres"]),
            (&["--server", "mysql"], &["mysql"]),
        ],
    );
}
