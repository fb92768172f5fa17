//! Compares two OpenAPI documents: operation by operation, and component by component. Every difference is one line.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::normalize::{Choice, Object, choices, describe, label, reference};

/// How deep schemas are followed; only a cycle goes deeper.
const MAX_DEPTH: usize = 24;

type Entries = BTreeMap<String, Value>;

/// The differences between `theirs` and `ours`, one per line, sorted.
pub fn differences(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut compare = Comparison { theirs, ours, lines: BTreeSet::new() };
    let (left, right) = (operations(theirs), operations(ours));
    compare.entries("", &left, &right, Comparison::operation);

    let shared = left.iter().filter(|(key, _)| right.contains_key(*key)).map(|(_, operation)| operation);
    let used = components_of(theirs, shared);
    let (mut left, right) = (entries(&theirs["components"]["schemas"]), entries(&ours["components"]["schemas"]));
    // Components that are used only by operations we do not have are no difference of their own.
    left.retain(|name, _| used.contains(name) || right.contains_key(name));
    compare.entries("component ", &left, &right, |compare, place, left, right| compare.shape(place, left, right, 0));
    compare.lines.into_iter().collect()
}

/// Every operation by method and path.
fn operations(document: &Value) -> Entries {
    let mut all = Entries::new();
    for (path, methods) in entries(&document["paths"]) {
        let named = |(method, operation): (String, Value)| (format!("{} {path}", method.to_uppercase()), operation);
        all.extend(entries(&methods).into_iter().map(named));
    }
    all
}

