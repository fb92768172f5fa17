//! What a vendor gave with a block and wants back with it: signatures, encrypted reasoning, ids of items.
//!
//! It is kept on the part, below the vendor's name, as OpenCode keeps it. Beside it, `metadata` has marks of our own and
//! those of clients; a vendor never gets these.

use api::{Json, JsonMap, Part};

use crate::turn::step::IGNORED;

/// Marks calls that a vendor or a remote agent ran, which never run here. Other programs use the same key.
pub(crate) const PROVIDER_EXECUTED: &str = "providerExecuted";
/// Our own marks.
const OURS: &str = "trefoil";
/// Below it: the block goes on in the next part.
const CONTINUED: &str = "continued";

/// Adds data to a map of data; vendors send it in several steps.
pub(crate) fn merge(data: &mut JsonMap, more: JsonMap) {
    for (vendor, value) in more {
        match (data.get_mut(&vendor), value) {
            (Some(Json::Object(known)), Json::Object(value)) => known.extend(value),
            (_, value) => drop(data.insert(vendor, value)),
        }
    }
}

/// Adds data to a part.
pub(crate) fn add(part: &mut Part, data: JsonMap) {
    if data.is_empty() {
        return;
    }
    let metadata = match part {
        Part::Text(text) => &mut text.metadata,
        Part::Reasoning(text) => &mut text.metadata,
        Part::Tool(tool) => &mut tool.metadata,
        _ => return,
    };
    merge(metadata.get_or_insert_default(), data);
}

/// The data that the vendors get back: only objects are data of vendors, all else is a mark.
pub(crate) fn of(metadata: Option<&JsonMap>) -> JsonMap {
    let is_data = |(name, value): &(&String, &Json)| value.is_object() && *name != OURS;
    let data = metadata.into_iter().flatten().filter(is_data);
    data.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Marks a part whose block goes on in the next one.
pub(crate) fn mark_continued(part: &mut Part) {
    let mark = JsonMap::from_iter([(CONTINUED.to_owned(), true.into())]);
    add(part, JsonMap::from_iter([(OURS.to_owned(), Json::Object(mark))]));
}

/// Whether a part's block goes on in the next one.
pub(crate) fn is_continued(metadata: Option<&JsonMap>) -> bool {
    metadata.and_then(|metadata| metadata.get(OURS)?.get(CONTINUED)).is_some()
}

/// Whether a part comes from a failed attempt.
pub(crate) fn is_discarded(metadata: Option<&JsonMap>) -> bool {
    metadata.is_some_and(|metadata| metadata.contains_key(IGNORED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Json) -> JsonMap {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn data_of_one_vendor_is_merged_and_marks_are_no_data() {
        let mut data = map(json!({"openai": {"itemId": "a"}}));
        merge(&mut data, map(json!({"openai": {"reasoningEncryptedContent": "x"}, "v": {}})));
        assert_eq!(data, map(json!({"openai": {"itemId": "a", "reasoningEncryptedContent": "x"}, "v": {}})));
        let mixed =
            map(json!({"ignored": true, "providerExecuted": true, "trefoil": {"continued": true}, "v": {"s": 1}}));
        assert_eq!(of(Some(&mixed)), map(json!({"v": {"s": 1}})));
        assert!(is_continued(Some(&mixed)) && is_discarded(Some(&mixed)));
        assert!(of(None).is_empty() && !is_continued(None) && !is_discarded(None));
    }
}
