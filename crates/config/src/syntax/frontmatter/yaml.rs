//! Parses YAML to JSON, with key positions. Bounded: an alias counts as much as what it refers to.

use std::collections::{HashMap, HashSet};

use api::{Json, JsonMap};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::FrontMatterError;

/// The maximum nesting depth of maps and lists.
const MAX_DEPTH: usize = 32;
/// The maximum number of values, including those repeated by aliases.
const MAX_NODES: usize = 20_000;

/// Key positions: the path of each key, then its line and column, both from 1.
pub(crate) type KeyPositions = Vec<(Vec<String>, (usize, usize))>;

/// Parses one document. An empty one is `null`.
pub(super) fn parse(source: &str) -> Result<(Json, KeyPositions), FrontMatterError> {
    let mut builder = Builder {
        parser: Parser::new_from_str(source),
        nodes: 0,
        anchors: HashMap::new(),
        path: Vec::new(),
        positions: KeyPositions::new(),
    };
    let value = builder.document()?;
    Ok((value, builder.positions))
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    nodes: usize,
    /// The values of anchors, and how many values they contain.
    anchors: HashMap<usize, (Json, usize)>,
    path: Vec<String>,
    positions: KeyPositions,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), FrontMatterError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(unreadable(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Json, FrontMatterError> {
        let mut value = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => return Ok(value.unwrap_or(Json::Null)),
                _ if value.is_some() => return Err(broken(&span.start, "there is a second document in it")),
                Event::DocumentStart(_) => {
                    let (event, span) = self.next()?;
                    value = Some(self.node(event, &span, 0)?);
                }
                _ => return Err(broken(&span.start, "this is not YAML")),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Json, FrontMatterError> {
        if depth > MAX_DEPTH {
            return Err(broken(&span.start, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let before = self.nodes;
        self.count(1, span)?;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref(), span)?),
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), span)?;
                (anchor, self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), span)?;
                (anchor, self.map(depth)?)
            }
            Event::Alias(anchor) => {
                let meant = self.anchors.get(&anchor).cloned();
                let (value, size) = meant.ok_or_else(|| broken(&span.start, "this alias refers to nothing"))?;
                self.count(size, span)?;
                return Ok(value);
            }
            _ => return Err(broken(&span.start, "a value is missing here")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), self.nodes - before));
        }
        Ok(value)
    }

    fn count(&mut self, nodes: usize, span: &Span) -> Result<(), FrontMatterError> {
        self.nodes += nodes;
        match self.nodes > MAX_NODES {
            true => Err(broken(&span.start, format!("more than {MAX_NODES} values"))),
            false => Ok(()),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, FrontMatterError> {
        let mut list = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Json::Array(list));
            }
            self.path.push(list.len().to_string());
            let item = self.node(event, &span, depth + 1)?;
            self.path.pop();
            list.push(item);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Json, FrontMatterError> {
        let mut map = JsonMap::new();
        // Keys from a merge, which explicit keys override.
        let mut merged = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Json::Object(map));
            }
            let merges = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let key = match self.node(event, &span, depth + 1)? {
                Json::String(key) => key,
                Json::Array(_) | Json::Object(_) => return Err(broken(&span.start, "a key must be text")),
                plain => plain.to_string(),
            };
            if map.contains_key(&key) && !merged.remove(&key) {
                return Err(broken(&span.start, format!("the key \"{key}\" is defined twice")));
            }
            self.path.push(key.clone());
            self.positions.push((self.path.clone(), (span.start.line(), span.start.col() + 1)));
            let (event, span) = self.next()?;
            let value = self.node(event, &span, depth + 1)?;
            self.path.pop();
            if !merges {
                map.insert(key, value);
                continue;
            }
            for (key, value) in bases(value).ok_or_else(|| broken(&span.start, "only maps can be merged"))? {
                if !map.contains_key(&key) {
                    merged.insert(key.clone());
                    map.insert(key, value);
                }
            }
        }
    }
}

/// The entries to merge into a map: from another map, or several.
fn bases(value: Json) -> Option<Vec<(String, Json)>> {
    match value {
        Json::Object(map) => Some(map.into_iter().collect()),
        Json::Array(list) => {
            Some(list.into_iter().map(bases).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// Rejects tags outside YAML's core schema.
fn check_tag(tag: Option<&Tag>, span: &Span) -> Result<(), FrontMatterError> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => Err(broken(&span.start, format!("the tag {tag} is not known"))),
        _ => Ok(()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> Result<Json, FrontMatterError> {
    check_tag(tag, span)?;
    match tag {
        Some(tag) if tag.suffix == "str" => Ok(text.into()),
        _ if style == ScalarStyle::Plain => Ok(plain(text)),
        _ => Ok(text.into()),
    }
}

/// An unquoted scalar: a boolean, a number, null, or text.
fn plain(text: &str) -> Json {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => number(text).unwrap_or_else(|| text.into()),
    }
}

/// A number as OpenCode's YAML library recognises them, except for base 60 and infinities.
fn number(text: &str) -> Option<Json> {
    let bare = text.replace('_', "");
    let (negative, digits) = match bare.strip_prefix(['-', '+']) {
        Some(digits) => (bare.starts_with('-'), digits),
        None => (false, bare.as_str()),
    };
    if text.ends_with('_') || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let (radix, whole) = match digits.as_bytes() {
        [b'0', b'x', ..] => (16, &digits[2..]),
        [b'0', b'b', ..] => (2, &digits[2..]),
        [b'0', second, ..] if second.is_ascii_digit() => (8, &digits[1..]),
        _ => (10, digits),
    };
    if whole.starts_with(|c: char| c.is_digit(radix))
        && let Ok(whole) = i64::from_str_radix(whole, radix)
    {
        return Some(if negative { -whole } else { whole }.into());
    }
    let fraction = radix == 10 && digits.contains(['.', 'e', 'E']) && digits != ".";
    let value = bare.parse::<f64>().ok().filter(|value| fraction && value.is_finite())?;
    serde_json::Number::from_f64(value).map(Json::Number)
}

fn unreadable(error: &ScanError) -> FrontMatterError {
    broken(error.marker(), format!("this is not YAML: {}", error.info()))
}

fn broken(at: &Marker, message: impl Into<String>) -> FrontMatterError {
    FrontMatterError { line: at.line(), message: message.into() }
}
