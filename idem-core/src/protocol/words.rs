//! The names of states, crash policies and tombstones, as commands print them and as stores with a readable
//! format write them.

use super::{OnCrash, State, Tombstone};

macro_rules! words {
    ($ty:ident { $($variant:ident => $word:literal,)* }) => {
        impl $ty {
            /// Its name. It never changes, because stores keep it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The value with this name.
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
