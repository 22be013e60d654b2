//! Opens a DynamoDB table by its URL, with credentials and region from where the AWS tools find them.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use idem_dynamodb::DynamoDbStore;

/// The region where the URL names an endpoint and no region: the endpoint decides, but the SDK needs one.
const ANY_REGION: &str = "us-east-1";

const FORM: &str = "expected dynamodb://TABLE[?endpoint=URL][&region=NAME][&partition_key=NAME][&sort_key=NAME:VALUE]\
                    [&time_to_live=NAME][&skew_ms=N]";

/// A table, by `dynamodb://TABLE?option=value&..`.
#[derive(Clone, Default)]
pub struct Table {
    name: String,
    endpoint: Option<String>,
    region: Option<String>,
    partition_key: Option<String>,
    sort_key: Option<(String, String)>,
    time_to_live: Option<String>,
    skew: Option<Duration>,
}

impl Table {
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let wrong = || FORM.to_owned();
        let (name, options) = rest.trim_start_matches("//").split_once('?').unwrap_or((rest, ""));
        let name = name.trim_start_matches("//").trim_end_matches('/');
        if name.is_empty() || name.contains('/') {
            return Err(wrong());
        }
        let mut table = Self { name: name.to_owned(), ..Self::default() };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(wrong)?;
            let text = Some(value.to_owned());
            match name {
                "endpoint" => table.endpoint = text,
                "region" => table.region = text,
                "partition_key" => table.partition_key = text,
                "sort_key" => {
                    let (name, value) = value.split_once(':').ok_or_else(wrong)?;
                    table.sort_key = Some((name.to_owned(), value.to_owned()));
                }
                "time_to_live" => table.time_to_live = text,
                "skew_ms" => table.skew = Some(Duration::from_millis(value.parse().map_err(|_| wrong())?)),
                _ => return Err(wrong()),
            }
        }
        Ok(table)
    }

    pub(crate) async fn open(&self, prefix: Option<&str>) -> DynamoDbStore {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
        let region = self.region.clone().or_else(|| self.endpoint.as_ref().map(|_| ANY_REGION.to_owned()));
        if let Some(region) = region {
            loader = loader.region(Region::new(region));
        }
        let mut config = aws_sdk_dynamodb::config::Builder::from(&loader.load().await);
        if let Some(endpoint) = &self.endpoint {
            config = config.endpoint_url(endpoint);
        }
        let client = aws_sdk_dynamodb::Client::from_conf(config.build());
        let mut builder = DynamoDbStore::builder(client, &self.name);
        if let Some(name) = &self.partition_key {
            builder = builder.partition_key(name);
        }
        if let Some((name, value)) = &self.sort_key {
            builder = builder.sort_key(name, value);
        }
        if let Some(name) = &self.time_to_live {
            builder = builder.time_to_live_attribute(name);
        }
        if let Some(prefix) = prefix {
            builder = builder.key_prefix(prefix);
        }
        if let Some(skew) = self.skew {
            builder = builder.clock_skew(skew);
        }
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_table_and_its_options_are_read() {
        let table =
            Table::parse("//idem?endpoint=http://127.0.0.1:8000&region=eu-west-1&skew_ms=0").ok().unwrap();
        assert_eq!(table.name, "idem");
        assert_eq!(table.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        assert_eq!(table.region.as_deref(), Some("eu-west-1"));
        assert!(table.skew.unwrap().is_zero());
        let table = Table::parse("//idem?sort_key=kind:idem").ok().unwrap();
        assert_eq!(table.sort_key, Some(("kind".into(), "idem".into())));
    }

    #[test]
    fn a_url_that_names_no_table_is_refused() {
        for rest in ["", "//", "//a/b", "//t?x=1", "//t?endpoint", "//t?skew_ms=soon", "//t?sort_key=kind"] {
            assert!(Table::parse(rest).is_err(), "{rest}");
        }
    }
}
