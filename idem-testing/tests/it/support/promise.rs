//! The promises of the protocol, by name, and the set of broken ones.

/// What the protocol promises about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    FencesRise,
    OneResult,
    ReplaysAreTheResult,
    OnlyTheHolderActs,
    TheHolderIsHeard,
    RunningLeasesAreSafe,
    SameArguments,
    InDoubtStartsOnce,
    NothingIsForgotten,
    AskingAgainFindsTheTruth,
    AttemptsEnd,
    AnswersAreTrue,
    StepsAreKept,
    LateCopiesReviveNothing,
    DoubtsHaveNoEnd,
    EveryKeyCanBeResolved,
}

impl Promise {
    pub const ALL: [Self; 16] = [
        Self::FencesRise,
        Self::OneResult,
        Self::ReplaysAreTheResult,
        Self::OnlyTheHolderActs,
        Self::TheHolderIsHeard,
        Self::RunningLeasesAreSafe,
        Self::SameArguments,
        Self::InDoubtStartsOnce,
        Self::NothingIsForgotten,
        Self::AskingAgainFindsTheTruth,
        Self::AttemptsEnd,
        Self::AnswersAreTrue,
        Self::StepsAreKept,
        Self::LateCopiesReviveNothing,
        Self::DoubtsHaveNoEnd,
        Self::EveryKeyCanBeResolved,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::FencesRise => "distinct grants have distinct, rising fences",
            Self::OneResult => "a generation has at most one recorded result",
            Self::ReplaysAreTheResult => "every replay returns the recorded result",
            Self::OnlyTheHolderActs => {
                "renew, record_step, complete and release succeed for the current holder only"
            }
            Self::TheHolderIsHeard => "the current holder is never refused",
            Self::RunningLeasesAreSafe => "a running lease is not taken over",
            Self::SameArguments => "another fingerprint is neither granted nor replayed",
            Self::InDoubtStartsOnce => {
                "under in_doubt a body starts once until it asks to be released or the doubt is settled"
            }
            Self::NothingIsForgotten => "a record is kept to its end, with its attempts",
            Self::AskingAgainFindsTheTruth => "a lost answer is found by asking again",
            Self::AttemptsEnd => "no more bodies start than max_attempts says",
            Self::AnswersAreTrue => "every answer is true at that moment",
            Self::StepsAreKept => {
                "the steps acknowledged, and no others, are there until the result, in order"
            }
            Self::LateCopiesReviveNothing => "a claim whose owner gave it up is not granted again",
            Self::DoubtsHaveNoEnd => {
                "a record has no end where it is in doubt or in flight under in_doubt, and nowhere else"
            }
            Self::EveryKeyCanBeResolved => "from every state a key can come to an end",
        }
    }
}

/// The promises that were broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken(u16);

impl Broken {
    pub fn note(&mut self, promise: Promise) {
        self.0 |= 1 << promise as u16;
    }

    pub const fn has(self, promise: Promise) -> bool {
        self.0 & (1 << promise as u16) != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
