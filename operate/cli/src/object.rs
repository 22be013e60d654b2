//! Opens a bucket by its URL. Credentials, region and endpoint come from the environment variables that the
//! cloud's own tools use.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt as _;
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector as TcpConnector};
use hyper_util::rt::TokioExecutor;
use idem_core::StoreError;
use idem_object::BucketStore;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, ObjectStore};

const FORM: &str = "expected object:s3://BUCKET/PREFIX, object:gs://BUCKET/PREFIX, object:az://CONTAINER/PREFIX or object:FOLDER";

/// A bucket, given as `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`, with an optional
/// `?skew_ms=N`.
#[derive(Clone)]
pub struct Objects {
    url: String,
    prefix: String,
    skew: Option<Duration>,
}

impl Objects {
    /// The bucket with this URL; `None` for a folder.
    pub(crate) fn parse(rest: &str) -> Result<Option<Self>, String> {
        let Some((cloud, place)) = rest.split_once("://") else { return Ok(None) };
        let (place, option) = place.split_once('?').unwrap_or((place, ""));
        let skew = match option.split_once('=') {
            Some(("skew_ms", skew)) => {
                Some(Duration::from_millis(skew.parse().map_err(|_| FORM.to_owned())?))
            }
            Some(_) => return Err(FORM.to_owned()),
            None => None,
        };
        match place.split_once('/') {
            Some((bucket, prefix))
                if matches!(cloud, "s3" | "gs" | "az") && !bucket.is_empty() && !prefix.is_empty() =>
            {
                let prefix = prefix.trim_end_matches('/').to_owned();
                Ok(Some(Self { url: format!("{cloud}://{bucket}"), prefix, skew }))
            }
            _ => Err(FORM.to_owned()),
        }
    }

    pub(crate) async fn open(&self) -> Result<BucketStore, StoreError> {
        // The error leaves out the client's text. The text may contain a setting of the environment, and so a
        // secret.
        let failed =
            |_| StoreError::configuration("the environment's settings of the object store are not valid");
        let client =
            Https::new().map_err(|_| StoreError::configuration("this machine has no root certificates"))?;
        let objects: Arc<dyn ObjectStore> = match self.url.split_at(2).0 {
            "s3" => {
                let builder = AmazonS3Builder::from_env().with_url(&self.url).with_http_connector(client);
                Arc::new(builder.build().map_err(failed)?)
            }
            "gs" => {
                let builder =
                    GoogleCloudStorageBuilder::from_env().with_url(&self.url).with_http_connector(client);
                Arc::new(builder.build().map_err(failed)?)
            }
            _ => {
                let builder =
                    MicrosoftAzureBuilder::from_env().with_url(&self.url).with_http_connector(client);
                Arc::new(builder.build().map_err(failed)?)
            }
        };
        let builder = BucketStore::builder(objects, &self.prefix);
        match self.skew {
            Some(skew) => builder.clock_skew(skew).connect().await,
            None => builder.connect().await,
        }
    }
}

/// A client with the machine's root certificates. It also accepts `http` endpoints, because it ignores the
/// options that `object_store` passes, such as `AWS_ALLOW_HTTP`.
#[derive(Debug)]
struct Https(HttpsConnector<TcpConnector>);

impl Https {
    fn new() -> std::io::Result<Self> {
        let provider = rustls::crypto::ring::default_provider();
        let tls = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider)?;
        Ok(Self(tls.https_or_http().enable_http1().build()))
    }
}

impl HttpConnector for Https {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(Client::builder(TokioExecutor::new()).build(self.0.clone()))))
    }
}

#[derive(Debug)]
struct Service(Client<HttpsConnector<TcpConnector>, HttpRequestBody>);

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |error| HttpError::new(HttpErrorKind::Connect, error);
        let answer = self.0.request(request).map_err(failed).await?;
        let cut = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(answer.map(|body| HttpResponseBody::new(body.map_err(cut))))
    }
}

#[cfg(test)]
mod tests {
    use super::Objects;

    #[test]
    fn a_bucket_and_a_prefix_are_read_and_a_folder_is_none() {
        let objects = Objects::parse("s3://orders/idem/?skew_ms=0").ok().flatten().unwrap();
        assert_eq!((objects.url.as_str(), objects.prefix.as_str()), ("s3://orders", "idem"));
        assert!(objects.skew.unwrap().is_zero());
        assert!(Objects::parse("records/here").ok().unwrap().is_none());
        for rest in [
            "s3://",
            "s3://orders",
            "s3://orders/",
            "s3:///idem",
            "ftp://orders/idem",
            "s3://orders/idem?skew_ms=soon",
            "s3://orders/idem?x=1",
        ] {
            assert!(Objects::parse(rest).is_err(), "{rest}");
        }
    }
}
