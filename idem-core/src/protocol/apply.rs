//! All requests as one type, for stores that send requests through a queue or decide them in one place.
//!
//! Owns the list of the operations on one record. `transition.rs` and `resolve.rs` say what each of them does.

use super::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, StoredResult, Timestamp, Transition, claim,
    complete, record_step, release, renew, resolve,
};

/// A request about one record: one of [`Claim`], [`Renew`], [`RecordStep`], [`Complete`], [`Release`] and
/// [`Resolution`], or any of them as a [`Request`].
pub trait Apply {
    /// The answer to it.
    type Answer;

    /// Applies the request to `record`. Only a claim uses `floor`: see [`claim`].
    fn apply(&self, record: Option<&Record>, floor: Fence, now: Timestamp) -> Transition<Self::Answer>;

    /// The result, or the result of the step, that the request records. A store may limit its size.
    fn result(&self) -> Option<&StoredResult>;
}

/// Applies a request to a record, with the transition function of its kind.
#[must_use]
pub fn apply<R: Apply>(
    record: Option<&Record>,
    floor: Fence,
    request: &R,
    now: Timestamp,
) -> Transition<R::Answer> {
    request.apply(record, floor, now)
}

macro_rules! operations {
    ($($name:ident($request:ident) -> $answer:ident: $transition:expr, $result:expr;)*) => {
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

        impl Apply for Request {
            type Answer = Answer;

            fn apply(&self, record: Option<&Record>, floor: Fence, now: Timestamp) -> Transition<Answer> {
                match self {
                    $(Self::$name(request) => {
                        let Transition { write, answer } = request.apply(record, floor, now);
                        Transition { write, answer: Answer::$name(answer) }
                    })*
                }
            }

            fn result(&self) -> Option<&StoredResult> {
                match self {
                    $(Self::$name(request) => request.result(),)*
                }
            }
        }

        $(
            impl Apply for $request {
                type Answer = $answer;

                fn apply(
                    &self,
                    record: Option<&Record>,
                    floor: Fence,
                    now: Timestamp,
                ) -> Transition<$answer> {
                    let transition: fn(Option<&Record>, Fence, &Self, Timestamp) -> _ = $transition;
                    transition(record, floor, self, now)
                }

                fn result(&self) -> Option<&StoredResult> {
                    let result: fn(&Self) -> Option<&StoredResult> = $result;
                    result(self)
                }
            }

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
                type Error = Answer;

                /// The answer, if it is one of this kind.
                fn try_from(answer: Answer) -> Result<Self, Answer> {
                    match answer {
                        Answer::$name(answer) => Ok(answer),
                        other => Err(other),
                    }
                }
            }
        )*
    };
}

operations! {
    Claim(Claim) -> ClaimAnswer: claim, |_| None;
    Renew(Renew) -> RenewAnswer: |record, _, request, now| renew(record, request, now), |_| None;
    RecordStep(RecordStep) -> RecordStepAnswer:
        |record, _, request, now| record_step(record, request, now), |request| Some(&request.step.result);
    Complete(Complete) -> CompleteAnswer:
        |record, _, request, now| complete(record, request, now), |request| Some(&request.result);
    Release(Release) -> ReleaseAnswer: |record, _, request, now| release(record, request, now), |_| None;
    Resolve(Resolution) -> ResolveAnswer: |record, _, word, now| resolve(record, word, now), |word| {
        word.recorded().map(|(_, result)| result)
    };
}
