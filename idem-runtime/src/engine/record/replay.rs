//! A recorded result on its way to a caller.

use crate::engine::body::context::{CallEnd, Outcome};
use crate::engine::prepare::call::Call;
use crate::engine::record::encoding::NotDecoded;
use crate::engine::report::Event;
use crate::error::Error;
use idem_core::Store;
use idem_core::protocol::{Replay, StoredResult, Tombstone, Verdict};

impl<S: Store> Call<S> {
    /// What `decode` makes of a recorded result, or the error that the caller gets instead.
    pub(crate) fn replayed<T>(
        &self,
        replay: &Replay,
        decode: impl FnOnce(Verdict, &[u8]) -> Result<T, NotDecoded>,
    ) -> Result<T, Error> {
        match &replay.result {
            StoredResult::Value(bytes) => match decode(replay.verdict, bytes) {
                Ok(result) => {
                    self.observe(Outcome::replayed(replay));
                    self.report(Event::Replayed, replay.attempt);
                    if replay.verdict == Verdict::Failed {
                        self.end(&CallEnd::Terminal);
                    }
                    Ok(result)
                }
                Err(fault) => {
                    self.report(Event::Undecodable(fault.reason()), replay.attempt);
                    Err(self.refuse(Error::Undecodable { call: self.id(), reason: fault.reason().clone() }))
                }
            },
            StoredResult::Tombstone(Tombstone::Exhausted) => {
                Err(self.refuse(Error::Exhausted { call: self.id(), attempts: replay.attempt }))
            }
            StoredResult::Tombstone(reason) => {
                self.observe(Outcome::replayed(replay));
                self.report(Event::Replayed, replay.attempt);
                Err(self.refuse(Error::ResultNotStored { call: self.id(), reason: (*reason).into() }))
            }
        }
    }
}
