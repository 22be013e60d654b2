//! The API on actix-web.

use std::error::Error;

use actix_web::http::header::LOCATION;
use actix_web::web::{self, Data, Json};
use actix_web::{App, HttpResponse, HttpServer};
use idem::DynStore;
use idem::http::IdempotencyLayer;
use idem_actix::Idempotency;

use crate::payment::{Executions, Payment};
use crate::{LAST_ORDERS, Metrics, Options, drain};

/// Serves until the process gets the signal to end.
pub(crate) async fn serve(
    options: &Options,
    layer: IdempotencyLayer<DynStore>,
    metrics: Metrics,
) -> Result<(), Box<dyn Error>> {
    let (executions, metrics) = (Data::new(Executions::default()), Data::new(metrics));
    let app = move || {
        let guard = Idempotency::new(layer.clone());
        App::new()
            .app_data(executions.clone())
            .app_data(metrics.clone())
            .service(web::resource("/payments").wrap(guard).route(web::post().to(pay)))
            .route("/executions", web::get().to(async |executions: Data<Executions>| executions.count()))
            .route("/metrics", web::get().to(async |metrics: Data<Metrics>| metrics.render()))
    };
    let server =
        HttpServer::new(app).disable_signals().shutdown_timeout(LAST_ORDERS.as_secs()).bind(&options.addr)?;
    // A reader of the next line may send the signal to end at once, so its handler is installed before.
    let terminated = idem::terminated();
    for address in server.addrs() {
        println!("listening on {address}");
    }
    let server = server.run();
    let handle = server.handle();
    tokio::spawn(async move {
        terminated.await;
        // An actix worker drops its handlers when it ends, so handlers whose clients went away must finish before.
        handle.pause().await;
        drain().await;
        handle.stop(true).await;
    });
    Ok(server.await?)
}

async fn pay(executions: Data<Executions>, payment: Json<Payment>) -> HttpResponse {
    let receipt = executions.pay(payment.into_inner()).await;
    HttpResponse::Created().insert_header((LOCATION, receipt.location())).json(receipt)
}
