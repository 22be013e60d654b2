//! Two ways to do the same thing, measured in turns.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Failure;

/// How long and how often each side is measured.
pub(crate) struct Contest {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

/// What was measured of one side.
#[derive(Default)]
pub(crate) struct Figures {
    times: Vec<Duration>,
    spent: Duration,
}

impl Figures {
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.spent.as_secs_f64()
    }

    fn at(&self, hundredth: usize) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times
            .get((times.len() * hundredth / 100).min(times.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} ({}, {} us)", self.rate(), self.at(50).as_micros(), self.at(99).as_micros())
    }
}

impl Contest {
    /// Lets `callers` tasks call one side and then the other, each call with a name of its own.
    pub(crate) async fn run<FA, FB>(
        &self,
        callers: usize,
        name: impl Fn(usize) -> String + Clone + Send + 'static,
        ours: impl Fn(String) -> FA + Clone + Send + 'static,
        theirs: impl Fn(String) -> FB + Clone + Send + 'static,
    ) -> Result<[Figures; 2], Failure>
    where
        FA: Future<Output = Result<(), Failure>> + Send,
        FB: Future<Output = Result<(), Failure>> + Send,
    {
        let next = Arc::new(AtomicUsize::new(0));
        let mut figures = [Figures::default(), Figures::default()];
        for round in 0..=self.rounds {
            let both = [
                self.side(callers, &name, &next, &ours).await?,
                self.side(callers, &name, &next, &theirs).await?,
            ];
            // The first round warms up.
            for (sum, mut now) in figures.iter_mut().zip(both).filter(|_| round > 0) {
                sum.times.append(&mut now.times);
                sum.spent += now.spent;
            }
        }
        Ok(figures)
    }

    async fn side<F>(
        &self,
        callers: usize,
        name: &(impl Fn(usize) -> String + Clone + Send + 'static),
        next: &Arc<AtomicUsize>,
        call: &(impl Fn(String) -> F + Clone + Send + 'static),
    ) -> Result<Figures, Failure>
    where
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let begin = Instant::now();
        let callers = (0..callers).map(|_| {
            let (next, name, call, time) = (next.clone(), name.clone(), call.clone(), self.time);
            tokio::spawn(async move {
                let mut times = Vec::new();
                while begin.elapsed() < time {
                    let key = name(next.fetch_add(1, Ordering::Relaxed));
                    let asked = Instant::now();
                    call(key).await?;
                    times.push(asked.elapsed());
                }
                Ok::<_, Failure>(times)
            })
        });
        let mut figures = Figures::default();
        for caller in callers.collect::<Vec<_>>() {
            figures.times.append(&mut caller.await??);
        }
        figures.spent = begin.elapsed();
        Ok(figures)
    }
}
