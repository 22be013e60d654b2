//! Tests of the group commit on a server that the test controls: how it handles sessions, runtimes and time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use idem_core::StoreError;
use idem_core::protocol::{Fence, Owner, Renew, Request};
use idem_store_kit::group_commit::{
    Answer, Answers, Class, Failure, Keys, Kind, Op, Operation, Queues, Server, Ticket,
};
use requests::{claim_request, completion, key};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

mod requests;

/// What the server saw, and what the test sets while the server runs.
#[derive(Default)]
struct Seen {
    /// The sizes of the batches that the server answered, and whether they ran in the stores' own runtime.
    batches: Mutex<Vec<(usize, bool)>>,
    open: AtomicUsize,
    opened: AtomicUsize,
    most_open: AtomicUsize,
    closed: AtomicUsize,
    /// Whether the server is still at work on sessions that were given up.
    is_at_work: AtomicBool,
}

/// What the server does with a batch.
#[derive(Clone, Copy, Default)]
enum Manner {
    #[default]
    Answers,
    /// Answers as soon as the test gives permission.
    Waits,
    NeverAnswers,
    /// Answers reads, and commits as soon as the test gives permission.
    Commits,
    /// Refuses a batch that has the key `bad`.
    Refuses,
    /// Panics in a caller's runtime.
    Panics,
}

struct Fake {
    seen: Arc<Seen>,
    manner: Manner,
    permission: Arc<Semaphore>,
    connections: usize,
    timeout: Duration,
}

struct Session {
    seen: Arc<Seen>,
    number: usize,
    /// False while an attempt runs on this session, and after an attempt was broken off.
    usable: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.seen.open.fetch_sub(1, Ordering::SeqCst);
    }
}

const fn kind(class: Class) -> Kind {
    Kind { class, most: 64, keys: Keys::OneEach, goes_first: false }
}

impl Server for Fake {
    type Session = Session;

    const KINDS: &'static [Kind] = &[kind(Class::Changes), kind(Class::Renewals), kind(Class::Reads)];

    fn kind(operation: &Operation) -> usize {
        match &operation.op {
            Op::Get => 2,
            Op::Apply(Request::Renew(_)) => 1,
            _ => 0,
        }
    }

    fn weight(_: &Operation) -> usize {
        1
    }

    fn most_bytes(&self) -> usize {
        1_000
    }

    fn connections(&self) -> usize {
        self.connections
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn open(&self) -> Result<Session, StoreError> {
        let open = self.seen.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.most_open.fetch_max(open, Ordering::SeqCst);
        let number = self.seen.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Session { seen: self.seen.clone(), number, usable: true })
    }

    async fn kept(&self, session: Session) -> Option<Session> {
        session.usable.then_some(session)
    }

    fn close(&self, session: Session) -> impl Future<Output = ()> + Send + 'static {
        self.seen.closed.fetch_add(1, Ordering::SeqCst);
        async move { drop(session) }
    }

    fn name(&self, session: &Session) -> Option<String> {
        Some(session.number.to_string())
    }

    async fn at_work(&self, _: &mut Session, names: &[String]) -> Result<Vec<String>, StoreError> {
        Ok(if self.seen.is_at_work.load(Ordering::SeqCst) { names.to_vec() } else { Vec::new() })
    }

    async fn attempt(
        &self,
        session: &mut Session,
        kind: usize,
        tickets: &[Ticket],
        is_own: bool,
    ) -> Result<Answers, Failure> {
        session.usable = false;
        match self.manner {
            Manner::Panics if !is_own => panic!("this runtime is of no use"),
            Manner::Commits if kind == 2 => {}
            Manner::Answers | Manner::Panics => {}
            Manner::Waits | Manner::Commits => self.permission.acquire().await.unwrap().forget(),
            Manner::NeverAnswers => std::future::pending().await,
            Manner::Refuses => {
                session.usable = true;
                if tickets.iter().any(|ticket| ticket.operation.key.key().as_str() == "bad") {
                    return Err(Failure::Refused(StoreError::configuration("it is bad")));
                }
            }
        }
        session.usable = true;
        self.seen.batches.lock().unwrap().push((tickets.len(), is_own));
        Ok(tickets.iter().map(|_| Some(Ok(Answer::Found(None)))).collect())
    }
}

