//! A database. The store can write its records in a transaction of this database.
//!
//! Until a transaction commits, nobody else sees what it has written. A key that a transaction has taken is
//! busy for everybody else.

use std::time::Duration;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{self, Claim, ClaimAnswer, Complete, CompleteAnswer, Transition};
use idem_core::transaction::{RecordsIn, Taken, Taking, TransactionStore};
use idem_runtime::Error;
use tokio::time::{Instant, sleep};

use crate::body::{Failure, Returned};
use crate::checks::TRANSACTION;
use crate::network::SimStore;
use crate::note;
use crate::world::{Ended, Life, ProcessId, RunId, World};

/// A connection with an open transaction.
pub struct SimTransaction {
    world: World,
    process: ProcessId,
    id: u64,
    records: Vec<(usize, Box<protocol::Record>, Complete)>,
    /// The records as they were when the transaction read them.
    read: Vec<(usize, Option<protocol::Record>)>,
    /// How many rows the bodies wrote.
    pub rows: usize,
    pub run: Option<RunId>,
    is_spoiled: bool,
    /// Whether a body has ended the savepoint that its call has set.
    pub has_lost_savepoint: bool,
}

impl SimTransaction {
    pub fn begin(world: &World, process: ProcessId) -> Self {
        let mut state = world.lock();
        state.transactions += 1;
        let id = state.transactions;
        state.open.insert(id);
        Self {
            world: world.clone(),
            process,
            id,
            records: Vec::new(),
            read: Vec::new(),
            rows: 0,
            run: None,
            is_spoiled: false,
            has_lost_savepoint: false,
        }
    }

    /// If the savepoint is lost, fails as the server would. The transaction stays open, as in MySQL.
    fn savepoint(&mut self) -> Result<(), StoreError> {
        match std::mem::take(&mut self.has_lost_savepoint) {
            true => Err(StoreError::configuration("there is no such savepoint")),
            false => Ok(()),
        }
    }

    /// Commits or rolls back, as the caller wants.
    pub async fn finish(mut self, commit: bool, result: Returned) -> Returned {
        sleep(Duration::from_millis(1)).await;
        if matches!(result, Err(Failure::Idem(Some(Error::NotRecorded { .. })))) && !self.is_spoiled {
            let detail = "its result is not recorded, and it can be committed".to_owned();
            self.world.lock().violate(TRANSACTION, detail);
        }
        if !commit || self.is_spoiled {
            return Err(Failure::Transient { run: usize::MAX, retry_after: 0 });
        }
        let mut state = self.world.lock();
        if !state.processes[self.process].is_alive {
            return result;
        }
        let ended = self.run.and_then(|run| state.runs[run].ended).map(|(_, ended)| ended);
        let returned = matches!(ended, Some(Ended::Value | Ended::Unstorable));
        if self.read.iter().any(|(number, old)| state.live(*number) != old.as_ref()) {
            // A worker outside of transactions has changed the record since this transaction read it, so the
            // commit fails.
            return Err(Failure::Transient { run: usize::MAX, retry_after: 0 });
        }
        let (rows, records) = (self.rows, self.records.len());
        note!(state, "process {}: commit of {rows} rows and {records} records", self.process);
        if (rows > 0) != (returned && records > 0) {
            let detail = format!("{rows} rows and {records} records are committed after {ended:?}");
            state.violate(TRANSACTION, detail);
        }
        for (number, new, complete) in std::mem::take(&mut self.records) {
            let now = state.now();
            let before = state.keys[number].record.take().filter(|record| protocol::is_live(record, now));
            if before.is_none() {
                state.keys[number].lives.push(Life::default());
            }
            state.keys[number].record = protocol::complete(Some(&new), &complete, now).write;
            let life = state.keys[number].lives.len() - 1;
            if let Some(run) = self.run {
                state.runs[run].life = Some(life);
            }
            let result = (complete.verdict, complete.result.clone());
            if state.keys[number].lives[life].recorded.replace(result).is_some() {
                state.violate(TRANSACTION, format!("key {number} has two results"));
            }
        }
        drop(state);
        result
    }
}

