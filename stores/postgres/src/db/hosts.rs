//! The servers of a URL, and what they must accept.
//!
//! The driver takes one server and knows no `target_session_attrs`. So a URL with several servers is split
//! into one URL for each, by libpq's rules, before the driver reads it. This module opens no connection.

use idem_core::StoreError;

/// What a server must accept: the parameter `target_session_attrs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Target {
    #[default]
    Any,
    ReadWrite,
    Primary,
}

impl Target {
    /// Errors do not repeat the value, because a URL with a mistake may have a password anywhere.
    fn parse(value: &str) -> Result<Self, StoreError> {
        match value {
            "any" => Ok(Self::Any),
            "read-write" => Ok(Self::ReadWrite),
            "primary" => Ok(Self::Primary),
            "read-only" | "standby" | "prefer-standby" => Err(StoreError::configuration(
                "`target_session_attrs` asks for a server that takes no writes, and every call writes: use \
                 `read-write`, `primary` or `any`",
            )),
            _ => Err(StoreError::configuration(
                "`target_session_attrs` must be `read-write`, `primary` or `any`",
            )),
        }
    }

    /// The SQL expression that tests whether a session is on the right server, and the error text if it is
    /// not.
    pub(super) const fn check(self) -> (&'static str, &'static str) {
        match self {
            Self::Any => ("true", ""),
            Self::ReadWrite => (
                "pg_catalog.current_setting('transaction_read_only') = 'off'",
                "the server takes no writes, and `target_session_attrs` is `read-write`",
            ),
            Self::Primary => (
                "NOT pg_catalog.pg_is_in_recovery()",
                "the server is a standby, and `target_session_attrs` is `primary`",
            ),
        }
    }
}

/// Splits a URL into one URL for each of its servers, and reads its `target_session_attrs`.
///
/// Several servers are written as a list with commas, after the user or in the parameters `host`, `hostaddr`
/// and `port`.
pub(super) fn split(url: &str) -> Result<(Vec<String>, Target), StoreError> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let hosts: Vec<&str> = hosts.split(',').collect();

    let mut target = Target::default();
    let mut parameters = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "target_session_attrs" => target = Target::parse(value)?,
            "host" | "hostaddr" | "port" => parameters.push((name, list(value))),
            _ => parameters.push((name, vec![value])),
        }
    }
    let of_parameters = parameters.iter().filter(|(name, _)| *name != "port").map(|(_, values)| values.len());
    let count = of_parameters.chain([hosts.len()]).max().unwrap_or(1);
    let fits = |length: usize| length == 1 || length == count;
    if !fits(hosts.len()) || !parameters.iter().all(|(_, values)| fits(values.len())) {
        return Err(StoreError::configuration(
            "the URL's lists of hosts and ports differ in length: give one port, or one for each host",
        ));
    }
    let urls = (0..count).map(|server| {
        let mut url = format!("{scheme}://{user}{}{path}", of(&hosts, server));
        for (place, (name, values)) in parameters.iter().enumerate() {
            url.push(if place == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.push_str(of(values, server));
        }
        url
    });
    Ok((urls.collect(), target))
}

/// The parts of a list, whose commas may be escaped.
fn list(value: &str) -> Vec<&str> {
    value.split(',').flat_map(|part| part.split("%2C")).flat_map(|part| part.split("%2c")).collect()
}

/// This server's value in a list, or the single value for all servers.
fn of<'a>(values: &[&'a str], server: usize) -> &'a str {
    values.get(server).or(values.first()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use idem_core::StoreErrorKind;

    use super::*;

    #[test]
    fn a_url_with_several_servers_is_one_url_for_each() {
        for (url, expected) in [
            ("postgres://a:b@db/shop", &["postgres://a:b@db/shop"][..]),
            ("postgresql://db", &["postgresql://db"]),
            ("postgres:///shop?host=%2Frun%2Fpg", &["postgres:///shop?host=%2Frun%2Fpg"]),
            (
                "postgres://a:p,w%40@one:1,two,[::1]:3/shop?sslmode=require",
                &[
                    "postgres://a:p,w%40@one:1/shop?sslmode=require",
                    "postgres://a:p,w%40@two/shop?sslmode=require",
                    "postgres://a:p,w%40@[::1]:3/shop?sslmode=require",
                ],
            ),
            (
                "postgres:///shop?host=one,two&port=1%2C2&application_name=a,b",
                &[
                    "postgres:///shop?host=one&port=1&application_name=a,b",
                    "postgres:///shop?host=two&port=2&application_name=a,b",
                ],
            ),
            ("postgres://one,two?port=5433", &["postgres://one?port=5433", "postgres://two?port=5433"]),
            (
                "postgres://db:1/shop?hostaddr=10.0.0.1%2c10.0.0.2",
                &["postgres://db:1/shop?hostaddr=10.0.0.1", "postgres://db:1/shop?hostaddr=10.0.0.2"],
            ),
        ] {
            assert_eq!(
                split(url).unwrap(),
                (expected.iter().map(|&url| url.to_owned()).collect(), Target::Any)
            );
        }
    }

    #[test]
    fn what_a_server_must_accept_is_read_from_the_url_and_left_out() {
        for (url, expected, target) in [
            ("postgres://one/b?target_session_attrs=any", "postgres://one/b", Target::Any),
            (
                "postgres://one/b?sslmode=require&target_session_attrs=read-write&port=2",
                "postgres://one/b?sslmode=require&port=2",
                Target::ReadWrite,
            ),
            ("postgres://one?target_session_attrs=primary", "postgres://one", Target::Primary),
        ] {
            assert_eq!(split(url).unwrap(), (vec![expected.to_owned()], target));
        }
    }

    #[test]
    fn a_list_that_is_wrong_is_a_configuration_error_that_repeats_nothing() {
        for (url, expected) in [
            ("postgres://one,two/b?port=1,2,3", "differ in length"),
            ("postgres://one/b?port=1,2", "differ in length"),
            ("postgres://one,two,three/b?host=one,two", "differ in length"),
            ("postgres://one/b?target_session_attrs=hunter2", "must be `read-write`"),
            ("postgres://one/b?target_session_attrs=", "must be `read-write`"),
            ("postgres://one/b?target_session_attrs=standby", "every call writes"),
        ] {
            let error = split(url).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), StoreErrorKind::Configuration, "{url}");
            assert!(text.contains(expected) && !text.contains("hunter2"), "{url}: {text}");
        }
    }
}
