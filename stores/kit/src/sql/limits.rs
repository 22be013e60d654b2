//! The settings of a store that stores of SQL servers have in common, and their limits.

use std::time::Duration;

/// How long an operation may take unless set.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
/// How old a connection may become unless set.
pub const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
/// How often a store purges unless set.
pub const PURGE_EVERY: Duration = Duration::from_secs(5 * 60);
/// How many connections there are at most unless set.
pub const CONNECTIONS: usize = 4;
/// The largest result, in bytes, unless set.
pub const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
const MOST_CONNECTIONS: usize = 64;
/// Servers take values and messages of up to 1 GiB, and a message is more than its value.
const LARGEST_MAX_RESULT_BYTES: usize = 512 * 1024 * 1024;

/// Checks a timeout.
///
/// # Errors
///
/// What is wrong, if it is out of its range.
pub fn check_timeout(setting: &str, timeout: Duration) -> Result<(), String> {
    if timeout < Duration::from_millis(1) || timeout > LONGEST_TIMEOUT {
        return Err(format!("`{setting}` is {timeout:?} and must be from 1ms to 1h"));
    }
    Ok(())
}

/// Checks the number of connections and the largest result.
///
/// # Errors
///
/// What is wrong, if one is out of its range.
pub fn check_sizes(connections: usize, max_result_bytes: usize) -> Result<(), String> {
    for (setting, value, most) in [
        ("connections", connections, MOST_CONNECTIONS),
        ("max_result_bytes", max_result_bytes, LARGEST_MAX_RESULT_BYTES),
    ] {
        if value == 0 || value > most {
            return Err(format!("`{setting}` is {value} and must be from 1 to {most}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_its_range_is_refused_with_its_name() {
        for (checked, name) in [
            (check_timeout("lock_timeout", Duration::ZERO), "lock_timeout"),
            (check_timeout("lock_timeout", Duration::from_secs(3_601)), "lock_timeout"),
            (check_sizes(0, 1), "connections"),
            (check_sizes(65, 1), "connections"),
            (check_sizes(1, 0), "max_result_bytes"),
            (check_sizes(1, LARGEST_MAX_RESULT_BYTES + 1), "max_result_bytes"),
        ] {
            assert!(checked.unwrap_err().contains(name), "{name}");
        }
        check_timeout("lock_timeout", LONGEST_TIMEOUT).unwrap();
        check_sizes(MOST_CONNECTIONS, LARGEST_MAX_RESULT_BYTES).unwrap();
    }
}
