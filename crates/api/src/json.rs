//! JSON helpers: preserved unknown fields, cached serialisation, and numbers formatted as JavaScript prints them.

use std::ops::Deref;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// Any JSON value.
pub type Json = serde_json::Value;
/// A JSON object.
pub type JsonMap = serde_json::Map<String, Json>;

/// A JSON value that is sent repeatedly; it is serialised only once.
#[derive(Debug, Clone)]
pub struct SerializedJson(Arc<(Json, Box<RawValue>)>);

impl SerializedJson {
    /// Its serialised form.
    pub fn text(&self) -> &str {
        self.0.1.get()
    }
}

impl From<Json> for SerializedJson {
    fn from(value: Json) -> Self {
        // A `Value` always serialises: its keys are strings.
        let text = to_raw_value(&value).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(Arc::new((value, text)))
    }
}

impl Deref for SerializedJson {
    type Target = Json;

    fn deref(&self) -> &Json {
        &self.0.0
    }
}

impl PartialEq for SerializedJson {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Serialize for SerializedJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.1.serialize(serializer)
    }
}

/// The length of a value as JSON, computed without allocating the text.
pub fn json_size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value that cannot be serialised could not be stored either.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Unknown fields, preserved so that nothing is lost on a round trip. Costs one pointer while empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extra(Option<Box<JsonMap>>);

impl Extra {
    /// Returns an unknown field.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.as_ref()?.get(key)
    }

    /// Sets a field.
    pub fn set(&mut self, key: impl Into<String>, value: Json) {
        self.0.get_or_insert_default().insert(key.into(), value);
    }

    /// Removes a field.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Some(map) = &mut self.0 {
            map.shift_remove(key);
            if map.is_empty() {
                self.0 = None;
            }
        }
    }

    /// Whether there are no unknown fields.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|map| map.is_empty())
    }
}

impl Serialize for Extra {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(map) => map.serialize(serializer),
            None => JsonMap::new().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = JsonMap::deserialize(deserializer)?;
        Ok(Self((!map.is_empty()).then(|| Box::new(map))))
    }
}

/// Unknown fields have no schema.
impl JsonSchema for Extra {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Extra".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// An amount of money in US dollars. Whole amounts are written without a fraction (`0`, not `0.0`), as OpenCode does.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, JsonSchema)]
#[schemars(inline)]
pub struct Usd(pub f64);

impl std::ops::AddAssign for Usd {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < 9e15 {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self)
    }
}
