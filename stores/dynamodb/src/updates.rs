//! What a holder writes without reading first: a renewal, a step or a result. It is one update on the condition that the
//! holder still has the claim. If the update is refused, the protocol's own functions decide.

use std::time::Duration;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure as OnFailure};

use super::MAX_RESULT_BYTES;
use super::item;
use super::transition::{Met, Table};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{
    self, Answer, ClaimAnswer, Complete, CompleteAnswer, Fence, Owner, Record, RecordStep, RecordStepAnswer,
    Renew, RenewAnswer, Request, State, Verdict,
};
use idem_store_kit::step_bytes;

/// The longest lifetime that is added to an instant in an expression, which knows no limit: 1,000 years.
const LONGEST_TTL: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// What each update begins with.
const NEXT: &str = "SET #revision = #revision + :one";

/// The condition that the record is in flight, belongs to this owner and fence, and is not expired by any clock.
const MINE: &str = "#state = :in_flight AND #owner = :owner AND #fence = :fence AND \
                    (attribute_not_exists(#expires_at) OR #expires_at > :over)";

impl Table {
    /// Applies a request. `has_result` and `is_endless` say what this process knows of the record: that it has a result,
    /// and that it is in flight and never expires.
    pub(super) async fn request(
        &self,
        key: &RecordKey,
        request: &Request,
        has_result: bool,
        is_endless: bool,
    ) -> Result<Answer, StoreError> {
        let seen = match request {
            // Most keys are new, so the first guess is that there is no item, without reading first. A read of a result
            // costs a fraction of a write that it refuses.
            Request::Claim(_) => {
                self.0.names.check(key)?;
                if has_result { self.look(key).await? } else { None }
            }
            Request::Renew(renew) if !is_endless => match self.renew_mine(key, renew).await? {
                Met::Guessed => return Ok(RenewAnswer::Held.into()),
                Met::Other(seen) => seen,
            },
            Request::RecordStep(step) => match self.append_to_mine(key, step).await? {
                Met::Guessed => return Ok(RecordStepAnswer::Recorded.into()),
                Met::Other(seen) => {
                    let record = seen.as_ref().map(|seen| &seen.record);
                    if let Some(new) = protocol::record_step(record, step, Self::now()).write
                        && item::size(&new.steps) > MAX_RESULT_BYTES
                    {
                        let size = step_bytes::encode(&step.step).len();
                        return Err(StoreError::no_room_for_step(size, MAX_RESULT_BYTES));
                    }
                    seen
                }
            },
            Request::Complete(complete) => match self.complete_mine(key, complete).await? {
                Met::Guessed => return Ok(CompleteAnswer::Done.into()),
                Met::Other(seen) => seen,
            },
            _ => self.look(key).await?,
        };
        let decide = |record: Option<&Record>, now| protocol::apply(record, Fence::default(), request, now);
        let mut answer = self.apply_from(seen, key, decide).await?;
        if let Answer::Claim(ClaimAnswer::Replay(replay)) = &mut answer {
            // The end that was written, as in a list: a reader adds the skew once.
            replay.expires_at = replay.expires_at.map(|end| end.before(self.0.skew));
        }
        Ok(answer)
    }

    /// The effect of [`protocol::complete`] on a record in flight of this owner.
    async fn complete_mine(&self, key: &RecordKey, request: &Complete) -> Result<Met, StoreError> {
        let now = Self::now();
        let expires_at = now.after(request.ttl);
        let state = match request.verdict {
            Verdict::Completed => State::Completed,
            Verdict::Failed => State::Failed,
        };
        let (name, result) = item::result(&request.result);
        let update = format!(
            "{NEXT}, #state = :state, #{name} = :result, #ttl = :ttl, #completed_at = :now, \
             #expires_at = :expires_at, #delete_at = :delete_at REMOVE #steps, #steps_bytes"
        );
        let values = [
            (":state", item::text(state.as_str())),
            (":result", result),
            (":ttl", item::micros(request.ttl)),
            (":now", item::instant(now)),
            (":expires_at", item::instant(expires_at)),
            (":delete_at", item::number(self.delete_at(expires_at))),
        ];
        self.update_mine(key, (request.owner, request.fence), MINE, &update, values).await
    }

