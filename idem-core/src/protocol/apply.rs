//! One type for all requests, and one type for all answers: the argument and the return value of
//! [`Store::apply`](crate::Store::apply).
//!
//! Owns the list of the operations on one record. `transition.rs` and `resolve.rs` say what each operation
//! does.

use super::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Owner, Record, RecordStep, RecordStepAnswer,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, StoredResult, Timestamp,
    Transition, claim, complete, record_step, release, renew, resolve,
};
use crate::error::StoreError;

macro_rules! operations {
    ($($name:ident($request:ident) -> $answer:ident: $transition:expr;)*) => {
        /// Any request about one record.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Request {
            $(
                #[doc = concat!("See [`", stringify!($request), "`].")]
                $name($request),
            )*
        }

        /// The answer to any [`Request`]. The variants of a request and its answer have the same name.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Answer {
            $(
                #[doc = concat!("See [`", stringify!($answer), "`].")]
                $name($answer),
            )*
        }

        /// Applies a request to a record, with the transition function for the kind of the request. Only a
        /// claim uses `floor`: see [`claim`].
        #[must_use]
        pub fn apply(
            record: Option<&Record>,
            floor: Fence,
            request: &Request,
            now: Timestamp,
        ) -> Transition<Answer> {
            match request {
                $(Request::$name(request) => {
                    let transition: fn(Option<&Record>, Fence, &$request, Timestamp) -> _ = $transition;
                    let Transition { write, answer } = transition(record, floor, request, now);
                    Transition { write, answer: Answer::$name(answer) }
                })*
            }
        }

        $(
            impl From<$request> for Request {
                fn from(request: $request) -> Self {
                    Self::$name(request)
                }
            }

            impl From<$answer> for Answer {
                fn from(answer: $answer) -> Self {
                    Self::$name(answer)
                }
            }

            impl TryFrom<Answer> for $answer {
                type Error = StoreError;

                /// The answer, if it is of this kind. Otherwise an error with an unknown outcome.
                fn try_from(answer: Answer) -> Result<Self, StoreError> {
                    match answer {
                        Answer::$name(answer) => Ok(answer),
                        _ => Err(StoreError::outcome_unknown(
                            "the store's answer is of another kind than the request",
                        )),
                    }
                }
            }
        )*
    };
}

operations! {
    Claim(Claim) -> ClaimAnswer: claim;
    Renew(Renew) -> RenewAnswer: |record, _, request, now| renew(record, request, now);
    RecordStep(RecordStep) -> RecordStepAnswer: |record, _, request, now| record_step(record, request, now);
    Complete(Complete) -> CompleteAnswer: |record, _, request, now| complete(record, request, now);
    Release(Release) -> ReleaseAnswer: |record, _, request, now| release(record, request, now);
    Resolve(Resolution) -> ResolveAnswer: |record, _, word, now| resolve(record, word, now);
}

impl Request {
    /// The result that the request records, either of a call or of a step. A store may limit its size.
    #[must_use]
    pub const fn result(&self) -> Option<&StoredResult> {
        match self {
            Self::RecordStep(request) => Some(&request.step.result),
            Self::Complete(request) => Some(&request.result),
            Self::Resolve(word) => match word.recorded() {
                Some((_, result)) => Some(result),
                None => None,
            },
            Self::Claim(_) | Self::Renew(_) | Self::Release(_) => None,
        }
    }

    /// The owner of the claim that the request is about; `None` for a [`Resolution`].
    #[must_use]
    pub const fn owner(&self) -> Option<Owner> {
        match self {
            Self::Claim(request) => Some(request.owner),
            Self::Renew(request) => Some(request.owner),
            Self::RecordStep(request) => Some(request.owner),
            Self::Complete(request) => Some(request.owner),
            Self::Release(request) => Some(request.owner),
            Self::Resolve(_) => None,
        }
    }
}
