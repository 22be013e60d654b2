//! Opens a DynamoDB table by its URL. The credentials come from the sources that the AWS tools use. So does
//! the region, unless the URL decides it.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use idem_dynamodb::DynamoDbStore;
use serde::Deserialize;

/// The region if the URL names an endpoint but no region. The endpoint alone decides where requests go, but
/// the SDK does not work without a region.
const ANY_REGION: &str = "us-east-1";

const FORM: &str = "expected dynamodb://TABLE[?endpoint=URL][&region=NAME][&partition_key=NAME][&sort_key=NAME:VALUE]\
                    [&time_to_live=NAME][&skew_ms=N]";

/// A table, given as `dynamodb://TABLE?option=value&..`.
#[derive(Clone)]
pub struct Table {
    name: String,
    options: Options,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    endpoint: Option<String>,
    region: Option<String>,
    partition_key: Option<String>,
    sort_key: Option<String>,
    time_to_live: Option<String>,
    skew_ms: Option<u64>,
}

impl Table {
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let (name, options) = rest.split_once('?').unwrap_or((rest, ""));
        let name = name.trim_start_matches("//").trim_end_matches('/');
        let options: Options = serde_urlencoded::from_str(options).map_err(|_| FORM.to_owned())?;
        let is_sort_key = |key: &String| key.contains(':');
        if name.is_empty() || name.contains('/') || !options.sort_key.iter().all(is_sort_key) {
            return Err(FORM.to_owned());
        }
        Ok(Self { name: name.to_owned(), options })
    }

    pub(crate) async fn open(&self, prefix: Option<&str>) -> DynamoDbStore {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
        let Options { endpoint, region, partition_key, sort_key, time_to_live, skew_ms } = &self.options;
        if let Some(region) = region.as_deref().or_else(|| endpoint.as_ref().map(|_| ANY_REGION)) {
            loader = loader.region(Region::new(region.to_owned()));
        }
        let mut config = aws_sdk_dynamodb::config::Builder::from(&loader.load().await);
        if let Some(endpoint) = endpoint {
            config = config.endpoint_url(endpoint);
        }
        let client = aws_sdk_dynamodb::Client::from_conf(config.build());
        let mut builder = DynamoDbStore::builder(client, &self.name);
        if let Some(name) = partition_key {
            builder = builder.partition_key(name);
        }
        if let Some((name, value)) = sort_key.as_deref().and_then(|key| key.split_once(':')) {
            builder = builder.sort_key(name, value);
        }
        if let Some(name) = time_to_live {
            builder = builder.time_to_live_attribute(name);
        }
        if let Some(prefix) = prefix {
            builder = builder.key_prefix(prefix);
        }
        if let Some(skew) = skew_ms {
            builder = builder.clock_skew(Duration::from_millis(*skew));
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
        assert_eq!((table.name.as_str(), table.options.skew_ms), ("idem", Some(0)));
        assert_eq!(table.options.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        for rest in ["", "//", "//a/b", "//t?x=1", "//t?skew_ms=soon", "//t?sort_key=kind"] {
            assert!(Table::parse(rest).is_err(), "{rest}");
        }
    }
}
