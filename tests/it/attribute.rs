//! Tests of `#[idempotent]`: an annotated function runs once for a key, and every duplicate gets its result.

use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem::{KeyPart, MemoryStore, Store, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Failure {
    #[error("try again")]
    Transient,
    #[error("never again")]
    Final,
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl Failure {
    fn is_final(&self) -> bool {
        matches!(self, Self::Final)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Idem(error) => error.kind().as_str(),
            _ => "body",
        }
    }
}

type Run = Result<Ran, Failure>;

/// The result of the functions in these tests: the number of the run and the rendered key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Ran {
    number: usize,
    key: String,
}

/// The application that the functions belong to.
#[derive(Clone, Default)]
struct App {
    store: MemoryStore,
    runs: Arc<AtomicUsize>,
}

impl App {
    fn run(&self) -> Run {
        let number = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let key = idem::context().map(|context| context.key().as_str().to_owned());
        Ok(Ran { number, key: key.unwrap_or_default() })
    }

    fn store(&self) -> &MemoryStore {
        &self.store
    }
}

struct Order {
    id: u64,
    sku: Sku,
    amount: u32,
    lines: (String, u8),
}

impl Order {
    fn new(id: u64) -> Self {
        let sku = Sku { warehouse: 7, item: "a/b".into(), region: Region::EuWest };
        Self { id, sku, amount: 100, lines: ("x y".into(), 3) }
    }

    fn tenant(&self) -> &str {
        "acme"
    }

    fn into_id(self) -> u64 {
        self.id
    }
}

#[derive(Clone, KeyPart)]
struct Sku {
    warehouse: u16,
    item: String,
    region: Region,
}

#[derive(Clone, Copy, KeyPart)]
enum Region {
    #[key_part(rename = "eu-west")]
    EuWest,
    #[allow(dead_code)]
    Us,
}

#[derive(KeyPart)]
struct OrderId(u64);

#[derive(KeyPart)]
struct Pair<A, B>(A, B);

#[track_caller]
fn ran(result: Run) -> (usize, String) {
    let Ran { number, key } = result.unwrap();
    (number, key)
}

mod keys {
    use super::*;

    #[idempotent(key = "order/{order.id}", ttl = "24h", store = app.store)]
    async fn charge(app: &App, order: &Order) -> Run {
        app.run()
    }

    #[tokio::test]
    async fn a_function_runs_once_for_a_key_and_then_is_replayed() {
        let app = App::default();
        let (first, second) = (Order::new(1), Order::new(2));
        assert_eq!(ran(charge(&app, &first).await), (1, "order/1".into()));
        assert_eq!(ran(charge(&app, &first).await), (1, "order/1".into()));
        assert_eq!(ran(charge(&app, &second).await), (2, "order/2".into()));
        assert_eq!(app.runs.load(Ordering::SeqCst), 2);
    }

