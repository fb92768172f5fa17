//! Merges one configuration over another.

use api::{Json, JsonMap};

/// Lists that accumulate across files; every other list is replaced. So no file can unhide what another one hides.
const GROWING: &[&str] = &["instructions", "plugin", "hide"];

/// Merges `over` into `base`: objects key by key, anything else is replaced. Existing keys keep their position.
pub(crate) fn merge(base: &mut JsonMap, over: JsonMap) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => merge(old, new),
            (Some(Json::Array(old)), Json::Array(new)) if GROWING.contains(&key.as_str()) => grow(old, new),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn grow(old: &mut Vec<Json>, new: Vec<Json>) {
    for item in new {
        if !old.contains(&item) {
            old.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn map(value: Json) -> JsonMap {
        match value {
            Json::Object(map) => map,
            other => panic!("not an object: {other}"),
        }
    }

    fn merged(base: &JsonMap, over: &JsonMap) -> JsonMap {
        let mut out = base.clone();
        merge(&mut out, over.clone());
        out
    }

    #[test]
    fn objects_merge_lists_replace_some_lists_grow() {
        let base = map(json!({"a": {"x": 1, "y": 2}, "l": [1, 2], "instructions": ["a", "b"], "s": {"t": 1}}));
        let over = map(json!({"a": {"y": 3, "z": 4}, "l": [3], "instructions": ["b", "c"], "s": 5}));
        let want = json!({"a": {"x": 1, "y": 3, "z": 4}, "l": [3], "instructions": ["a", "b", "c"], "s": 5});
        assert_eq!(Json::Object(merged(&base, &over)), want);
    }

    /// Objects whose keys determine whether they hold an object or a value, as a schema does. Otherwise merging is not
    /// associative: a value in the middle would discard what is below it.
    fn shaped() -> impl Strategy<Value = JsonMap> {
        let leaf = prop::collection::btree_map("[a-d]", any::<u8>().prop_map(Json::from), 0..4)
            .prop_map(|map| map.into_iter().collect::<JsonMap>());
        leaf.prop_recursive(3, 24, 4, |inner| {
            (
                prop::collection::btree_map("[a-d]", any::<u8>().prop_map(Json::from), 0..3),
                prop::collection::btree_map("[A-D]", inner.prop_map(Json::Object), 0..3),
                prop::option::of(prop::collection::vec(any::<u8>().prop_map(Json::from), 0..3)),
            )
                .prop_map(|(values, objects, list)| {
                    let list = list.map(|list| ("hide".to_owned(), Json::from(list)));
                    values.into_iter().chain(objects).chain(list).collect()
                })
        })
    }

    proptest! {
        #[test]
        fn associative(a in shaped(), b in shaped(), c in shaped()) {
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        }

        #[test]
        fn the_empty_map_is_neutral_and_later_values_win(a in shaped(), b in shaped()) {
            prop_assert_eq!(&merged(&a, &JsonMap::new()), &a);
            prop_assert_eq!(&merged(&JsonMap::new(), &a), &a);
            for (key, value) in merged(&a, &b).iter().filter(|(_, value)| value.is_number()) {
                prop_assert_eq!(Some(value), b.get(key).or(a.get(key)));
            }
        }
    }
}
