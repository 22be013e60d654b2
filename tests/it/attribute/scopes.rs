//! Scopes: the default one, a given one, and two functions with the same.

use idem::idempotent;

use super::{App, Run, ran};

async fn one(app: &App) -> Run {
    #[idempotent(key = "{id}", store = app.store)]
    async fn inner(app: &App, id: u8) -> Run {
        app.run()
    }
    inner(app, 1).await
}

async fn two(app: &App) -> Run {
    #[idempotent(key = "{id}", store = app.store)]
    async fn inner(app: &App, id: u8) -> Run {
        app.run()
    }
    inner(app, 1).await
}

#[tokio::test]
async fn two_functions_with_one_default_scope_are_refused() {
    let app = App::default();
    assert_eq!(ran(one(&app).await).0, 1);
    assert_eq!(two(&app).await.unwrap_err().kind(), "configuration");
    assert_eq!(ran(one(&app).await).0, 1);
}

#[idempotent(key = "{id}", store = app.store, scope = "payments.charge")]
async fn named(app: &App, id: u8) -> Run {
    let context = idem::context().unwrap();
    assert_eq!(context.operation(), "payments.charge");
    app.run()
}

#[idempotent(key = "{id}", store = app.store)]
async fn unnamed(app: &App, id: u8) -> Run {
    let context = idem::context().unwrap();
    assert_eq!(context.operation(), "it::attribute::scopes::unnamed");
    app.run()
}

#[tokio::test]
async fn a_scope_is_the_given_name_or_the_path_of_the_function() {
    let app = App::default();
    ran(named(&app, 1).await);
    ran(unnamed(&app, 1).await);
}