    #[idempotent(
        key = "{{{ order . tenant() }}}/{order.lines.0}:{order.sku}|{type}",
        store = app.store
    )]
    async fn every_kind_of_place(app: &App, order: &Order, r#type: char) -> Run {
        app.run()
    }

    #[tokio::test]
    async fn a_template_renders_fields_methods_tuples_and_raw_names() {
        let app = App::default();
        let result = every_kind_of_place(&app, &Order::new(1), 'ß').await;
        assert_eq!(ran(result).1, "{acme}/x%20y:7/a%2Fb/eu-west|%C3%9F");
    }

    #[idempotent(key = "order.sku.item", store = app.store)]
    async fn one_place(app: &App, order: Order) -> Run {
        drop(order);
        app.run()
    }

    #[idempotent(key = (tenant, (order.id, order.sku), { order.amount + 1 }), store = app.store)]
    async fn tuple(app: &App, tenant: String, order: Order) -> Run {
        drop((tenant, order.into_id()));
        app.run()
    }

    #[idempotent(key = format!("{}-{name}", order.id), store = app.store)]
    async fn formatted(app: &App, name: &str, order: &Order) -> Run {
        app.run()
    }

    #[idempotent(key = id, store = app.store)]
    async fn newtype(app: &App, id: OrderId) -> Run {
        app.run()
    }

    #[idempotent(key = pair, store = app.store)]
    async fn generic_parts(app: &App, pair: &Pair<Sku, Box<str>>) -> Run {
        app.run()
    }

    #[tokio::test]
    async fn a_key_is_a_place_or_an_expression_and_moves_nothing() {
        let app = App::default();
        assert_eq!(ran(one_place(&app, Order::new(1)).await).1, "a%2Fb");
        let order = Order::new(4);
        let same = idem::KeyBuilder::new().part(&("a", (order.id, &order.sku), order.amount + 1));
        let same = same.finish().unwrap();
        assert_eq!(same.as_str(), "a/4/7/a%2Fb/eu-west/101");
        assert_eq!(ran(tuple(&app, "a".into(), order).await).1, same.as_str());
        assert_eq!(ran(formatted(&app, "x", &Order::new(4)).await).1, "4-x");
        assert_eq!(ran(newtype(&app, OrderId(9)).await).1, "9");
        let pair = Pair(Order::new(1).sku, "z".into());
        assert_eq!(ran(generic_parts(&app, &pair).await).1, "7/a%2Fb/eu-west/z");
    }

    struct Json<T>(T);

    #[idempotent(key = "{id}/{left}", store = app.store)]
    async fn destructured(
        Json(app): Json<&App>,
        Order { id, .. }: Order,
        (mut left, _): (u8, u8),
        _: String,
    ) -> Run {
        left += 1;
        assert_eq!((id, left), (3, 2));
        app.run()
    }

    #[tokio::test]
    async fn what_a_pattern_binds_can_be_named() {
        let app = App::default();
        let result = destructured(Json(&app), Order::new(3), (1, 2), "x".into()).await;
        assert_eq!(ran(result).1, "3/1");
    }

    #[idempotent(key = "k/{name}", store = app.store)]
    async fn text(app: &App, name: &str) -> Run {
        app.run()
    }

    #[tokio::test]
    async fn an_empty_or_too_long_value_is_refused_before_the_body() {
        let app = App::default();
        assert_eq!(text(&app, "").await.unwrap_err().kind(), "missing_key");
        assert_eq!(text(&app, &"x".repeat(2_000)).await.unwrap_err().kind(), "invalid_key");
        assert_eq!(app.runs.load(Ordering::SeqCst), 0);
    }

    #[idempotent(key = "k/{count}", store = app.store)]
    async fn changes_its_argument(app: &App, mut count: u64, log: &mut Vec<u64>) -> Run {
        count += 10;
        log.push(count);
        app.run()
    }

    #[tokio::test]
    async fn a_body_that_changes_its_arguments_does_not_change_the_key() {
        let app = App::default();
        let mut log = Vec::new();
        assert_eq!(ran(changes_its_argument(&app, 1, &mut log).await).1, "k/1");
        assert_eq!(ran(changes_its_argument(&app, 1, &mut log).await).1, "k/1");
        assert_eq!(log, [11]);
    }
}

mod options {
    use super::*;

    #[idempotent(key = "{id}", fingerprint = (amount, app.runs.as_ref().len()), store = app.store)]
    async fn fingerprinted(app: &App, id: u8, amount: u32) -> Run {
        app.run()
    }

    /// Lets a fingerprint contain a method call.
    trait Len {
        fn len(&self) -> usize;
    }

    impl Len for AtomicUsize {
        fn len(&self) -> usize {
            8
        }
    }

    #[tokio::test]
    async fn another_fingerprint_under_the_same_key_is_a_mismatch() {
        let app = App::default();
        assert_eq!(ran(fingerprinted(&app, 1, 5).await).0, 1);
        assert_eq!(ran(fingerprinted(&app, 1, 5).await).0, 1);
        assert_eq!(fingerprinted(&app, 1, 6).await.unwrap_err().kind(), "mismatch");
    }

    #[idempotent(key = "{id}", terminal = Failure::is_final, store = app.store)]
    async fn fails(app: &App, id: u8, failure: Failure) -> Run {
        app.run()?;
        Err(failure)
    }

    #[idempotent(key = "{id}", terminal = |failure| matches!(failure, Failure::Final), store = app.store)]
    async fn fails_by_closure(app: &App, id: u8) -> Run {
        app.run()?;
        Err(Failure::Final)
    }

    #[tokio::test]
    async fn a_terminal_error_is_replayed_and_another_is_not() {
        let app = App::default();
        for _ in 0..2 {
            assert!(fails(&app, 1, Failure::Final).await.unwrap_err().is_final());
            assert!(fails_by_closure(&app, 1).await.unwrap_err().is_final());
        }
        assert_eq!(app.runs.load(Ordering::SeqCst), 2);
        for _ in 0..2 {
            assert!(!fails(&app, 2, Failure::Transient).await.unwrap_err().is_final());
        }
        assert_eq!(app.runs.load(Ordering::SeqCst), 4);
    }

