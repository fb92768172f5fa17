//! Bodies of requests as JSON, with a bound on how many values they have: each takes far more memory than its bytes.

use std::fmt;

use api::{Json, JsonMap};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Number};

use crate::error::{Error, ErrorKind};

/// The most values of a body: texts, numbers, lists, objects and so on.
const MAX_VALUES: u32 = 1 << 18;

/// Reads a body. How deep it is nested is bounded by the parser.
///
/// # Errors
/// It is no JSON, or has too many values; the rest is not read then.
pub(super) fn parse(body: &[u8]) -> Result<Json, Error> {
    let mut left = MAX_VALUES;
    let mut parser = Deserializer::from_slice(body);
    let read = Bounded { left: &mut left }.deserialize(&mut parser).and_then(|json| parser.end().map(|()| json));
    read.map_err(|error| match left {
        0 => Error::new(ErrorKind::InvalidRequest, format!("The body has more than {MAX_VALUES} values"))
            .with("max", MAX_VALUES),
        _ => Error::new(ErrorKind::Parse, format!("Invalid JSON payload: {error}")),
    })
}

/// Reads a value as long as some are left.
struct Bounded<'a> {
    left: &'a mut u32,
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Json;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        *self.left = self.left.checked_sub(1).filter(|left| *left > 0).ok_or_else(|| {
            *self.left = 0;
            D::Error::custom("too many values")
        })?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Bounded { left: &mut *self.left })? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut map = JsonMap::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(Bounded { left: &mut *self.left })?;
            map.insert(name, value);
        }
        Ok(Json::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_the_json_that_serde_json_reads() {
        for text in [
            r#"{"a":[1,-1,1.5,18446744073709551615,1e300,true,null,"x\ud83c\udf40"],"b":{"c":{}},"a2":[]}"#,
            "5",
            " null ",
            r#""""#,
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Json>(text).unwrap());
        }
        for text in ["", "{", "[1,]", "1 2", "{\"a\":1}}", "1e999", "\"\\ud800\"", "nul", "{1:2}", "'a'"] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().kind, ErrorKind::Parse, "{text}");
        }
        assert_eq!(parse(b"\"\xff\"").unwrap_err().kind, ErrorKind::Parse);
        assert_eq!(parse("[".repeat(10_000).as_bytes()).unwrap_err().kind, ErrorKind::Parse);
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let list = |count: u32| format!("[{}]", vec!["0"; count as usize].join(","));
        assert!(parse(list(MAX_VALUES - 2).as_bytes()).is_ok());
        let error = parse(list(MAX_VALUES).as_bytes()).unwrap_err();
        assert_eq!((error.kind, error.fields["max"].as_u64()), (ErrorKind::InvalidRequest, Some(MAX_VALUES.into())));
    }
}
