//! Measures one size: the kinds of call take turns in short rounds, while other calls make records that expire and are
//! deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use idem::Store;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::Point;
use crate::subject::{Anything, Subject, fresh, kept, key, replay, short};

/// The numbers of concurrent callers.
pub(crate) const CALLERS: [usize; 2] = [1, 16];
/// The number of records that expire in a second, besides those of the measured calls.
pub(crate) const EXPIRING: u64 = 1_000;
/// The pause between two groups of such records.
const BEAT: Duration = Duration::from_millis(50);
/// The first number of the keys that are in no store.
const UNUSED: u64 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Fresh,
    Replay,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Fresh, Self::Replay];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Replay => "replay",
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

/// The measurements of one kind of call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// The next number of an unused key.
static UNUSED_NEXT: AtomicU64 = AtomicU64::new(UNUSED);

fn unused() -> u64 {
    UNUSED_NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Measures a store that holds `records` records.
pub(crate) async fn point<S: Subject>(subject: &S, records: u64, plan: Plan) -> Anything<Point> {
    let store = subject.store()?;
    let (made_before, left_before) = (UNUSED_NEXT.load(Ordering::Relaxed), subject.left().await?);
    let background = Background::start(store, subject.is_purged());
    let mut rounds: Vec<(Kind, usize, Vec<Figures>)> =
        Kind::ALL.into_iter().flat_map(|kind| CALLERS.map(|callers| (kind, callers, Vec::new()))).collect();
    // The first round is a warm-up.
    for round in 0..=plan.rounds {
        for (kind, callers, figures) in &mut rounds {
            let one = one(store, *kind, *callers, records, plan.time).await?;
            if round > 0 {
                figures.push(one);
            }
        }
    }
    let longest_purge = background.end().await?;
    // Until the last of these records have expired, too.
    sleep(Duration::from_secs(3)).await;
    if subject.is_purged() {
        store.purge(usize::MAX).await?;
    }
    let made = UNUSED_NEXT.load(Ordering::Relaxed) - made_before;
    let deleted = (made + left_before).saturating_sub(subject.left().await?);
    let figures = rounds.into_iter().map(|(kind, callers, all)| (kind, callers, middle(&all))).collect();
    let bytes = subject.bytes().await?;
    Ok(Point { records, filled_in: Duration::ZERO, bytes, figures, made, deleted, longest_purge })
}

/// The median of each figure on its own.
fn middle(all: &[Figures]) -> Figures {
    let mut rates: Vec<f64> = all.iter().map(|figures| figures.per_second).collect();
    rates.sort_by(f64::total_cmp);
    let of = |what: fn(&Figures) -> Duration| {
        let mut times: Vec<Duration> = all.iter().map(what).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    let per_second = rates.get(rates.len() / 2).copied().unwrap_or_default();
    Figures { per_second, p50: of(|figures| figures.p50), p99: of(|figures| figures.p99) }
}

async fn one<S: Store>(
    store: &S,
    kind: Kind,
    callers: usize,
    records: u64,
    time: Duration,
) -> Anything<Figures> {
    let begin = Instant::now();
    let calling = (0..callers as u64).map(|caller| {
        let store = store.clone();
        tokio::spawn(async move {
            let (kept, short) = (kept(), short());
            let mut times = Vec::with_capacity(100_000);
            // Spread over the whole store, with a different start for each caller.
            let mut number = caller * 7_919 + begin.elapsed().subsec_nanos() as u64;
            while begin.elapsed() < time {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = match kind {
                    Kind::Fresh => key(unused()),
                    Kind::Replay => key((number >> 20) % records),
                };
                let started = Instant::now();
                match kind {
                    Kind::Fresh => fresh(&short, &store, key).await?,
                    Kind::Replay => replay(&kept, &store, key).await?,
                }
                times.push(started.elapsed());
            }
            Anything::Ok(times)
        })
    });
    let times: Anything<Vec<_>> = try_join_all(calling).await?.into_iter().collect();
    let elapsed = begin.elapsed().as_secs_f64();
    let mut times: Vec<Duration> = times?.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |hundredth: usize| times.get(times.len() * hundredth / 100).copied().unwrap_or_default();
    Ok(Figures { per_second: times.len() as f64 / elapsed, p50: at(50), p99: at(99) })
}

/// The load that runs while calls are measured.
struct Background {
    ended: Arc<AtomicBool>,
    expiring: JoinHandle<Anything<()>>,
    purging: JoinHandle<Anything<Duration>>,
}

impl Background {
    fn start<S: Store>(store: &S, is_purged: bool) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let expiring = tokio::spawn(expire(store.clone(), ended.clone()));
        let purging = tokio::spawn(purge(store.clone(), is_purged, ended.clone()));
        Self { ended, expiring, purging }
    }

    /// Ends it, and returns the time of the longest purge.
    async fn end(self) -> Anything<Duration> {
        self.ended.store(true, Ordering::Relaxed);
        self.expiring.await??;
        self.purging.await?
    }
}

/// Makes short-lived records, at a rate that does not depend on the store.
async fn expire<S: Store>(store: S, ended: Arc<AtomicBool>) -> Anything<()> {
    let short = short();
    let each = EXPIRING * u64::try_from(BEAT.as_millis())? / 1_000;
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !ended.load(Ordering::Relaxed) {
        beat.tick().await;
        try_join_all((0..each).map(|_| fresh(&short, &store, key(unused())))).await?;
    }
    Ok(())
}

/// Purges every second, as the documentation tells programs to do, and returns the time of the longest purge.
async fn purge<S: Store>(store: S, is_purged: bool, ended: Arc<AtomicBool>) -> Anything<Duration> {
    let mut longest = Duration::ZERO;
    let mut beat = interval(Duration::from_secs(1));
    while is_purged && !ended.load(Ordering::Relaxed) {
        beat.tick().await;
        let begin = Instant::now();
        store.purge(usize::MAX).await?;
        longest = longest.max(begin.elapsed());
    }
    Ok(longest)
}
