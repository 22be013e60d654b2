//! The words for states, policies and reasons, as stores that people read write them and commands print them.

use super::{OnCrash, State, Tombstone};

macro_rules! words {
    ($ty:ident { $($variant:ident => $word:literal,)* }) => {
        impl $ty {
            /// Its word. It never changes: stores keep it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The one with this word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

words!(State {
    InFlight => "in_flight",
    Completed => "completed",
    Failed => "failed",
    Released => "released",
    InDoubt => "in_doubt",
});

words!(OnCrash {
    Rerun => "rerun",
    InDoubt => "in_doubt",
});

words!(Tombstone {
    TooLarge => "too_large",
    NotEncodable => "not_encodable",
    Exhausted => "exhausted",
});
