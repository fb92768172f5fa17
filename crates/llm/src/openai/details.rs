//! `reasoning_details`: reasoning in pieces that a server wants back as it gave them, with signatures, or encrypted.
//!
//! They arrive in pieces, like text. Pieces of one detail are joined, all else is kept as it came and in its order.

use api::{Json, JsonMap};

/// The name of the field, in answers, in requests, and below the vendor's name on parts.
pub const FIELD: &str = "reasoning_details";
/// The fields of a detail that grow piece by piece.
const GROWING: [&str; 2] = ["text", "summary"];
/// The maximum number of details in an answer.
const MAX_DETAILS: usize = 4096;

/// The details of an answer that were not handed on yet.
#[derive(Debug, Default)]
pub struct Details {
    list: Vec<JsonMap>,
    count: usize,
}

impl Details {
    /// Adds a piece. Returns the text that it shows; `None` if there are too many.
    pub fn push(&mut self, piece: Json) -> Option<String> {
        let Json::Object(piece) = piece else { return Some(String::new()) };
        let text = GROWING.iter().find_map(|name| piece.get(*name)?.as_str()).unwrap_or_default().to_owned();
        if let Some(last) = self.list.last_mut().filter(|last| continues(last, &piece)) {
            grow(last, piece);
            return Some(text);
        }
        self.count += 1;
        self.list.push(piece);
        (self.count <= MAX_DETAILS).then_some(text)
    }

    /// Takes what has arrived since the last time, as data of a vendor; empty if there is nothing.
    pub fn take(&mut self, vendor: &str) -> JsonMap {
        if self.list.is_empty() {
            return JsonMap::new();
        }
        let list: Vec<Json> = std::mem::take(&mut self.list).into_iter().map(Json::Object).collect();
        let details = JsonMap::from_iter([(FIELD.to_owned(), Json::Array(list))]);
        JsonMap::from_iter([(vendor.to_owned(), Json::Object(details))])
    }

    /// Whether something waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The details in a piece of an assistant message.
pub fn details<'a>(metadata: &'a JsonMap, vendor: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    metadata.get(vendor).and_then(|data| data.get(FIELD)?.as_array()).into_iter().flatten()
}

fn continues(last: &JsonMap, piece: &JsonMap) -> bool {
    let same = |name: &str| last.get(name) == piece.get(name);
    let grows = |detail: &JsonMap| GROWING.iter().any(|name| detail.get(*name).is_some_and(Json::is_string));
    let is_signed = last.get("signature").is_some_and(Json::is_string);
    let may_end = grows(piece) || piece.get("signature").is_some_and(Json::is_string);
    same("type") && same("index") && grows(last) && may_end && !is_signed
}

fn grow(last: &mut JsonMap, piece: JsonMap) {
    for (name, value) in piece {
        match (last.get_mut(&name), value) {
            (Some(Json::String(text)), Json::String(more)) if GROWING.contains(&name.as_str()) => text.push_str(&more),
            (Some(known), value) if known.is_null() => *known = value,
            (Some(_), _) => {}
            (None, value) => drop(last.insert(name, value)),
        }
    }
}
