//! A JSON object from tensor names to something, as the header of a safetensors file and the index of a
//! sharded one have it. A name that comes twice is refused: serde's own maps would keep the last one.

use std::{collections::HashMap, fmt, marker::PhantomData};

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// The one name that no tensor may have: safetensors keeps texts about the file there.
const RESERVED: &str = "__metadata__";

/// Values by tensor name.
pub(super) struct TensorMap<V>(pub(super) HashMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for TensorMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
            type Value = TensorMap<V>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorMap<V>, A::Error> {
                let mut pairs = HashMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == RESERVED {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let value = map.next_value()?;
                    if pairs.insert(name.clone(), value).is_some() {
                        return Err(A::Error::custom(format_args!(
                            "tensor `{name}` is there twice"
                        )));
                    }
                }
                Ok(TensorMap(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}