/// The queues of a server that behaves as a [`Manner`] says.
struct Test {
    queues: Arc<Queues<Fake>>,
    seen: Arc<Seen>,
    permission: Arc<Semaphore>,
}

fn test(manner: Manner) -> Test {
    test_with(manner, 4, Duration::from_secs(20))
}

fn test_with(manner: Manner, connections: usize, timeout: Duration) -> Test {
    let (seen, permission) = (Arc::<Seen>::default(), Arc::new(Semaphore::new(0)));
    let server = Fake { seen: seen.clone(), manner, permission: permission.clone(), connections, timeout };
    Test { queues: Arc::new(Queues::new(server)), seen, permission }
}

impl Test {
    fn batches(&self) -> Vec<(usize, bool)> {
        self.seen.batches.lock().unwrap().clone()
    }

    fn open(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }

    /// Asks until the server gets the operation, and returns the operation's error. On a busy machine, the
    /// operation's time may be over before the server gets it.
    async fn begun(&self, operation: impl Fn() -> Operation) -> StoreError {
        loop {
            let error = self.queues.ask(operation()).await.unwrap_err();
            if self.seen.opened.load(Ordering::SeqCst) > 0 {
                return error;
            }
        }
    }

    /// Asks again until there is an answer, because an operation may time out on a busy machine.
    async fn goes_on(&self) {
        self.permission.add_permits(100);
        let begin = Instant::now();
        while let Err(error) = self.queues.ask(claiming("order")).await {
            assert!(begin.elapsed() < Duration::from_secs(30), "{error}");
        }
    }
}

fn reading(name: &str) -> Operation {
    Operation::new(&key(name), Op::Get)
}

fn claiming(name: &str) -> Operation {
    Operation::new(&key(name), Op::Apply(claim_request().into()))
}

fn completing(name: &str) -> Operation {
    let complete = completion(Owner::random(), Fence::new(1), b"");
    Operation::new(&key(name), Op::Apply(complete.into()))
}

fn renewal(name: &str) -> Operation {
    let second = Duration::from_secs(1);
    Operation::new(&key(name), Op::Apply(Renew::new(Owner::random(), Default::default(), second).into()))
}

/// Waits until `holds` returns `true`.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(30), "in vain: {what}");
        // Sleeps without a timer, because the clock of the runtime may be paused.
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_caller_that_blocks_its_thread_before_its_operation_begins_holds_up_nobody() {
    let test = test(Manner::Answers);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (queues, (asked, is_asked), (end, ended)) = (test.queues.clone(), channel(), channel::<()>());
    let blocking = runtime.spawn(async move {
        let mut held = Box::pin(queues.ask(reading("held")));
        assert!(held.as_mut().now_or_never().is_none());
        asked.send(()).unwrap();
        let _ = ended.recv_timeout(Duration::from_secs(10));
        held.await
    });
    is_asked.recv().unwrap();
    let begin = Instant::now();
    let queues = test.queues.clone();
    runtime.block_on(async {
        tokio::spawn(async move { queues.ask(reading("other")).await }).await.unwrap().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
        drop(end);
        blocking.await.unwrap().unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_ended_whatever_the_callers_clock_says() {
    let test = test_with(Manner::NeverAnswers, 4, Duration::from_millis(200));
    let error = test.begun(|| reading("order")).await;
    assert!(error.is_outcome_unknown(), "{error}");
    until("its session is closed", || test.open() == 0).await;
}

#[tokio::test]
async fn while_the_server_stalls_no_more_sessions_are_open_than_allowed_and_one_that_looks() {
    let test = test_with(Manner::Waits, 3, Duration::from_millis(100));
    test.seen.is_at_work.store(true, Ordering::SeqCst);
    for round in 0..5 {
        let asked = (0..10).map(|number| test.queues.ask(claiming(&format!("{round} {number}"))));
        for answer in join_all(asked).await {
            assert!(answer.unwrap_err().is_transient());
        }
    }
    // One of the three sessions is kept for reads.
    let most = test.seen.most_open.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most}");
    test.goes_on().await;
}

#[tokio::test]
async fn sessions_that_a_server_has_forgotten_are_given_up() {
    let test = test_with(Manner::Waits, 3, Duration::from_millis(300));
    test.seen.is_at_work.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    while test.open() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "nothing goes on");
        for answer in join_all(["1", "2", "3"].map(|name| test.queues.ask(claiming(name)))).await {
            assert!(answer.unwrap_err().is_transient());
        }
    }
    // From now on, another server has the address. It does not know the old sessions.
    test.seen.is_at_work.store(false, Ordering::SeqCst);
    until("the old sessions are closed", || test.open() == 0).await;
    test.goes_on().await;
}

