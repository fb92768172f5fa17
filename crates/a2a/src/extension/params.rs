//! Reads parameters. Each error names the field that is missing or wrong.

use api::{Json, JsonMap};

use crate::Error;

/// The only keys of `metadata`.
const METADATA: [&str; 2] = ["opencode", "shared"];

/// An object of parameters, or one inside of it.
#[derive(Clone, Copy)]
pub(super) struct Params<'a> {
    map: &'a JsonMap,
    /// Where the object is, for example `request.`.
    path: &'static str,
}

impl<'a> Params<'a> {
    /// The parameters of a call.
    pub(super) fn new(map: &'a JsonMap) -> Self {
        Self { map, path: "" }
    }

    /// Fails if there is a key besides these.
    pub(super) fn only(&self, keys: &[&str]) -> Result<(), Error> {
        let unknown: Vec<String> = self.map.keys().filter(|key| !keys.contains(&key.as_str())).cloned().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = unknown.iter().map(|key| format!("{}{key}", self.path)).collect();
        let error = Error::new(crate::ErrorKind::InvalidParams, format!("Unsupported fields: {}", names.join(", ")))
            .with("type", "INVALID_FIELD");
        Err(match self.path.strip_suffix('.') {
            Some(object) => error.with("field", object),
            None => error.with("fields", unknown),
        })
    }

    /// A value, unless it is absent or null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Json> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The error about a field.
    pub(super) fn invalid(&self, key: &str, problem: &str) -> Error {
        let field = format!("{}{key}", self.path);
        Error::invalid(&field, format!("{field} {problem}"))
    }

