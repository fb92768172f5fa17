//! YAML as JSON, with the place of each key. Bounded: an alias costs as much as what it stands for.

use std::collections::{HashMap, HashSet};

use api::{Json, JsonMap};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::Broken;

/// Maps and lists may be nested this deep.
const MAX_DEPTH: usize = 32;
/// Values in one front matter, those that aliases repeat included.
const MAX_NODES: usize = 20_000;

/// Where keys stand: the path of each, then its line and column, both from 1.
pub(crate) type Places = Vec<(Vec<String>, (usize, usize))>;

/// Reads one document. Nothing at all is `null`.
pub(super) fn parse(source: &str) -> Result<(Json, Places), Broken> {
    let mut builder = Builder {
        parser: Parser::new_from_str(source),
        nodes: 0,
        anchors: HashMap::new(),
        path: Vec::new(),
        places: Places::new(),
    };
    let value = builder.document()?;
    Ok((value, builder.places))
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    nodes: usize,
    /// What anchors stand for, and how many values that is.
    anchors: HashMap<usize, (Json, usize)>,
    path: Vec<String>,
    places: Places,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Broken> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(unreadable(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Json, Broken> {
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

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Json, Broken> {
        if depth > MAX_DEPTH {
            return Err(broken(&span.start, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let before = self.nodes;
        self.count(1, span)?;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref(), span)?),
            Event::SequenceStart(anchor, tag) => {
                known(tag.as_deref(), span)?;
                (anchor, self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                known(tag.as_deref(), span)?;
                (anchor, self.map(depth)?)
            }
            Event::Alias(anchor) => {
                let meant = self.anchors.get(&anchor).cloned();
                let (value, size) = meant.ok_or_else(|| broken(&span.start, "this alias stands for nothing"))?;
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

    fn count(&mut self, nodes: usize, span: &Span) -> Result<(), Broken> {
        self.nodes += nodes;
        match self.nodes > MAX_NODES {
            true => Err(broken(&span.start, format!("more than {MAX_NODES} values"))),
            false => Ok(()),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, Broken> {
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

    fn map(&mut self, depth: usize) -> Result<Json, Broken> {
        let mut map = JsonMap::new();
        // Keys that came with a merge: one that is written out takes the place of such a one.
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
                return Err(broken(&span.start, format!("the key \"{key}\" stands here twice")));
            }
            self.path.push(key.clone());
            self.places.push((self.path.clone(), (span.start.line(), span.start.col() + 1)));
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

/// The entries of what is merged into a map: another map, or several.
fn bases(value: Json) -> Option<Vec<(String, Json)>> {
    match value {
        Json::Object(map) => Some(map.into_iter().collect()),
        Json::Array(list) => {
            Some(list.into_iter().map(bases).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// Refuses tags that are not YAML's own.
fn known(tag: Option<&Tag>, span: &Span) -> Result<(), Broken> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => Err(broken(&span.start, format!("the tag {tag} is not known"))),
        _ => Ok(()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> Result<Json, Broken> {
    known(tag, span)?;
    match tag {
        Some(tag) if tag.suffix == "str" => Ok(text.into()),
        _ if style == ScalarStyle::Plain => Ok(plain(text)),
        _ => Ok(text.into()),
    }
}

/// An unquoted scalar: a boolean, a number, nothing, or text.
fn plain(text: &str) -> Json {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => number(text).unwrap_or_else(|| text.into()),
    }
}

/// A number as the YAML library of OpenCode knows them, other than sixties and infinities.
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

fn unreadable(error: &ScanError) -> Broken {
    broken(error.marker(), format!("this is not YAML: {}", error.info()))
}

fn broken(at: &Marker, message: impl Into<String>) -> Broken {
    Broken { line: at.line(), message: message.into() }
}