    #[idempotent(key = "{id}", max_attempts = 2, max_result_bytes = 10_000, store = app.store)]
    async fn limited(app: &App, id: u8) -> Run {
        app.run()?;
        Err(Failure::Transient)
    }

    #[tokio::test]
    async fn a_body_is_not_started_more_often_than_max_attempts() {
        let app = App::default();
        for _ in 0..2 {
            assert_eq!(limited(&app, 1).await.unwrap_err().kind(), "body");
        }
        assert_eq!(limited(&app, 1).await.unwrap_err().kind(), "exhausted");
        assert_eq!(app.runs.load(Ordering::SeqCst), 2);
    }

    const LEASE: Duration = Duration::from_secs(20);

    #[idempotent(key = "{id}", lease = LEASE, wait = "1m 30s", on_crash = "in_doubt", store = app.store)]
    async fn slow(app: &App, id: u8) -> Run {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.run()
    }

    #[idempotent(key = "{id}", ttl = "2s", on_crash = "rerun", fail_open, store = app.store)]
    async fn refused_at_once(app: &App, id: u8) -> Run {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.run()
    }

    #[tokio::test(start_paused = true)]
    async fn a_duplicate_waits_with_wait_and_is_refused_without() {
        let app = App::default();
        let (first, second) = tokio::join!(slow(&app, 1), slow(&app, 1));
        assert_eq!((ran(first).0, ran(second).0), (1, 1));
        let (first, second) = tokio::join!(refused_at_once(&app, 1), refused_at_once(&app, 1));
        assert_eq!(ran(first).0, 2);
        assert_eq!(second.unwrap_err().kind(), "in_flight");
    }

    #[tokio::test(start_paused = true)]
    async fn the_ttl_is_how_long_a_result_is_kept() {
        let app = App::default();
        assert_eq!(ran(refused_at_once(&app, 1).await).0, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(ran(refused_at_once(&app, 1).await).0, 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(ran(refused_at_once(&app, 1).await).0, 2);
    }

    #[idempotent(key = "{id}", store = app.store, detach)]
    async fn detached(app: Arc<App>, id: u8) -> Run {
        tokio::time::sleep(Duration::from_secs(1)).await;
        app.run()
    }

    #[tokio::test(start_paused = true)]
    async fn a_detached_body_finishes_and_is_recorded_without_its_caller() {
        let app = Arc::new(App::default());
        let call = detached(app.clone(), 1);
        assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(app.runs.load(Ordering::SeqCst), 1);
        assert_eq!(ran(detached(app.clone(), 1).await).0, 1);
    }

    #[idempotent(key = "{id}", store = store)]
    async fn deep(store: &&Arc<MemoryStore>, app: &App, id: u8) -> Run {
        app.run()
    }

    #[idempotent(key = "{id}", store = app.store())]
    async fn called(app: &App, id: u8) -> Run {
        app.run()
    }

    #[idempotent(key = "{id}", store = &app.store)]
    async fn referenced(app: Rc<App>, id: u8) -> Run {
        app.run()
    }

    #[tokio::test]
    async fn a_store_may_stand_behind_any_pointers() {
        let app = App::default();
        let store = Arc::new(app.store.clone());
        for _ in 0..2 {
            assert_eq!(ran(deep(&&store, &app, 1).await).0, 1);
            assert_eq!(ran(called(&app, 1).await).0, 2);
            assert_eq!(ran(referenced(Rc::new(app.clone()), 1).await).0, 3);
        }
    }

    mod elsewhere {
        pub(crate) use idem as library;
    }

    #[idempotent(key = "{id}", store = app.store, crate = crate::attribute::options::elsewhere::library)]
    async fn by_another_path(app: &App, id: u8) -> Run {
        app.run()
    }

    #[tokio::test]
    async fn the_runtime_may_be_behind_another_path() {
        let app = App::default();
        assert_eq!(ran(by_another_path(&app, 1).await).0, 1);
        assert_eq!(ran(by_another_path(&app, 1).await).0, 1);
    }
}

mod shapes {
    use super::*;

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
}

mod scopes {
    use super::*;

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
}
