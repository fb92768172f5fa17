//! Compares our OpenAPI document with OpenCode's. `differences.txt` says why they differ.

mod compare;
mod normalize;

use crate::accepted_differences::AcceptedDifferences;
use compare::differences;
use serde_json::{Value, json};

#[test]
fn only_accepted_differences() {
    let theirs: Value = serde_json::from_str(include_str!("../../fixtures/openapi.json")).unwrap();
    let accepted = AcceptedDifferences::parse(include_str!("differences.txt"));
    let (unknown, stale) = accepted.check(&differences(&theirs, &trefoil_server::openapi()));
    assert!(
        unknown.is_empty() && stale.is_empty(),
        "{} new differences. Fix them, or add them to differences.txt with a reason:\n{}\n\n\
         {} accepted lines match no difference any more. Remove them from differences.txt:\n{}",
        unknown.len(),
        unknown.join("\n"),
        stale.len(),
        stale.join("\n"),
    );
}

/// A document with one operation that returns that schema.
fn document_returning(schema: Value) -> Value {
    let operation = json!({
        "operationId": "thing.get",
        "responses": { "200": { "content": { "application/json": { "schema": schema } } } },
    });
    json!({
        "paths": { "/thing": { "get": operation } },
        "components": { "schemas": {
            "Id": { "type": "string", "pattern": "^id" },
            "Tree": { "type": "object", "properties": { "left": { "$ref": "#/components/schemas/Tree" } } },
        } },
    })
}

fn schema_differences(theirs: Value, ours: Value) -> Vec<String> {
    differences(&document_returning(theirs), &document_returning(ours))
}

#[test]
fn equivalent_schemas_do_not_differ() {
    for (theirs, ours) in [
        (json!({ "enum": ["a"], "type": "string" }), json!({ "const": "a", "type": "string", "description": "x" })),
        (
            json!({ "enum": ["b", "a"], "type": "string" }),
            json!({ "oneOf": [{ "const": "a", "type": "string" }, { "const": "b", "type": "string" }] }),
        ),
        (json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }), json!({ "type": ["string", "null"] })),
        (json!({ "$ref": "#/components/schemas/Id" }), json!({ "type": "string", "pattern": "^id" })),
        (
            json!({ "type": "integer", "maximum": 9_007_199_254_740_991_i64 }),
            json!({ "type": "integer", "format": "int64" }),
        ),
        (json!({ "type": "object" }), json!({ "type": "object", "additionalProperties": true })),
        (
            json!({ "type": "object", "properties": { "left": { "$ref": "#/components/schemas/Tree" } } }),
            json!({ "$ref": "#/components/schemas/Tree" }),
        ),
        (
            json!({ "type": "object", "properties": { "a": {}, "b": { "const": "x" } }, "required": ["a", "b"] }),
            json!({
                "type": "object",
                "properties": { "a": {} },
                "required": ["a"],
                "oneOf": [{ "type": "object", "properties": { "b": { "const": "x" } }, "required": ["b"] }],
            }),
        ),
        (json!({}), json!(true)),
    ] {
        assert_eq!(schema_differences(theirs.clone(), ours.clone()), Vec::<String>::new(), "{theirs} and {ours}");
    }
}

#[test]
fn every_difference_is_one_line() {
    let object =
        |fields: Value, required: Value| json!({ "type": "object", "properties": fields, "required": required });
    let text = || json!({ "type": "string" });
    for (theirs, ours, line) in [
        (text(), json!({ "type": "number" }), "thing.get response.200: theirs string, ours number"),
        (text(), json!({}), "thing.get response.200: theirs string, ours any"),
        (
            json!({ "type": "integer", "minimum": 0 }),
            json!({ "type": "integer" }),
            "thing.get response.200 minimum: theirs 0, ours none",
        ),
        (
            object(json!({ "a": text() }), json!(["a"])),
            object(json!({ "a": text() }), json!([])),
            "thing.get response.200 .a: theirs required, ours optional",
        ),
        (
            object(json!({ "a": text(), "b": text() }), json!(["a"])),
            object(json!({ "b": text() }), json!([])),
            "thing.get response.200 .a: theirs only",
        ),
        (
            json!({ "type": "array", "items": object(json!({ "a": text() }), json!([])) }),
            json!({ "type": "array", "items": object(json!({ "a": text(), "b": text() }), json!([])) }),
            "thing.get response.200 items .b: ours only",
        ),
        (
            json!({ "anyOf": [object(json!({ "type": { "const": "x" } }), json!([])), object(json!({ "type": { "const": "y" } }), json!([]))] }),
            object(json!({ "type": { "const": "y" } }), json!([])),
            "thing.get response.200 [x]: theirs only",
        ),
        (
            json!({ "type": "string", "enum": ["a"] }),
            json!({ "type": "string", "enum": ["a", "b"] }),
            r#"thing.get response.200 enum: theirs ["a"], ours ["a","b"]"#,
        ),
    ] {
        assert_eq!(schema_differences(theirs, ours), [line]);
    }
}

#[test]
fn operations_parameters_and_components_are_compared() {
    let mut ours = document_returning(json!({ "$ref": "#/components/schemas/Id" }));
    let theirs = ours.clone();
    ours["components"]["schemas"]["Id"]["pattern"] = "^di".into();
    ours["paths"]["/thing"]["get"]["operationId"] = "thing.read".into();
    ours["paths"]["/thing"]["get"]["parameters"] = json!([{ "in": "query", "name": "limit", "schema": {} }]);
    ours["paths"]["/thing"]["get"]["requestBody"] = json!({});
    ours["paths"]["/other"]["put"] = json!({});
    assert_eq!(
        differences(&theirs, &ours),
        [
            r#"GET /thing operationId: theirs "thing.get", ours "thing.read""#,
            "PUT /other: ours only",
            r#"component Id pattern: theirs "^id", ours "^di""#,
            "thing.get body: ours only",
            "thing.get query.limit: ours only",
        ]
    );
}

#[test]
fn unaccepted_differences_and_stale_lines_are_reported() {
    let accepted =
        AcceptedDifferences::parse("# Never sent.\ncomponent Event.*: theirs only\n\n# Gone.\nold: ours only\n");
    let lines = ["component Event.x: theirs only".to_owned(), "new: ours only".to_owned()];
    assert_eq!(accepted.check(&lines), (vec!["new: ours only".into()], vec!["old: ours only".into()]));
}

#[test]
#[should_panic(expected = "there is no reason above")]
fn a_line_without_a_reason_is_refused() {
    AcceptedDifferences::parse("# Reason.\na: ours only\n\nb: ours only\n");
}
