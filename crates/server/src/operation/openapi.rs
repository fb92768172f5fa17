//! `GET /doc`: the OpenAPI 3.1 document, made from the same list of operations as the router.

use api::{Json, JsonMap};
use schemars::{Schema, SchemaGenerator};
use serde_json::json;

use crate::operation::{Operation, Support};

/// Builds the document.
pub fn document(operations: &[Operation], version: &str) -> Json {
    let mut generator = api::schema::generator();
    let mut paths = JsonMap::new();
    for operation in operations {
        let item = paths.entry(operation.path).or_insert_with(|| json!({}));
        item[operation.method.as_str().to_lowercase()] = operation_object(operation, &mut generator);
    }
    let mut schemas: JsonMap = generator.take_definitions(true);
    for (name, schema) in error_schemas() {
        schemas.insert(name.into(), schema);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trefoil",
            "version": version,
            "description": "OpenCode's API, answered by Trefoil. Operation ids are OpenCode's.",
        },
        "paths": paths,
        "components": { "schemas": schemas },
    });
    api::schema::finish(&mut document);
    document
}

fn operation_object(operation: &Operation, generator: &mut SchemaGenerator) -> Json {
    let schemas = (operation.schema)(generator);
    let mut parameters = parameters("path", &schemas.path);
    if operation.scoped && operation.v2 {
        parameters.push(location_parameter());
    } else if operation.scoped {
        for name in ["directory", "workspace"] {
            parameters.push(json!({ "name": name, "in": "query", "required": false, "schema": { "type": "string" } }));
        }
    }
    parameters.extend(self::parameters("query", &schemas.query));
    let mut responses = JsonMap::new();
    let (status, content) = schemas.reply;
    let mut success = json!({ "description": "Done." });
    if let Some((kind, schema)) = content {
        success["content"] = json!({ kind: { "schema": schema } });
    }
    responses.insert(status.to_string(), success);
    for (status, names) in &operation.errors {
        let refs: Vec<Json> =
            names.iter().map(|name| json!({ "$ref": format!("#/components/schemas/{name}") })).collect();
        let schema = if let [only] = refs.as_slice() { only.clone() } else { json!({ "anyOf": refs }) };
        let refusal = json!({ "description": "Refused.", "content": { "application/json": { "schema": schema } } });
        responses.insert(status.to_string(), refusal);
    }
    responses.sort_keys();
    let mut object = json!({
        "operationId": operation.id,
        "tags": [operation.id.split('.').next().unwrap_or_default()],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    match operation.support {
        Support::Full => {}
        Support::Partial(missing) => object["description"] = format!("Partly: {missing}").into(),
        Support::NotOffered(why) => object["description"] = format!("Not offered: {why}").into(),
    }
    if let Some((schema, required)) = schemas.body {
        object["requestBody"] =
            json!({ "required": required, "content": { "application/json": { "schema": schema } } });
    }
    object
}

/// The parameter by which the newer API names a directory: `location[directory]=…`.
fn location_parameter() -> Json {
    let text = json!({ "type": "string" });
    let schema = json!({
        "type": "object", "properties": { "directory": text, "workspace": text }, "additionalProperties": false,
    });
    json!({
        "name": "location", "in": "query", "required": false, "style": "deepObject", "explode": true, "schema": schema,
    })
}

/// The properties of an object as parameters.
fn parameters(place: &str, schema: &Schema) -> Vec<Json> {
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else { return Vec::new() };
    let required = schema.get("required").and_then(Json::as_array);
    let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|item| item == name));
    properties
        .iter()
        .map(|(name, schema)| {
            let mut schema = schema.clone();
            let description = schema.as_object_mut().and_then(|schema| schema.shift_remove("description"));
            let mut parameter = json!({ "name": name, "in": place, "required": is_required(name), "schema": schema });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameter
        })
        .collect()
}

fn text() -> Json {
    json!({ "type": "string" })
}

fn constant(value: &str) -> Json {
    json!({ "type": "string", "enum": [value] })
}

