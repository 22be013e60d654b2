//! A bucket of the AWS emulator, used through the crate `object_store`.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, ObjectStore};

use crate::Aws;

/// Makes HTTP clients without TLS.
#[derive(Debug)]
struct Plain;

#[derive(Debug)]
struct Service(Client<hyper_util::client::legacy::connect::HttpConnector, HttpRequestBody>);

impl HttpConnector for Plain {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(Client::builder(TokioExecutor::new()).build_http())))
    }
}

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.request(request).await;
        let answer = answer.map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?;
        let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(answer.map(|body| HttpResponseBody::new(body.map_err(failed))))
    }
}

/// A new bucket of the emulator.
///
/// # Panics
///
/// Panics if the emulator does not create the bucket.
pub fn bucket(aws: &Aws, name: &str) -> Arc<dyn ObjectStore> {
    aws.make_bucket(name);
    let builder =
        AmazonS3Builder::new().with_endpoint(aws.url()).with_bucket_name(name).with_region("us-east-1");
    let builder = builder.with_access_key_id("test").with_secret_access_key("test");
    let builder = builder.with_allow_http(true).with_http_connector(Plain);
    Arc::new(builder.build().unwrap())
}
