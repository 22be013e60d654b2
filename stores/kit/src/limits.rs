//! The settings that stores have in common, and their limits.

use std::time::Duration;

/// The default of the time that an operation may take.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The default limit for the size of a result, in bytes.
pub const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

const LONGEST_TIME: Duration = Duration::from_secs(60 * 60);

/// Checks that a timeout or an interval is from `least` to 1 hour.
///
/// # Errors
///
/// A text that says what is wrong, if the time is out of its range.
pub fn check_time(setting: &str, time: Duration, least: Duration) -> Result<(), String> {
    if time < least || time > LONGEST_TIME {
        return Err(format!("`{setting}` is {time:?} and must be from {least:?} to 1h"));
    }
    Ok(())
}

/// Checks that a number is from 1 to `most`.
///
/// # Errors
///
/// A text that says what is wrong, if the number is out of its range.
pub fn check_number(setting: &str, number: usize, most: usize) -> Result<(), String> {
    if number == 0 || number > most {
        return Err(format!("`{setting}` is {number} and must be from 1 to {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_its_range_is_refused_with_its_name() {
        const LEAST: Duration = Duration::from_millis(1);
        for (checked, expected) in [
            (
                check_time("lock_timeout", Duration::ZERO, LEAST),
                "`lock_timeout` is 0ns and must be from 1ms to 1h",
            ),
            (check_time("lock_timeout", Duration::from_secs(3_601), LEAST), "`lock_timeout` is 3601s"),
            (check_number("connections", 0, 64), "`connections` is 0 and must be from 1 to 64"),
            (check_number("connections", 65, 64), "`connections` is 65"),
        ] {
            let text = checked.unwrap_err();
            assert!(text.starts_with(expected), "{text}");
        }
        check_time("lock_timeout", LEAST, LEAST).unwrap();
        check_time("lock_timeout", LONGEST_TIME, LEAST).unwrap();
        check_number("connections", 64, 64).unwrap();
    }
}