#[tokio::test]
async fn reads_go_while_no_change_can_be_committed() {
    let test = test_with(Manner::Commits, 3, Duration::from_millis(300));
    test.seen.is_at_work.store(true, Ordering::SeqCst);
    let changes = tokio::spawn(join_all((0..20).map({
        let queues = test.queues.clone();
        move |number| queues.ask(claiming(&number.to_string()))
    })));
    for _ in 0..40 {
        // On a busy machine, the time of one read may be over before the read begins. That does not happen to
        // two reads in a row.
        if test.queues.ask(reading("order")).await.is_err() {
            test.queues.ask(reading("order")).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(changes.await.unwrap().into_iter().all(|answer| answer.is_err()));
}

#[tokio::test]
async fn an_error_hits_only_the_operation_that_is_refused() {
    let test = test(Manner::Refuses);
    let names = ["good", "bad", "better"];
    let answers = join_all(names.map(|name| test.queues.ask(reading(name)))).await;
    let refused: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, true, false]);
}

#[test]
fn a_renewal_goes_while_its_callers_runtime_is_blocked() {
    let test = test(Manner::Answers);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let asked = test.queues.ask(renewal("order"));
        let asking = std::thread::spawn(move || {
            Builder::new_current_thread().build().unwrap().block_on(asked).unwrap();
        });
        // Blocks this runtime until the renewal is done.
        asking.join().unwrap();
    });
    assert_eq!(test.batches(), [(1, true)]);
}

#[tokio::test]
async fn in_a_runtime_where_it_panics_it_is_asked_apart_from_then_on_and_nothing_is_left() {
    let test = test(Manner::Panics);
    for name in ["first", "second"] {
        test.queues.ask(reading(name)).await.unwrap();
    }
    assert_eq!(test.batches(), [(1, true); 2]);
    drop(test.queues);
    until("the watch has ended", || Arc::strong_count(&test.seen) == 1).await;
}

#[test]
fn what_waits_in_a_runtime_that_ends_is_asked_apart_and_a_result_even_without_its_caller() {
    let test = test_with(Manner::Waits, 1, Duration::from_secs(20));
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let queues = test.queues.clone();
    let asking = first.block_on(async move {
        let mut begun = Box::pin(queues.ask(reading("begun")));
        assert!(begun.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        let mut waiting = Box::pin(queues.ask(reading("waiting")));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(queues.ask(completing("left")).now_or_never().is_none());
        (begun, waiting)
    });
    drop(first);
    test.permission.add_permits(3);
    let second = Builder::new_current_thread().enable_all().build().unwrap();
    second.block_on(async {
        asking.0.await.unwrap();
        asking.1.await.unwrap();
        let done = || test.batches().iter().map(|(count, _)| count).sum::<usize>();
        until("all are done", || done() == 3).await;
    });
    assert!(test.batches().iter().all(|(_, is_own)| *is_own), "{:?}", test.batches());
}

#[tokio::test]
async fn the_last_handle_closes_the_sessions() {
    let Test { queues, seen, .. } = test(Manner::Answers);
    queues.ask(reading("order")).await.unwrap();
    queues.ask(renewal("order")).await.unwrap();
    drop(queues);
    until("all are closed", || seen.open.load(Ordering::SeqCst) == 0).await;
    assert_eq!(seen.closed.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_not_repeated() {
    let test = test_with(Manner::NeverAnswers, 4, Duration::from_millis(200));
    let error = test.begun(|| Operation::new(&key("order"), Op::Forget)).await;
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(test.seen.most_open.load(Ordering::SeqCst), 1);
}
