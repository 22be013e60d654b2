//! What a holder writes without reading first: a renewal, a step or a result. It is one update on the condition that the
//! holder still has the claim. If the update is refused, the protocol's own functions decide.

use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure as OnFailure};

use super::MAX_RESULT_BYTES;
use super::failure::failure;
use super::item;
use super::transition::{Met, Table};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{
    self, Answer, ClaimAnswer, Complete, CompleteAnswer, Fence, Owner, Record, RecordStep, RecordStepAnswer,
    Renew, RenewAnswer, Request, State, Timestamp, Verdict,
};
use idem_store_kit::step_bytes;

/// The longest lifetime that is added to an instant in an expression, which knows no limit: 1,000 years.
const LONGEST_TTL: Duration = Duration::from_secs(1_000 * 366 * 86_400);

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
                self.names().check(key)?;
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
            replay.expires_at = replay.expires_at.map(|end| end.before(self.skew()));
        }
        Ok(answer)
    }

    /// The effect of [`protocol::complete`] on a record in flight of this owner.
    async fn complete_mine(&self, key: &RecordKey, request: &Complete) -> Result<Met, StoreError> {
        let names = self.names();
        let now = Self::now();
        let expires_at = now.after(request.ttl);
        let state = match request.verdict {
            Verdict::Completed => State::Completed,
            Verdict::Failed => State::Failed,
        };
        let (result_name, result) = item::result(&request.result);
        let set = [
            ("state", item::text(state.as_str())),
            (result_name, result),
            ("ttl", item::micros(request.ttl)),
            ("completed_at", item::instant(now)),
            ("expires_at", item::instant(expires_at)),
        ];
        let mut update = self.update_mine(key, request.owner, request.fence, now).condition_expression(MINE);
        let mut assignments = String::from("SET #revision = #revision + :one, #delete_at = :delete_at");
        for (name, value) in set {
            assignments.push_str(&format!(", #{name} = :{name}"));
            update = update
                .expression_attribute_names(format!("#{name}"), names.attribute(name))
                .expression_attribute_values(format!(":{name}"), value);
        }
        assignments.push_str(" REMOVE #steps, #steps_bytes");
        let update = update
            .update_expression(assignments)
            .expression_attribute_names("#steps", names.attribute("steps"))
            .expression_attribute_names("#steps_bytes", names.attribute("steps_bytes"))
            .expression_attribute_names("#delete_at", &*names.time_to_live)
            .expression_attribute_values(":delete_at", item::number(self.delete_at(expires_at)));
        self.updated(update).await
    }

    /// What [`protocol::renew`] does to a record in flight that is the asker's and has an end.
    async fn renew_mine(&self, key: &RecordKey, request: &Renew) -> Result<Met, StoreError> {
        let names = self.names();
        let now = Self::now();
        let lease_until = now.after(request.lease);
        // When DynamoDB may delete the item is in seconds, which no expression makes of microseconds. Since it was written
        // less than a lease is over, so this is late enough.
        let longer = request.lease.as_secs().saturating_add(1);
        let update = self
            .update_mine(key, request.owner, request.fence, now)
            .condition_expression(format!(
                "{MINE} AND attribute_exists(#expires_at) AND #lease_until > :now AND #ttl <= :longest"
            ))
            .update_expression(
                "SET #revision = #revision + :one, #lease_until = :lease_until, \
                 #expires_at = :lease_until + #ttl, #delete_at = #delete_at + :longer",
            )
            .expression_attribute_names("#lease_until", names.attribute("lease_until"))
            .expression_attribute_names("#ttl", names.attribute("ttl"))
            .expression_attribute_names("#delete_at", &*names.time_to_live)
            .expression_attribute_values(":now", item::instant(now))
            .expression_attribute_values(":lease_until", item::instant(lease_until))
            .expression_attribute_values(":longest", item::micros(LONGEST_TTL))
            .expression_attribute_values(":longer", item::number(longer));
        self.updated(update).await
    }

    /// The effect of [`protocol::record_step`] on a record in flight of this owner, for its next step.
    async fn append_to_mine(&self, key: &RecordKey, request: &RecordStep) -> Result<Met, StoreError> {
        let names = self.names();
        let size = item::size(std::slice::from_ref(&request.step));
        let Some(room) = MAX_RESULT_BYTES.checked_sub(size) else {
            return Err(StoreError::no_room_for_step(size, MAX_RESULT_BYTES));
        };
        let next = if request.position == 0 {
            "attribute_not_exists(#steps)"
        } else {
            "size(#steps) = :position AND #steps_bytes <= :room"
        };
        let mut update = self
            .update_mine(key, request.owner, request.fence, Self::now())
            .condition_expression(format!("{MINE} AND {next}"))
            .update_expression(
                "SET #revision = #revision + :one, #steps = list_append(if_not_exists(#steps, :none), :step), \
                 #steps_bytes = if_not_exists(#steps_bytes, :zero) + :size",
            )
            .expression_attribute_names("#steps", names.attribute("steps"))
            .expression_attribute_names("#steps_bytes", names.attribute("steps_bytes"))
            .expression_attribute_values(":none", AttributeValue::L(Vec::new()))
            .expression_attribute_values(":zero", item::number(0))
            .expression_attribute_values(":step", item::steps(std::slice::from_ref(&request.step)))
            .expression_attribute_values(":size", item::count(size));
        if request.position > 0 {
            update = update
                .expression_attribute_values(":position", item::number(request.position.into()))
                .expression_attribute_values(":room", item::count(room));
        }
        self.updated(update).await
    }

    /// An update with the names and values that [`MINE`] uses.
    fn update_mine(
        &self,
        key: &RecordKey,
        owner: Owner,
        fence: Fence,
        now: Timestamp,
    ) -> UpdateItemFluentBuilder {
        let names = self.names();
        self.client()
            .update_item()
            .table_name(&*names.table)
            .set_key(Some(names.primary_key(key)))
            .expression_attribute_names("#state", names.attribute("state"))
            .expression_attribute_names("#owner", names.attribute("owner"))
            .expression_attribute_names("#fence", names.attribute("fence"))
            .expression_attribute_names("#expires_at", names.attribute("expires_at"))
            .expression_attribute_names("#revision", names.attribute("revision"))
            .expression_attribute_values(":in_flight", item::text(State::InFlight.as_str()))
            .expression_attribute_values(":owner", item::bytes(owner.as_bytes()))
            .expression_attribute_values(":fence", item::number(fence.get()))
            .expression_attribute_values(":over", item::instant(now.before(self.skew())))
            .expression_attribute_values(":one", item::number(1))
            .return_values_on_condition_check_failure(OnFailure::AllOld)
    }

    async fn updated(&self, update: UpdateItemFluentBuilder) -> Result<Met, StoreError> {
        self.asked(|| async {
            match update.clone().send().await {
                Ok(_) => Ok(Met::Guessed),
                Err(SdkError::ServiceError(context))
                    if context.err().is_conditional_check_failed_exception() =>
                {
                    match context.into_err() {
                        UpdateItemError::ConditionalCheckFailedException(refused) => self.other(refused.item),
                        _ => Ok(Met::Other(None)),
                    }
                }
                Err(error) => Err(failure(&error)),
            }
        })
        .await
    }
}
