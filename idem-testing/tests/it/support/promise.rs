//! The promises of the protocol, by name, and the set of broken ones.

/// Calls a macro with each promise that the shadow judges, and the text that states the promise.
macro_rules! for_each_promise {
    ($callback:ident) => {
        $callback! {
            FencesRise: "distinct grants have distinct, rising fences";
            OneResult: "a generation has at most one recorded result";
            ReplaysAreTheResult: "every replay returns the recorded result";
            OnlyTheHolderActs: "renew, record_step, complete and release succeed for the current holder only";
            TheHolderIsHeard: "the current holder is never refused";
            RunningLeasesAreSafe: "a running lease is not taken over";
            SameArguments: "another fingerprint is neither granted nor replayed";
            InDoubtStartsOnce: "under in_doubt a body starts once until it asks to be released or the doubt is settled";
            NothingIsForgotten: "a record is kept to its end, with its attempts";
            AskingAgainFindsTheTruth: "a lost answer is found by asking again";
            AttemptsEnd: "no more bodies start than max_attempts says";
            AnswersAreTrue: "every answer is true at that moment";
            StepsAreKept: "the steps acknowledged, and no others, are there until the result, in order";
            LateCopiesReviveNothing: "a claim whose owner gave it up is not granted again";
            DoubtsHaveNoEnd: "a record has no end where it is in doubt or in flight under in_doubt, and nowhere else";
        }
    };
}

macro_rules! promise_enum {
    ($($promise:ident: $words:literal;)*) => {
        /// What the protocol promises about one key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Promise {
            $($promise,)*
            /// The model, not the shadow, checks this promise, in each state.
            EveryKeyCanBeResolved,
        }

        impl Promise {
            pub const ALL: &'static [Self] = &[$(Self::$promise,)* Self::EveryKeyCanBeResolved];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$promise => $words,)*
                    Self::EveryKeyCanBeResolved => "from every state a key can come to an end",
                }
            }
        }
    };
}

for_each_promise!(promise_enum);

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
