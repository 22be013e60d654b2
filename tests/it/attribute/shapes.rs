//! Shapes of functions: methods, traits, generics, other attributes, macros, bodies and return types.

use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use idem::{KeyPart, Store, idempotent};

use super::{App, Failure, Order, Ran, Run, ran};

struct Service<T> {
    app: App,
    region: String,
    kind: T,
}

impl<T: Clone> Service<T> {
    fn new(app: &App, kind: T) -> Self {
        Self { app: app.clone(), region: "eu".into(), kind }
    }

    #[idempotent(key = "{self.region}/{id}", scope = "shapes.by_reference", store = self.app.store)]
    async fn by_reference(&self, id: u8) -> Run {
        let _: &T = &self.kind;
        self.app.run()
    }

    #[idempotent(key = "{self.region}/{id}", scope = "shapes.by_mutable_reference", store = self.app.store)]
    async fn by_mutable_reference(&mut self, id: u8) -> Run {
        self.region.push('x');
        self.app.run()
    }

    #[idempotent(key = "{self.region}/{id}", scope = "shapes.by_value", store = self.app.store)]
    async fn by_value(mut self, id: u8) -> Run {
        self.region.clear();
        self.app.run()
    }

    #[idempotent(key = (self.region, id), scope = "shapes.by_arc", store = self.app.store)]
    async fn by_arc(self: Arc<Self>, id: u8) -> Run {
        self.app.run()
    }

    #[idempotent(key = (self.region, id), scope = "shapes.by_box", store = self.app.store)]
    async fn by_box(self: Box<Self>, id: u8) -> Run {
        self.app.run()
    }

    #[idempotent(key = (self.region, id), scope = "shapes.by_pin", store = self.app.store)]
    async fn by_pin(self: Pin<&mut Self>, id: u8) -> Run {
        self.app.run()
    }
}

#[tokio::test]
async fn a_method_may_take_self_in_every_way() {
    let app = App::default();
    let mut service = Service::new(&app, 'c');
    for number in [1, 1] {
        assert_eq!(ran(service.by_reference(1).await), (number, "eu/1".into()));
    }
    assert_eq!(ran(service.by_mutable_reference(1).await).0, 2);
    assert_eq!(service.region, "eux");
    for _ in 0..2 {
        assert_eq!(ran(Service::new(&app, 'c').by_value(1).await).0, 3);
        assert_eq!(ran(Arc::new(Service::new(&app, 'c')).by_arc(1).await).0, 4);
        assert_eq!(ran(Box::new(Service::new(&app, 'c')).by_box(1).await).0, 5);
        assert_eq!(ran(Pin::new(&mut Service::new(&app, 'c')).by_pin(1).await).0, 6);
    }
}

trait Worker {
    fn app(&self) -> &App;

    #[idempotent(key = "{id}", store = self.app().store)]
    async fn default_method(&self, id: u8) -> Run {
        self.app().run()
    }
}

struct First(App);
struct Second(App);

impl Worker for First {
    fn app(&self) -> &App {
        &self.0
    }
}

impl Worker for Second {
    fn app(&self) -> &App {
        &self.0
    }
}

#[tokio::test]
async fn a_default_method_has_the_scope_of_its_implementer() {
    let app = App::default();
    for _ in 0..2 {
        assert_eq!(ran(First(app.clone()).default_method(1).await).0, 1);
        assert_eq!(ran(Second(app.clone()).default_method(1).await).0, 2);
    }
}

#[idempotent(key = "{id}", scope = "shapes.generic", store = store)]
async fn generic<'a, S: Store, K>(store: &'a S, app: &App, id: K, names: &'a [&str]) -> Run
where
    K: KeyPart + Copy,
{
    assert_eq!(names.len(), 0);
    app.run()
}

#[idempotent(key = "{id}", scope = "shapes.sized", store = app.store)]
async fn explicit<const N: usize>(app: &App, id: impl KeyPart, _bytes: [u8; N]) -> Run {
    app.run()
}

#[tokio::test]
async fn type_parameters_are_no_part_of_a_scope() {
    let app = App::default();
    assert_eq!(ran(generic(&app.store, &app, 1_u8, &[]).await).0, 1);
    assert_eq!(ran(generic(&app.store, &app, 1_u8, &[]).await).0, 1);
    assert_eq!(ran(generic(&app.store, &app, 1_u16, &[]).await).0, 1);
    assert_eq!(ran(explicit(&app, 1_u8, [0; 3]).await).0, 2);
    assert_eq!(ran(explicit(&app, "1", [0; 4]).await).0, 2);
}

#[async_trait::async_trait]
trait Charge {
    async fn charge(&self, app: &App, order: Order) -> Run;

    #[idempotent(key = "{id}", store = app.store)]
    async fn provided(&self, app: &App, mut id: u64) -> Run
    where
        Self: Sync,
    {
        id += 1;
        assert_eq!(id, 8);
        app.run()
    }
}

struct Boxed<T>(T);

#[async_trait::async_trait]
impl<T: Send + Sync + Copy + KeyPart + Into<u64>> Charge for Boxed<T> {
    #[idempotent(key = "{self.0}/{order.id}", store = app.store, scope = "shapes.boxed")]
    async fn charge(&self, app: &App, order: Order) -> Result<Ran, Failure> {
        let _: u64 = self.0.into() + order.into_id();
        Self::none()?;
        app.run()
    }
}

