//! What serde's derive is too lenient for: objects that must be objects, maps without doubled keys, and
//! enums whose errors list the known words. Knows nothing of manifests.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A `T` written as a JSON object; derived structs alone would take an array of their fields as well.
#[derive(Default)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Object)
    }
}

/// The members of a JSON object in the order of the file; a doubled name is kept for the checks to see.
#[derive(Default)]
pub(super) struct Members(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(String, String)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }

        deserializer.deserialize_map(Pairs).map(Members)
    }
}

/// One text, or a list of them.
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Vec<String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(vec![text.to_owned()])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(texts)
            }
        }

        deserializer.deserialize_any(OneOrMore).map(Texts)
    }
}

/// Lets the enums of `words!` be read from their words.
macro_rules! deserialize_words {
    ($($name:ty),+) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = String::deserialize(deserializer)?;
                <$name>::from_word(&word).ok_or_else(|| {
                    let known: Vec<_> =
                        <$name>::ALL.iter().map(|known| format!("{:?}", known.word())).collect();
                    D::Error::custom(format!("unknown word {word:?}; known: {}", known.join(", ")))
                })
            }
        }
    )+};
}

deserialize_words!(
    super::Place,
    super::HandOver,
    super::Shipping,
    super::TaskFile,
    super::Delivery,
    super::Chroot,
    super::HostList,
    super::Scheduler,
    super::Meaning
);
