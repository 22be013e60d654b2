//! Collects the panics of a run instead of printing them.
//!
//! Owns the panic hook of the process. In a thread that executes no run, this hook calls the previous hook.
//! Knows no trial.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

thread_local! {
    /// The panics of the run that this thread executes.
    static RUN: RefCell<Option<Panics>> = const { RefCell::new(None) };
}

/// The texts and locations of the panics of one run, each once.
#[derive(Clone, Default)]
pub(super) struct Panics(Arc<Mutex<Vec<String>>>);

impl Panics {
    /// Collects the panics of this thread from now on.
    pub(super) fn collect_here(&self) {
        RUN.set(Some(self.clone()));
    }

    fn add(&self, panic: &PanicHookInfo<'_>) {
        let location = panic.location().map(|location| format!("\n  at {location}"));
        let panic = text(panic.payload()) + &location.unwrap_or_default();
        let mut panics = self.lock();
        panics.retain(|earlier| *earlier != panic);
        panics.push(panic);
    }

    /// The text of the panic that ended the run, followed by the other panics of the run. Tokio catches the
    /// panics of tasks, and such a panic may be the cause.
    fn message(&self, payload: &(dyn Any + Send)) -> String {
        let mut panics = self.lock();
        let text = text(payload);
        let last = match panics.iter().rposition(|panic| panic.starts_with(&text)) {
            Some(position) => panics.remove(position),
            None => text,
        };
        panics.iter().fold(last, |message, panic| format!("{message}\nanother panic of the run: {panic}"))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".into())
}

/// Executes a run on this thread. The error describes the panic that ended it.
pub(super) fn caught(run: impl FnOnce(&Panics)) -> Result<(), String> {
    install_hook();
    let panics = Panics::default();
    panics.collect_here();
    let ended = catch_unwind(AssertUnwindSafe(|| run(&panics)));
    RUN.set(None);
    ended.map_err(|payload| panics.message(payload.as_ref()))
}

/// Installs the hook once, for the rest of the process, because tests on other threads may need it.
fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| match RUN.try_with(|run| run.borrow().clone()) {
            Ok(Some(panics)) => panics.add(panic),
            _ => print(panic),
        }));
    });
}