fn entries(object: &Value) -> Entries {
    object.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn parameters(operation: &Value) -> Entries {
    let list = operation["parameters"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list.map(|parameter| (format!("{}.{}", text(&parameter["in"]), text(&parameter["name"])), parameter.clone()))
        .collect()
}

fn body(operation: &Value) -> Entries {
    operation.get("requestBody").map(|body| ("body".to_owned(), body.clone())).into_iter().collect()
}

/// The names of the components that these operations use, at any depth.
fn components_of<'a>(document: &Value, operations: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    fn visit(value: &Value, document: &Value, names: &mut BTreeSet<String>) {
        if let Some(name) = reference(value)
            && names.insert(name.to_owned())
        {
            visit(&document["components"]["schemas"][name], document, names);
        }
        match value {
            Value::Object(map) => map.values().for_each(|value| visit(value, document, names)),
            Value::Array(list) => list.iter().for_each(|value| visit(value, document, names)),
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    operations.for_each(|operation| visit(operation, document, &mut names));
    names
}

fn labelled(choices: Vec<Choice>, document: &Value) -> BTreeMap<String, Choice> {
    choices.into_iter().map(|choice| (format!("[{}]", label(&choice.keywords, document)), choice)).collect()
}

struct Comparison<'a> {
    theirs: &'a Value,
    ours: &'a Value,
    lines: BTreeSet<String>,
}

impl Comparison<'_> {
    fn report(&mut self, place: &str, theirs: &str, ours: &str) {
        if theirs != ours {
            self.lines.insert(format!("{place}: theirs {theirs}, ours {ours}"));
        }
    }

    /// Compares the entries that both have, by key, and reports those that only one has.
    fn entries<T>(
        &mut self,
        prefix: &str,
        theirs: &BTreeMap<String, T>,
        ours: &BTreeMap<String, T>,
        compare: impl Fn(&mut Self, &str, &T, &T),
    ) {
        for (key, left) in theirs {
            match ours.get(key) {
                Some(right) => compare(self, &format!("{prefix}{key}"), left, right),
                None => drop(self.lines.insert(format!("{prefix}{key}: theirs only"))),
            }
        }
        for key in ours.keys().filter(|key| !theirs.contains_key(*key)) {
            self.lines.insert(format!("{prefix}{key}: ours only"));
        }
    }

    fn operation(&mut self, key: &str, theirs: &Value, ours: &Value) {
        let (left, right) = (&theirs["operationId"], &ours["operationId"]);
        self.report(&format!("{key} operationId"), &left.to_string(), &right.to_string());
        let id = left.as_str().unwrap_or(key);
        let prefix = format!("{id} ");
        self.entries(&prefix, &parameters(theirs), &parameters(ours), |compare, place, left, right| {
            compare.required_flag(place, left, right);
            compare.schema(place, &left["schema"], &right["schema"], 0);
        });
        self.entries(&prefix, &body(theirs), &body(ours), |compare, place, left, right| {
            compare.required_flag(place, left, right);
            compare.content(place, left, right);
        });
        let (left, right) = (entries(&theirs["responses"]), entries(&ours["responses"]));
        self.entries(&format!("{id} response."), &left, &right, Self::content);
    }

    fn required_flag(&mut self, place: &str, theirs: &Value, ours: &Value) {
        let word = |value: &Value| if value["required"] == json!(true) { "required" } else { "optional" };
        self.report(place, word(theirs), word(ours));
    }

    fn content(&mut self, place: &str, theirs: &Value, ours: &Value) {
        let (left, right) = (entries(&theirs["content"]), entries(&ours["content"]));
        self.entries(&format!("{place} "), &left, &right, |compare, typed, left, right| {
            // Almost everything is JSON, so it goes without saying.
            let place = typed.strip_suffix(" application/json").unwrap_or(typed);
            compare.schema(place, &left["schema"], &right["schema"], 0);
        });
    }

    /// Compares two schemas. Components of the same name are compared elsewhere, once.
    fn schema(&mut self, place: &str, theirs: &Value, ours: &Value, depth: usize) {
        let name = reference(theirs);
        if name.is_none() || name != reference(ours) {
            self.shape(place, theirs, ours, depth);
        }
    }

    fn shape(&mut self, place: &str, theirs: &Value, ours: &Value, depth: usize) {
        assert!(depth < MAX_DEPTH, "{place}: deeper than {MAX_DEPTH}");
        let (left, right) = (choices(theirs, self.theirs), choices(ours, self.ours));
        if let ([left], [right]) = (&left[..], &right[..]) {
            return self.choice(place, &left.keywords, &right.keywords, depth);
        }
        let (left, right) = (labelled(left, self.theirs), labelled(right, self.ours));
        self.entries(&format!("{place} "), &left, &right, |compare, place, left, right| {
            if left.component.is_none() || left.component != right.component {
                compare.choice(place, &left.keywords, &right.keywords, depth);
            }
        });
    }

    fn choice(&mut self, place: &str, theirs: &Object, ours: &Object, depth: usize) {
        if theirs.get("type") != ours.get("type") {
            return self.report(place, &describe(theirs), &describe(ours));
        }
        let (left_fields, right_fields) = (theirs.contains_key("properties"), ours.contains_key("properties"));
        for key in theirs.keys().chain(ours.keys().filter(|key| !theirs.contains_key(*key))) {
            let (left, right) = (theirs.get(key), ours.get(key));
            let below = format!("{place} {key}");
            match (key.as_str(), left, right) {
                ("required", ..) if left_fields && right_fields => self.required_fields(place, theirs, ours),
                ("required", ..) => {}
                ("properties", Some(left), Some(right)) => {
                    self.entries(
                        &format!("{place} ."),
                        &entries(left),
                        &entries(right),
                        |compare, place, left, right| {
                            compare.schema(place, left, right, depth + 1);
                        },
                    );
                }
                ("items" | "additionalProperties", Some(left), Some(right)) => {
                    self.schema(&below, left, right, depth + 1);
                }
                ("items" | "additionalProperties" | "properties", Some(_), None) => {
                    self.lines.insert(format!("{below}: theirs only"));
                }
                ("items" | "additionalProperties" | "properties", None, Some(_)) => {
                    self.lines.insert(format!("{below}: ours only"));
                }
                _ => {
                    let text = |value: Option<&Value>| value.map_or("none".to_owned(), Value::to_string);
                    self.report(&below, &text(left), &text(right));
                }
            }
        }
    }

    /// Compares which of the shared fields are required.
    fn required_fields(&mut self, place: &str, theirs: &Object, ours: &Object) {
        let has = |object: &Object, key: &str, name: &str| match object.get(key) {
            Some(Value::Array(list)) => list.iter().any(|item| item == name),
            Some(fields) => fields.get(name).is_some(),
            None => false,
        };
        for name in entries(&theirs["properties"]).keys().filter(|name| has(ours, "properties", name)) {
            let word = |object: &Object| if has(object, "required", name) { "required" } else { "optional" };
            self.report(&format!("{place} .{name}"), word(theirs), word(ours));
        }
    }
}
