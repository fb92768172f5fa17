//! Objects of a request, field by field, with the path of each for errors.

use std::fmt;

use super::time::parse_timestamp;
use crate::error::Error;
use api::{Json, JsonMap, Timestamp};

/// The deepest nesting of metadata and data that is taken in.
pub(super) const MAX_DEPTH: usize = 64;
/// The longest id of a task, context, message or push configuration.
pub(super) const MAX_ID: usize = 512;
/// The most items of a list.
pub(super) const MAX_ITEMS: usize = 10_000;

/// The place of a value in a request. Written out only for errors.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    /// The root, with its name; empty where fields stand alone.
    Root(&'a str),
    /// A field.
    Field(&'a Path<'a>, &'a str),
    /// An item of a list.
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Field(Self::Root(""), name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Path<'_> {
    pub(super) fn wrong(&self, expected: &str) -> Error {
        let field = self.to_string();
        Error::invalid(&field, format!("{} must be {expected}", if field.is_empty() { "The body" } else { &field }))
    }

    pub(super) fn missing(&self) -> Error {
        let field = self.to_string();
        Error::invalid(&field, format!("Missing required {field}")).with("type", "MISSING_FIELD")
    }
}

/// An object whose fields are taken one by one. Unknown fields are ignored, as both lines ask for.
pub(super) struct Object<'a> {
    map: JsonMap,
    path: Path<'a>,
}

impl<'a> Object<'a> {
    pub(super) fn new(value: Json, path: Path<'a>) -> Result<Self, Error> {
        match value {
            Json::Object(map) => Ok(Self { map, path }),
            _ => Err(path.wrong("an object")),
        }
    }

    pub(super) fn path(&self) -> Path<'a> {
        self.path
    }

    pub(super) fn missing(&self, name: &str) -> Error {
        self.at(name).missing()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Takes a field by its name in camel case, or by the same in snake case, which the JSON of protocol buffers allows as
    /// well. Null is as good as absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Json> {
        let value = match self.map.get_mut(name) {
            Some(value) => value,
            None if name.bytes().any(|byte| byte.is_ascii_uppercase()) => self.map.get_mut(&snake_case(name))?,
            None => return None,
        };
        Some(value.take()).filter(|value| !value.is_null())
    }

    pub(super) fn at<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path::Field(&self.path, name)
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.at(name).wrong("a string")),
        }
    }

    /// A string; empty is as good as absent, as in protocol buffers.
    pub(super) fn filled(&mut self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }

    pub(super) fn required(&mut self, name: &str) -> Result<String, Error> {
        self.filled(name)?.ok_or_else(|| self.at(name).missing())
    }

    /// An id, which becomes part of the keys of records.
    pub(super) fn id(&mut self, name: &str) -> Result<Option<String>, Error> {
        let id = self.filled(name)?;
        if id.as_ref().is_some_and(|id| id.len() > MAX_ID) {
            return Err(self.at(name).wrong(&format!("at most {MAX_ID} bytes long")));
        }
        Ok(id)
    }

    pub(super) fn required_id(&mut self, name: &str) -> Result<String, Error> {
        self.id(name)?.ok_or_else(|| self.at(name).missing())
    }

    pub(super) fn needed(&mut self, name: &str) -> Result<Json, Error> {
        self.take(name).ok_or_else(|| self.at(name).missing())
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(self.at(name).wrong("a boolean")),
        }
    }

    /// A whole number that is not negative. The JSON of protocol buffers writes it with a fraction of zero, or as a string, too.
    pub(super) fn count(&mut self, name: &str) -> Result<Option<u32>, Error> {
        let Some(value) = self.take(name) else { return Ok(None) };
        whole(&value)
            .and_then(|number| u32::try_from(number).ok())
            .map(Some)
            .ok_or_else(|| self.at(name).wrong("a whole number that is not negative"))
    }

    pub(super) fn timestamp(&mut self, name: &str) -> Result<Option<Timestamp>, Error> {
        let Some(text) = self.filled(name)? else { return Ok(None) };
        parse_timestamp(&text).map(Some).ok_or_else(|| self.at(name).wrong("a timestamp like 2026-01-31T09:30:00.000Z"))
    }

    pub(super) fn metadata(&mut self, name: &str) -> Result<JsonMap, Error> {
        match self.take(name) {
            None => Ok(JsonMap::new()),
            Some(value) => {
                check_depth(&value, self.at(name))?;
                match value {
                    Json::Object(map) => Ok(map),
                    _ => Err(self.at(name).wrong("an object")),
                }
            }
        }
    }

    pub(super) fn list(&mut self, name: &str) -> Result<Vec<Json>, Error> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Json::Array(items)) if items.len() <= MAX_ITEMS => Ok(items),
            Some(Json::Array(_)) => {
                let field = self.at(name).to_string();
                let message = format!("{field} has more than {MAX_ITEMS} items");
                Err(Error::invalid(&field, message).with("max", MAX_ITEMS))
            }
            Some(_) => Err(self.at(name).wrong("a list")),
        }
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, Error> {
        let items = self.list(name)?;
        let list = self.at(name);
        let text = |(index, item)| match item {
            Json::String(text) => Ok(text),
            _ => Err(Path::Item(&list, index).wrong("a string")),
        };
        items.into_iter().enumerate().map(text).collect()
    }

    pub(super) fn each<T>(
        &mut self,
        name: &str,
        mut read: impl FnMut(Json, Path<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let items = self.list(name)?;
        let list = self.at(name);
        items.into_iter().enumerate().map(|(index, item)| read(item, Path::Item(&list, index))).collect()
    }

    /// A value of an enumeration. `spellings` are what counts.
    pub(super) fn choice<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
        expected: &str,
    ) -> Result<Option<T>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::String(text)) => parse(&text).map(Some).ok_or_else(|| self.at(name).wrong(expected)),
            Some(_) => Err(self.at(name).wrong(expected)),
        }
    }

    pub(super) fn into_map(self) -> JsonMap {
        self.map
    }
}

/// A whole number, also one written with a fraction of zero or as a string.
pub(super) fn whole(value: &Json) -> Option<i64> {
    /// Beyond it, floating point has no whole numbers for sure.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Json::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT)?;
            #[expect(clippy::cast_possible_truncation, reason = "whole, and smaller than 2^53")]
            Some(float as i64)
        }),
        Json::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Refuses what is nested more deeply than anything that reads it later should have to follow.
pub(super) fn check_depth(value: &Json, path: Path<'_>) -> Result<(), Error> {
    fn fits(value: &Json, left: usize) -> bool {
        match value {
            Json::Array(items) => left > 0 && items.iter().all(|item| fits(item, left - 1)),
            Json::Object(map) => left > 0 && map.values().all(|item| fits(item, left - 1)),
            _ => true,
        }
    }
    if fits(value, MAX_DEPTH) {
        return Ok(());
    }
    let field = path.to_string();
    Err(Error::invalid(&field, format!("{field} is nested more than {MAX_DEPTH} levels deep")).with("max", MAX_DEPTH))
}

fn snake_case(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
