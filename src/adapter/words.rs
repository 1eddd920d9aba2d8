//! A closed enum and the words that stand for its variants in a manifest, written once. Knows nothing of
//! what the words mean.

/// Defines an enum whose variants each have one word, with `ALL`, `word`, `from_word` and `Display`.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every variant, in the order in which messages name them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The word that stands for it in a manifest.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// What `word` stands for, if anything.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

pub(super) use words;