impl Drop for SimTransaction {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        state.open.remove(&self.id);
        for key in &mut state.keys {
            if key.taken_by.take_if(|id| *id == self.id).is_some() {
                key.taken_until = Some(Instant::now());
            }
        }
    }
}

impl TransactionStore for SimStore {
    type Itself = Self;

    fn itself(self) -> Self {
        self
    }
}

impl RecordsIn<SimTransaction> for SimStore {
    /// A savepoint: how many rows and records were written before it.
    type Mark = (usize, usize);

    fn is_open(_: &mut SimTransaction) -> bool {
        true
    }

    async fn take(
        &self,
        connection: &mut SimTransaction,
        key: &RecordKey,
        request: &Claim,
    ) -> Result<Taking, StoreError> {
        let (number, claim, id) = (self.world.number(key), request.clone(), connection.id);
        let taking = self.send("take", move |state, process| {
            let now = state.now();
            // A request of a connection that is closed does nothing.
            let is_open = state.open.contains(&id);
            let key = &mut state.keys[number];
            if key.taken_by.is_some() || !is_open {
                return Ok(Err(ClaimAnswer::Busy { retry_after: claim.lease }));
            }
            let old = key.record.clone().filter(|record| protocol::is_live(record, now));
            let Transition { write, answer, .. } =
                protocol::claim(key.record.as_ref(), key.floor, &claim, now);
            match (answer, write) {
                (ClaimAnswer::Granted(grant), Some(new)) => {
                    key.taken_by = Some(id);
                    // Until the transaction ends, waiters cannot get the key, just as if a body were running.
                    key.freed = None;
                    note!(state, "process {process}: transaction takes key {number}");
                    Ok(Ok((grant, old, Box::new(new), now)))
                }
                (answer, _) => Ok(Err(answer)),
            }
        });
        match taking.await {
            Ok(Ok((grant, old, new, now))) => {
                let since = Instant::now();
                Ok(Taking::Taken(Box::new(Taken { grant, old, new: *new, begun: now, at: now, since })))
            }
            Ok(Err(answer)) => Ok(Taking::Refused(answer)),
            Err(error) => {
                // The connection is lost, and with it the transaction and its locks.
                connection.is_spoiled = true;
                Err(error)
            }
        }
    }

    async fn mark(connection: &mut SimTransaction) -> Result<Self::Mark, StoreError> {
        Ok((connection.rows, connection.records.len()))
    }

    async fn undo(connection: &mut SimTransaction, mark: &mut Self::Mark) -> Result<(), StoreError> {
        connection.savepoint()?;
        Self::undo_first(connection, mark);
        Ok(())
    }

    fn undo_first(connection: &mut SimTransaction, (rows, records): &mut Self::Mark) {
        // A real connection rolls back later, before its next statement. So nobody sees the error.
        if connection.savepoint().is_err() {
            return;
        }
        connection.rows = *rows;
        connection.records.truncate(*records);
    }

    async fn keep(connection: &mut SimTransaction, _: &mut Self::Mark) -> Result<(), StoreError> {
        connection.savepoint()
    }

    async fn record(
        &self,
        connection: &mut SimTransaction,
        key: &RecordKey,
        taken: &Taken,
        request: &Complete,
    ) -> Result<CompleteAnswer, StoreError> {
        let number = self.world.number(key);
        let (old, result) = (taken.old.clone(), request.result.clone());
        let answer = self.send("record in the transaction", move |state, _| {
            result.check_size(crate::network::LARGEST)?;
            Ok(if state.live(number) == old.as_ref() { CompleteAnswer::Done } else { CompleteAnswer::Lost })
        });
        let answer = answer.await?;
        if answer == CompleteAnswer::Done {
            connection.read.push((number, taken.old.clone()));
            connection.records.push((number, Box::new(taken.new.clone()), request.clone()));
        }
        Ok(answer)
    }

    async fn spoil(connection: &mut SimTransaction) {
        connection.is_spoiled = true;
    }
}