/// The schema of `{"name", "data": {"message"}}`, with one more field in the data.
fn named(name: &str, extra: Option<(&str, Json)>) -> Json {
    let mut data = json!({ "message": text() });
    if let Some((key, schema)) = extra {
        data[key] = schema;
    }
    json!({
        "type": "object",
        "properties": {
            "name": constant(name),
            "data": { "type": "object", "properties": data, "required": ["message"] },
        },
        "required": ["name", "data"],
    })
}

/// The schema of `{"_tag", …}`.
fn tagged(tag: &str, fields: &[&str]) -> Json {
    let mut properties = json!({ "_tag": constant(tag) });
    for field in fields {
        properties[*field] = text();
    }
    let required: Vec<&str> = std::iter::once("_tag").chain(fields.iter().copied()).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// The bodies of errors: `{"name", "data"}` and `{"_tag", …, "message"}`.
fn error_schemas() -> Vec<(&'static str, Json)> {
    let mut invalid = tagged("InvalidRequestError", &["message"]);
    for field in ["kind", "field"] {
        invalid["properties"][field] = text();
    }
    let mut oauth_missing = named("ProviderAuthOauthMissing", Some(("providerID", text())));
    oauth_missing["properties"]["data"]["required"] = json!(["providerID"]);
    let kinds = json!({ "type": "string", "enum": ["Params", "Headers", "Query", "Body", "Payload"] });
    let mut worktree = named("WorktreeNotGitError", None);
    let steps = ["NotGit", "NameGenerationFailed", "CreateFailed", "StartCommandFailed", "RemoveFailed", "ResetFailed"];
    let names: Vec<String> = steps.iter().chain(&["ListFailed"]).map(|step| format!("Worktree{step}Error")).collect();
    worktree["properties"]["name"]["enum"] = names.into();
    let reasons = json!({ "type": "string", "enum": ["non-git", "not-clean"] });
    let mut patch = named("VcsApplyError", Some(("reason", reasons)));
    patch["properties"]["data"]["required"] = json!(["message", "reason"]);
    vec![
        ("BadRequestError", named("BadRequest", Some(("kind", kinds)))),
        ("NotFoundError", named("NotFoundError", None)),
        ("UnknownError", named("UnknownError", Some(("ref", text())))),
        ("SessionBusyError", tagged("SessionBusyError", &["sessionID", "message"])),
        ("PermissionNotFoundError", tagged("PermissionNotFoundError", &["requestID", "message"])),
        ("QuestionNotFoundError", tagged("QuestionNotFoundError", &["requestID", "message"])),
        ("InvalidRequestError", invalid),
        ("InvalidCursorError", tagged("InvalidCursorError", &["message"])),
        ("SessionNotFoundError", tagged("SessionNotFoundError", &["sessionID", "message"])),
        ("ProviderAuthError1", oauth_missing),
        ("ProviderNotFoundError", tagged("ProviderNotFoundError", &["providerID", "message"])),
        ("WorktreeError", worktree),
        ("VcsApplyError", patch),
        ("ProjectCopyError", named("ProjectCopyError", Some(("forceRequired", json!({ "type": "boolean" }))))),
        ("WorkspaceCreateError", named("WorkspaceCreateError", None)),
        ("WorkspaceWarpError", named("WorkspaceWarpError", None)),
        ("MoveSessionError", named("MoveSessionError", None)),
        ("ConflictError", tagged("ConflictError", &["message"])),
        ("ProjectNotFoundError", tagged("ProjectNotFoundError", &["projectID", "message"])),
        ("McpServerNotFoundError", tagged("McpServerNotFoundError", &["name", "message"])),
        ("PtyNotFoundError", tagged("PtyNotFoundError", &["ptyID", "message"])),
        ("PtyForbiddenError", tagged("PtyForbiddenError", &["message"])),
        (
            "UpgradeError",
            json!({
                "type": "object",
                "properties": { "success": { "type": "boolean", "enum": [false] }, "error": text() },
                "required": ["success", "error"],
            }),
        ),
        (
            "McpUnsupportedOAuthError",
            json!({ "type": "object", "properties": { "error": text() }, "required": ["error"] }),
        ),
        (
            "effect_HttpApiError_Forbidden",
            json!({ "type": "object", "properties": { "_tag": constant("Forbidden") }, "required": ["_tag"] }),
        ),
        ("UnauthorizedError", tagged("UnauthorizedError", &["message"])),
    ]
}