    /// A text that is not empty, if it is there.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Json::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(_) => Err(self.invalid(key, "must be a non-empty string")),
        }
    }

    /// A text that has to be there.
    pub(super) fn required_text(&self, key: &str) -> Result<&'a str, Error> {
        match self.get(key) {
            None if self.path.is_empty() => {
                let error = Error::new(crate::ErrorKind::InvalidParams, format!("Missing required params.{key}"));
                Err(error.with("type", "MISSING_FIELD").with("field", key))
            }
            None => Err(self.invalid(key, "must be a non-empty string")),
            Some(_) => self.text(key).map(Option::unwrap_or_default),
        }
    }

    /// A text that may be empty, but has to be there.
    pub(super) fn any_text(&self, key: &str) -> Result<&'a str, Error> {
        self.get(key).and_then(Json::as_str).ok_or_else(|| self.invalid(key, "must be a string"))
    }

    /// A switch, if it is there. Clients that build requests from query strings send it as text.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Json::Bool(on)) => Ok(Some(*on)),
            Some(Json::String(text)) if text == "true" || text == "false" => Ok(Some(text == "true")),
            Some(_) => Err(self.invalid(key, "must be a boolean")),
        }
    }

    /// A whole number that is not negative, if it is there.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, Error> {
        let whole = |number: f64| number >= 0.0 && number.fract() == 0.0 && number <= u64::MAX as f64;
        match self.get(key) {
            None => Ok(None),
            // What passes through Protocol Buffers comes as a float.
            Some(Json::Number(number)) => match (number.as_u64(), number.as_f64()) {
                (Some(number), _) => Ok(Some(number)),
                (None, Some(number)) if whole(number) => Ok(Some(number as u64)),
                _ => Err(self.invalid(key, "must be a non-negative integer")),
            },
            Some(_) => Err(self.invalid(key, "must be a non-negative integer")),
        }
    }

    /// The size of a page.
    pub(super) fn limit(&self, default: usize, max: usize) -> Result<usize, Error> {
        let Some(limit) = self.number("limit")? else { return Ok(default) };
        match usize::try_from(limit) {
            Ok(0) => Err(self.invalid("limit", "must be >= 1")),
            Ok(limit) if limit <= max => Ok(limit),
            _ => Err(self.invalid("limit", &format!("must be <= {max}")).with("max", max)),
        }
    }

    /// An object, if it is there. `path` is its own path with a dot at the end.
    pub(super) fn object(&self, key: &str, path: &'static str) -> Result<Option<Params<'a>>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(Json::Object(map)) => Ok(Some(Params { map, path })),
            Some(_) => Err(self.invalid(key, "must be an object")),
        }
    }

    /// The object `request`, which has to be there.
    pub(super) fn request(&self) -> Result<Params<'a>, Error> {
        let missing = || Error::invalid("request", "params.request must be an object");
        self.object("request", "request.").map_err(|_| missing())?.ok_or_else(missing)
    }

    /// The object `request`, empty if it is absent.
    pub(super) fn optional_request(&self, empty: &'a JsonMap) -> Result<Params<'a>, Error> {
        Ok(self.object("request", "request.")?.unwrap_or(Params { map: empty, path: "request." }))
    }

    /// The metadata of the call.
    pub(super) fn metadata(&self) -> Result<JsonMap, Error> {
        let Some(Json::Object(metadata)) = self.get("metadata") else {
            return match self.get("metadata") {
                None => Ok(JsonMap::new()),
                Some(_) => Err(self.invalid("metadata", "must be an object")),
            };
        };
        let unknown: Vec<String> = metadata
            .keys()
            .filter(|key| !METADATA.contains(&key.as_str()))
            .map(|key| format!("metadata.{key}"))
            .collect();
        if unknown.is_empty() {
            return Ok(metadata.clone());
        }
        let message = format!("Unsupported metadata fields: {}", unknown.join(", "));
        Err(Error::new(crate::ErrorKind::InvalidParams, message).with("type", "INVALID_FIELD").with("fields", unknown))
    }

    /// Refuses parameters of other ways to page.
    pub(super) fn only_limit_pagination(&self) -> Result<(), Error> {
        const OTHERS: [&str; 3] = ["cursor", "page", "size"];
        if !OTHERS.iter().any(|key| self.map.contains_key(*key)) {
            return Ok(());
        }
        let error = Error::new(crate::ErrorKind::InvalidParams, "Only limit pagination is supported");
        Err(error
            .with("type", "INVALID_PAGINATION_MODE")
            .with("supported", vec!["limit"])
            .with("unsupported", OTHERS.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Json) -> JsonMap {
        value.as_object().unwrap().clone()
    }

    fn fields(error: Error) -> Json {
        Json::Object(error.fields)
    }

    #[test]
    fn errors_name_the_field() {
        let map = map(json!({"a": 1, "b": "", "c": {"d": []}, "limit": 101, "e": null, "metadata": {"x": 1}}));
        let params = Params::new(&map);
        let inner = params.object("c", "c.").unwrap().unwrap();
        for (error, want) in [
            (params.text("a").unwrap_err(), json!({"type": "INVALID_FIELD", "field": "a"})),
            (params.text("b").unwrap_err(), json!({"type": "INVALID_FIELD", "field": "b"})),
            (params.required_text("e").unwrap_err(), json!({"type": "MISSING_FIELD", "field": "e"})),
            (inner.required_text("x").unwrap_err(), json!({"type": "INVALID_FIELD", "field": "c.x"})),
            (inner.number("d").unwrap_err(), json!({"type": "INVALID_FIELD", "field": "c.d"})),
            (inner.only(&["x"]).unwrap_err(), json!({"type": "INVALID_FIELD", "field": "c"})),
            (params.only(&["a", "b", "c", "e"]).unwrap_err(), {
                json!({"type": "INVALID_FIELD", "fields": ["limit", "metadata"]})
            }),
            (params.limit(20, 100).unwrap_err(), json!({"type": "INVALID_FIELD", "field": "limit", "max": 100})),
            (params.metadata().unwrap_err(), json!({"type": "INVALID_FIELD", "fields": ["metadata.x"]})),
            (params.request().err().unwrap(), json!({"type": "INVALID_FIELD", "field": "request"})),
        ] {
            assert_eq!(fields(error), want);
        }
        assert!(params.only_limit_pagination().is_ok());
    }

    #[test]
    fn numbers_may_come_as_floats() {
        let map = map(json!({"a": 2.0, "b": 2.5, "c": -1, "d": "2", "t": "true"}));
        let params = Params::new(&map);
        assert_eq!(params.number("a").unwrap(), Some(2));
        assert_eq!(params.flag("t").unwrap(), Some(true));
        for wrong in ["b", "c", "d"] {
            assert!(params.number(wrong).is_err(), "{wrong}");
        }
    }
}
