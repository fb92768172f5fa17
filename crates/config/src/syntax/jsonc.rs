//! JSON with comments and trailing commas: parsing, key positions, and duplicate keys.

use std::collections::HashSet;

use api::Json;
use jsonc_parser::ast::Value;
use jsonc_parser::{CollectOptions, ParseOptions};

/// Allows comments and trailing commas, as editors do in configuration files; nothing looser, so that mistakes are
/// noticed.
pub(crate) fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// A syntax error.
#[derive(Debug)]
pub(crate) struct JsoncError {
    /// Line and column, from 1.
    pub(crate) position: (usize, usize),
    /// What is wrong there.
    pub(crate) message: String,
}

/// Parses a text; an empty one is `null`.
pub(crate) fn parse(text: &str) -> Result<Json, JsoncError> {
    jsonc_parser::parse_to_serde_value(text, &options()).map_err(|error| JsoncError {
        position: (error.line_display(), error.column_display()),
        message: error.kind().to_string(),
    })
}

/// The line and column, from 1, of the last component of a path of keys and indexes.
///
/// Parses the text again: problems are rare, so the common case does not pay for positions.
pub(crate) fn locate(text: &str, path: &[String]) -> Option<(usize, usize)> {
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options()).ok()?;
    let mut value = parsed.value?;
    let mut start = 0;
    for step in path {
        value = match value {
            Value::Object(mut object) => {
                let property = object.take(step)?;
                start = property.range.start;
                property.value
            }
            Value::Array(mut array) => {
                let index: usize = step.parse().ok()?;
                if index >= array.elements.len() {
                    return None;
                }
                let element = array.elements.swap_remove(index);
                start = jsonc_parser::common::Ranged::start(&element);
                element
            }
            _ => return None,
        };
    }
    position(text, start)
}

/// The line and column, from 1, of a byte offset.
fn position(text: &str, start: usize) -> Option<(usize, usize)> {
    let before = text.get(..start)?;
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Some((before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
}

/// A key that its object already has.
pub(crate) struct Duplicate {
    /// Keys and indexes from the root.
    pub(crate) path: Vec<String>,
    /// Line and column of the later one, from 1.
    pub(crate) position: Option<(usize, usize)>,
}

/// Finds up to `most` duplicate keys within an object, of which [`parse`] takes the later value.
pub(crate) fn duplicates(text: &str, most: usize) -> Vec<Duplicate> {
    let mut found = Vec::new();
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options());
    if let Some(value) = parsed.ok().and_then(|parsed| parsed.value) {
        find_duplicates(&value, &mut Vec::new(), &mut |path, start| {
            if found.len() < most {
                found.push(Duplicate { path: path.to_vec(), position: position(text, start) });
            }
        });
    }
    found
}

/// The parser's depth limit bounds the recursion.
fn find_duplicates(value: &Value<'_>, path: &mut Vec<String>, report: &mut impl FnMut(&[String], usize)) {
    match value {
        Value::Object(object) => {
            let mut seen = HashSet::new();
            for property in &object.properties {
                path.push(property.name.as_str().to_owned());
                if !seen.insert(property.name.as_str()) {
                    report(path, property.range.start);
                }
                find_duplicates(&property.value, path, report);
                path.pop();
            }
        }
        Value::Array(array) => {
            for (index, element) in array.elements.iter().enumerate() {
                path.push(index.to_string());
                find_duplicates(element, path, report);
                path.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn comments_and_trailing_commas() {
        let text = "{ // a\n \"b\": [1, 2,], /* c */ \"d\": 1e5,\n}";
        assert_eq!(parse(text).unwrap(), json!({"b": [1, 2], "d": 1e5}));
        assert_eq!(parse("").unwrap(), Json::Null);
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let broken = parse("{\n  \"a\": 1\n  \"b\": 2\n}").unwrap_err();
        assert_eq!(broken.position.0, 2, "{broken:?}");
        for text in ["{", "[1", "{'a':1}", "{a:1}", "{\"a\":}", "nope", "{} {}", "\"\\q\"", "{\"a\":\u{0}}"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        assert!(parse(&"[".repeat(200_000)).is_err());
        assert!(parse(&"{\"a\":".repeat(200_000)).is_err());
    }

    #[test]
    fn keys_have_a_position() {
        let text = "{\n  \"é\": [\n    {\"x\": 1}, {\"y\": 2}\n  ]\n}";
        let path = ["é", "1", "y"].map(str::to_owned);
        assert_eq!(locate(text, &path), Some((3, 16)));
        assert_eq!(locate(text, &path[..1]), Some((2, 3)));
        assert_eq!(locate(text, &["no".to_owned()]), None);
        assert_eq!(locate("{", &path), None);
    }

    #[test]
    fn repeated_keys_are_found_and_the_last_one_wins() {
        let text = "{\n  \"a\": 1, \"l\": [{\"x\": 1,\n \"x\": 2}],\n  \"a\": {\"l\": 1}, \"\\u0061\": 3\n}";
        assert_eq!(parse(text).unwrap(), json!({"a": 3, "l": [{"x": 2}]}));
        let shown = |most| -> Vec<_> {
            duplicates(text, most).into_iter().map(|d| (d.path.join("."), d.position.unwrap())).collect()
        };
        let all =
            [("l.0.x", (3, 2)), ("a", (4, 3)), ("a", (4, 18))].map(|(path, position)| (path.to_owned(), position));
        assert_eq!(shown(9), all);
        assert_eq!(shown(1), all[..1]);
        assert!(duplicates("{\"a\": 1, \"a\"", 9).is_empty());
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<String>().prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|pairs| Json::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in any_json()) {
            prop_assert_eq!(&parse(&value.to_string()).unwrap(), &value);
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let commented = pretty.replace(",\n", ", // why\n");
            // A string value never contains a bare newline, so comments end up between values only.
            prop_assert_eq!(parse(&commented).unwrap(), value);
        }

        #[test]
        fn no_text_crashes_it(text in any::<String>(), path in prop::collection::vec("[a-z0-9]{0,2}", 0..3)) {
            let _ = parse(&text);
            let _ = locate(&text, &path);
            let _ = duplicates(&text, 3);
        }
    }
}
