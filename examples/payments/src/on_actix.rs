//! The API on actix-web.

use std::error::Error;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use idem::DynStore;
use idem::http::IdempotencyLayer;
use idem_actix::Idempotency;

use crate::payment::{Answer, Body, CHANGE, Executions, PAY, REFUND, Route, carry_out, events};
use crate::{LAST_ORDERS, Metrics, Options, drain};

/// Serves until the process gets the signal to end.
pub(crate) async fn serve(
    options: &Options,
    layer: IdempotencyLayer<DynStore>,
    metrics: Metrics,
) -> Result<(), Box<dyn Error>> {
    let (executions, metrics) = (Data::new(Executions::default()), Data::new(metrics));
    let max_body = options.max_body;
    let app = move || {
        App::new()
            .app_data(executions.clone())
            .app_data(metrics.clone())
            .app_data(web::PayloadConfig::new(max_body))
            .configure(|routes| api(routes, &Idempotency::new(layer.clone())))
    };
    let server =
        HttpServer::new(app).disable_signals().shutdown_timeout(LAST_ORDERS.as_secs()).bind(&options.addr)?;
    // A program that waits for the printed line may send SIGTERM right after the line. So the signal's
    // handler is installed before the line is printed.
    let terminated = idem::terminated();
    for address in server.addrs() {
        println!("listening on {address}");
    }
    let server = server.run();
    let handle = server.handle();
    tokio::spawn(async move {
        terminated.await;
        // An actix worker drops its handlers when it ends, so handlers whose clients went away must finish
        // before the server stops.
        handle.pause().await;
        drain().await;
        handle.stop(true).await;
    });
    Ok(server.await?)
}

fn api(routes: &mut web::ServiceConfig, guard: &Idempotency<DynStore>) {
    let guarded = |path: &str, route: actix_web::Route| web::resource(path).wrap(guard.clone()).route(route);
    let handler = |route: &'static Route| {
        move |executions: Data<Executions>, body: Bytes| async move {
            response(carry_out(&executions, route, &body).await)
        }
    };
    routes
        .service(guarded("/payments", web::post().to(handler(&PAY))))
        .service(guarded("/payments/{id}", web::patch().to(handler(&CHANGE))))
        .service(guarded("/refunds", web::post().to(handler(&REFUND))))
        .service(guarded("/echo", web::post().to(echo)))
        .route("/executions", web::get().to(async |counted: Data<Executions>| response(counted.show())))
        .route("/executions", web::delete().to(async |counted: Data<Executions>| response(counted.forget())))
        .route("/metrics", web::get().to(async |metrics: Data<Metrics>| metrics.render()));
}

async fn echo(executions: Data<Executions>, request: HttpRequest, body: Bytes) -> HttpResponse {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    response(executions.echo(kind, body))
}

fn response(answer: Answer) -> HttpResponse {
    let mut response = HttpResponse::build(StatusCode::from_u16(answer.status).unwrap_or_default());
    let mut response = match answer.body {
        Body::Whole(body) => response.body(body),
        Body::Events(receipt, time) => response.streaming(events(&receipt, time)),
    };
    // actix-web has set a content type. It is removed, because `answer` may have none.
    response.headers_mut().remove(CONTENT_TYPE);
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    response
}