impl<T> Boxed<T> {
    fn none() -> Result<(), Failure> {
        Ok(())
    }
}

#[async_trait::async_trait]
impl Charge for First {
    #[idempotent(key = "{order.id}", store = self.0.store)]
    #[tracing::instrument(skip_all)]
    async fn charge(&self, app: &App, order: Order) -> Run {
        if order.amount == 0 {
            return Err(Failure::Final);
        }
        app.run()
    }
}

#[tokio::test]
async fn async_trait_methods_run_once_too() {
    let app = App::default();
    let first: Box<dyn Charge + Send + Sync> = Box::new(First(app.clone()));
    for _ in 0..2 {
        assert_eq!(ran(first.charge(&app, Order::new(5)).await), (1, "5".into()));
        assert_eq!(ran(First(app.clone()).provided(&app, 7).await), (2, "7".into()));
        assert_eq!(ran(Boxed(9_u32).charge(&app, Order::new(5)).await), (3, "9/5".into()));
    }
}

#[idempotent(key = "{id}", store = app.store)]
#[tracing::instrument(skip(app))]
async fn instrumented_inside(app: &App, id: u8) -> Run {
    app.run()
}

#[tracing::instrument(skip_all, fields(id))]
#[idempotent(key = "{id}", store = app.store)]
async fn instrumented_outside(app: &App, id: u8) -> Run {
    app.run()
}

#[tokio::test]
async fn instrumented_functions_run_once_too() {
    let app = App::default();
    for _ in 0..2 {
        assert_eq!(ran(instrumented_inside(&app, 1).await).0, 1);
        assert_eq!(ran(instrumented_outside(&app, 1).await).0, 2);
    }
}

macro_rules! guarded {
    ($name:ident, $argument:ident, $key:literal, $template:expr) => {
        #[idempotent(key = $key, store = app.store)]
        async fn $name(app: &App, $argument: u8, other: u8) -> Run {
            app.run()
        }

        mod from_expression {
            use super::*;

            #[idempotent(key = $template, store = app.store, crate = ::idem)]
            pub(super) async fn $name(app: &App, $argument: u8, other: u8) -> Run {
                let _ = other;
                app.run()
            }
        }
    };
    ($name:ident by $argument:ident) => {
        #[idempotent(key = "{own}/{x}", store = app.store)]
        async fn $name(app: &App, own: u8, $argument: u8) -> Run {
            app.run()
        }
    };
}

guarded!(from_a_macro, mine, "{mine}/{other}", "{mine}:{other}");
guarded!(with_own_names by x);

#[tokio::test]
async fn a_function_may_come_out_of_a_macro() {
    let app = App::default();
    assert_eq!(ran(from_a_macro(&app, 1, 2).await).1, "1/2");
    assert_eq!(ran(from_expression::from_a_macro(&app, 1, 2).await).1, "1:2");
    assert_eq!(ran(with_own_names(&app, 1, 2).await).1, "1/2");
}

#[idempotent(key = "{input}", store = app.store)]
async fn body_of_every_kind(app: &App, input: &str, map: HashMap<u8, u8>) -> Run {
    #![allow(clippy::unused_async)]
    use std::str::FromStr;
    const SITE: u8 = 1;
    let (codec, operation, store, key, fingerprint, body, result) = (1, 2, 3, 4, 5, 6, SITE);
    let parsed: u8 = input.parse().map_err(|_| Failure::Transient)?;
    if u8::from_str(input).is_ok_and(|number| number == parsed) && map.is_empty() {
        return Err(Failure::Final);
    }
    assert_eq!(codec + operation + store + key + fingerprint + body + result, 22);
    app.run()
}

#[tokio::test]
async fn a_body_may_hold_anything_and_use_our_names() {
    let app = App::default();
    assert_eq!(ran(body_of_every_kind(&app, "1", HashMap::from([(1, 1)])).await).0, 1);
    assert_eq!(body_of_every_kind(&app, "x", HashMap::new()).await.unwrap_err().kind(), "body");
    assert_eq!(body_of_every_kind(&app, "2", HashMap::new()).await.unwrap_err().kind(), "body");
}

mod alias {
    pub(super) type Std<T> = std::result::Result<T, super::Failure>;
}

#[idempotent(key = "{id}", store = app.store)]
async fn aliased(app: &App, id: u8) -> alias::Std<Option<Vec<usize>>> {
    Ok(Some(vec![app.run()?.number]))
}

#[tokio::test]
async fn the_return_type_may_be_an_alias() {
    let app = App::default();
    assert_eq!(aliased(&app, 1).await.unwrap(), Some(vec![1]));
    assert_eq!(aliased(&app, 1).await.unwrap(), Some(vec![1]));
}

#[idempotent(key = "{id}", store = app.store)]
async fn not_send(app: Rc<App>, id: u8) -> Run {
    let held = Rc::new(1);
    tokio::task::yield_now().await;
    drop(held);
    app.run()
}

fn assert_send<T: Send>(future: T) -> T {
    future
}

#[tokio::test]
async fn a_future_is_send_where_its_body_is() {
    let app = App::default();
    assert!(assert_send(aliased(&app, 1)).await.is_ok());
    assert!(not_send(Rc::new(app), 1).await.is_ok());
}
