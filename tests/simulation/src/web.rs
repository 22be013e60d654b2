//! Calls over HTTP: a request to the layer, with the script as its handler.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use idem_http::IdempotencyLayer;
use idem_runtime::OnCrash;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::body::{Failure, Receipt, Returned, body};
use crate::caller::Site;
use crate::checks::ANSWERED;
use crate::network::SimStore;
use crate::plan::{OperationPlan, Script};
use crate::world::{Ended, key, scope};

/// A response with more bytes is not recorded.
const LARGEST_RESPONSE: usize = 100;

/// The layer of an operation in one process.
fn layer(number: usize, plan: &OperationPlan, store: SimStore) -> IdempotencyLayer<SimStore> {
    let millis = Duration::from_millis;
    let mut builder = IdempotencyLayer::builder(store)
        .scope(scope(number))
        .shared_by_all_clients()
        .lease(millis(plan.lease))
        .ttl(millis(plan.ttl))
        .store_timeout(millis(plan.store_timeout))
        .wait(millis(plan.wait))
        .handler_timeout(plan.timeout.map(millis))
        .max_response_bytes(LARGEST_RESPONSE);
    if plan.in_doubt {
        builder = builder.on_crash(OnCrash::InDoubt);
    }
    if plan.fail_open {
        builder = builder.fail_open();
    }
    builder.build().expect("the options of a plan go together")
}

pub async fn request(site: Site, script: Script) -> Returned {
    let layer = {
        let plan = site.world.plan.operations[site.number].clone();
        let mut state = site.world.lock();
        let layers = &mut state.processes[site.process].layers;
        layers.entry(site.number).or_insert_with(|| layer(site.number, &plan, site.store.clone())).clone()
    };
    let inner = site.clone();
    let handler = service_fn(move |_: Request<_>| {
        let (site, script) = (inner.clone(), script.clone());
        async move {
            let (status, text) = match body(site, script).await {
                Ok(receipt) => (StatusCode::OK, format!("run={};{}", receipt.run, receipt.padding)),
                Err(Failure::Terminal { run }) => (StatusCode::BAD_REQUEST, format!("run={run};")),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
            };
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let request =
        Request::builder().method(Method::POST).uri("/").header("idempotency-key", key(site.number));
    let request = request.body(Full::new(Bytes::from_static(b"{}"))).expect("a request");
    let Ok(response) = layer.layer(handler).oneshot(request).await;
    let status = response.status();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let run = text.strip_prefix("run=").and_then(|rest| rest.split(';').next()?.parse().ok());
    if status == StatusCode::INTERNAL_SERVER_ERROR && text.contains("handler-failed") {
        let own = site.own_run.load(Ordering::SeqCst);
        let mut state = site.world.lock();
        let ended = state.runs.get(own).and_then(|run| run.ended).map(|(_, ended)| ended);
        if matches!(ended, Some(Ended::Value | Ended::Unstorable | Ended::Terminal)) {
            state.violate(ANSWERED, format!("run {own} returned, and its client gets handler-failed"));
        }
    }
    match (status, run) {
        (StatusCode::OK, Some(run)) => Ok(Receipt::of(run)),
        (StatusCode::BAD_REQUEST, Some(run)) => Err(Failure::Terminal { run }),
        _ => Err(Failure::Transient { run: usize::MAX, retry_after: 0 }),
    }
}