    /// What [`protocol::renew`] does to a record in flight that is the asker's and has an end.
    async fn renew_mine(&self, key: &RecordKey, request: &Renew) -> Result<Met, StoreError> {
        let now = Self::now();
        let condition =
            format!("{MINE} AND attribute_exists(#expires_at) AND #lease_until > :now AND #ttl <= :longest");
        let update = format!(
            "{NEXT}, #lease_until = :lease_until, #expires_at = :lease_until + #ttl, \
             #delete_at = #delete_at + :longer"
        );
        // When DynamoDB may delete the item is in seconds, which no expression makes of microseconds. Since it was written
        // less than a lease is over, so this is late enough.
        let longer = request.lease.as_secs().saturating_add(1);
        let values = [
            (":now", item::instant(now)),
            (":lease_until", item::instant(now.after(request.lease))),
            (":longest", item::micros(LONGEST_TTL)),
            (":longer", item::number(longer)),
        ];
        self.update_mine(key, (request.owner, request.fence), &condition, &update, values).await
    }

    /// The effect of [`protocol::record_step`] on a record in flight of this owner, for its next step.
    async fn append_to_mine(&self, key: &RecordKey, request: &RecordStep) -> Result<Met, StoreError> {
        let step = std::slice::from_ref(&request.step);
        let size = item::size(step);
        let Some(room) = MAX_RESULT_BYTES.checked_sub(size) else {
            return Err(StoreError::no_room_for_step(size, MAX_RESULT_BYTES));
        };
        let (bytes, holder) = ((":size", item::count(size)), (request.owner, request.fence));
        if request.position == 0 {
            let condition = format!("{MINE} AND attribute_not_exists(#steps)");
            let update = format!("{NEXT}, #steps = :steps, #steps_bytes = :size");
            let values = [(":steps", item::steps(step)), bytes];
            return self.update_mine(key, holder, &condition, &update, values).await;
        }
        let condition = format!("{MINE} AND size(#steps) = :position AND #steps_bytes <= :room");
        let update =
            format!("{NEXT}, #steps = list_append(#steps, :steps), #steps_bytes = #steps_bytes + :size");
        let values = [
            (":steps", item::steps(step)),
            bytes,
            (":position", item::number(request.position.into())),
            (":room", item::count(room)),
        ];
        self.update_mine(key, holder, &condition, &update, values).await
    }

    /// Updates the item on a condition that contains [`MINE`]. `update` begins with [`NEXT`].
    async fn update_mine<const N: usize>(
        &self,
        key: &RecordKey,
        (owner, fence): (Owner, Fence),
        condition: &str,
        update: &str,
        values: [(&str, AttributeValue); N],
    ) -> Result<Met, StoreError> {
        let names = &self.0.names;
        let mine = [
            (":in_flight", item::text(State::InFlight.as_str())),
            (":owner", item::bytes(owner.as_bytes())),
            (":fence", item::number(fence.get())),
            (":over", item::instant(Self::now().before(self.0.skew))),
            (":one", item::number(1)),
        ];
        let values = mine.into_iter().chain(values).map(|(name, value)| (name.to_owned(), value));
        let request = self
            .0
            .client
            .update_item()
            .table_name(&*names.table)
            .set_key(Some(names.primary_key(key)))
            .condition_expression(condition)
            .update_expression(update)
            .set_expression_attribute_names(Some(names.of(&[condition, update].concat())))
            .set_expression_attribute_values(Some(values.collect()))
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        self.retried(|| async {
            self.met(request.clone().send().await, |error| match error {
                UpdateItemError::ConditionalCheckFailedException(refused) => refused.item,
                _ => None,
            })
        })
        .await
    }
}
