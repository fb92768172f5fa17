//! The OpenAPI document: all paths of both lines, and the contracts of the cards.

use api::{Json, JsonMap};
use serde_json::json;

use super::{CardInput, Detail, extensions, scheme_name};
use crate::wire::methods::{self, RestEndpoint, rest_endpoints};
use crate::wire::{Extension, MAX_PAGE, Operation};
use crate::{Line, Scheme};

const SCHEMAS: &str = include_str!("schemas.json");
const JSON: &str = "application/json";
const A2A_JSON: &str = "application/a2a+json";
const EVENT_STREAM: &str = "text/event-stream";

/// The document.
pub(super) fn document(input: &CardInput) -> Json {
    let mut paths = JsonMap::new();
    paths.insert("/".to_owned(), json!({ "post": json_rpc(input) }));
    for (path, operation) in documents(input) {
        paths.insert(path.to_owned(), json!({ "get": operation }));
    }
    for line in input.lines() {
        for endpoint in rest_endpoints(line) {
            add(&mut paths, &endpoint, line, None);
            if line == Line::V10 {
                add(&mut paths, &endpoint, line, Some("tenant"));
            }
        }
    }
    let mut components = json!({ "schemas": schemas(), "parameters": parameters() });
    if !input.schemes.is_empty() {
        components["securitySchemes"] = input.schemes.iter().map(|scheme| security_scheme(*scheme)).collect();
    }
    let security: Vec<Json> = input.schemes.iter().map(|scheme| json!({ scheme_name(*scheme): [] })).collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": input.name, "version": input.version, "description": input.description },
        "servers": [{ "url": input.url }],
        "security": security,
        "paths": paths,
        "components": components,
    })
}

/// The schemas of bodies. The file is part of the program, and a test reads it.
fn schemas() -> Json {
    serde_json::from_str(SCHEMAS).unwrap_or_default()
}

fn security_scheme(scheme: Scheme) -> (String, Json) {
    let name = match scheme {
        Scheme::Bearer => "bearer",
        Scheme::Basic => "basic",
    };
    (scheme_name(scheme).to_owned(), json!({ "type": "http", "scheme": name }))
}

fn parameters() -> Json {
    let header = |name: &str, description: &str| json!({ "name": name, "in": "header", "schema": { "type": "string" }, "description": description });
    json!({
        "version": header("A2A-Version", "The version of the protocol, for example 1.0."),
        "extensions": header("A2A-Extensions", "The extensions to use, by their identifiers, with commas between them."),
        "last_event": header("Last-Event-ID", "The last event that the client has; what follows it is sent."),
    })
}

fn reference(kind: &str, name: &str) -> Json {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

fn content(media: &str, schema: &Json) -> Json {
    json!({ media: { "schema": schema } })
}

/// Documents beside the protocol: the path of each, and what is there.
fn documents(input: &CardInput) -> Vec<(&'static str, Json)> {
    let operation = |id: &str, summary: &str, content: Json| {
        json!({
            "operationId": id,
            "summary": summary,
            "responses": { "200": { "description": "The document.", "content": content } },
        })
    };
    let public = |mut operation: Json| {
        operation["security"] = json!([]);
        operation
    };
    let card = || content(JSON, &reference("schemas", "AgentCard"));
    let mut documents = vec![
        ("/.well-known/agent-card.json", public(operation("publicCard", "Returns the public card.", card()))),
        (
            "/.well-known/agent.json",
            public(operation("publicCardOlder", "Returns the public card, at its older path.", card())),
        ),
        ("/agent/authenticatedExtendedCard", operation("extendedCard", "Returns the extended card.", card())),
        (
            "/health",
            operation(
                "health",
                "Returns the profile of the deployment.",
                content(JSON, &reference("schemas", "Health")),
            ),
        ),
        ("/openapi.json", operation("openapi", "Returns this document.", content(JSON, &json!({ "type": "object" })))),
    ];
    if input.metrics {
        let text = content("text/plain", &json!({ "type": "string" }));
        documents.push((
            "/metrics",
            operation("metrics", "Returns the metrics of the service, as Prometheus reads them.", text),
        ));
    }
    documents
}

/// The endpoint of JSON-RPC, with the contracts of all extensions.
fn json_rpc(input: &CardInput) -> Json {
    let mut names: Vec<&str> = Vec::new();
    for name in input.lines().flat_map(|line| methods::supported(line, &input.wire)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut request = reference("schemas", "JsonRpcRequest");
    request["properties"] = json!({ "method": { "enum": names } });
    let response = reference("schemas", "JsonRpcResponse");
    let mut operation = json!({
        "operationId": "jsonRpc",
        "summary": "Calls a method of JSON-RPC 2.0, of either line of the protocol or of an extension.",
        "parameters": [reference("parameters", "version"), reference("parameters", "extensions")],
        "requestBody": {
            "required": true,
            "content": { JSON: { "schema": request, "examples": examples(input) } },
        },
        "responses": {
            "200": {
                "description": "The result or the error; of methods that stream, events with a response each.",
                "content": { JSON: { "schema": response }, EVENT_STREAM: { "schema": response } },
            },
            "204": { "description": "The request was a notification." },
        },
    });
    for line in input.lines() {
        // The default line has the name that clients of one line know.
        let name = match line == input.wire.default_line {
            true => "x-a2a-extension-contracts".to_owned(),
            false => format!("x-a2a-extension-contracts-{line}"),
        };
        operation[name] = contracts(input, line);
    }
    operation
}

/// The contracts of the extended card, under names.
fn contracts(input: &CardInput, line: Line) -> Json {
    let contract = |extension: Extension| {
        let mut contract = json!({ "extension_uri": super::identifier(extension, line) });
        if let (Some(contract), Json::Object(params)) =
            (contract.as_object_mut(), extensions::params(extension, input, line, Detail::Extended))
        {
            contract.extend(params);
        }
        (name(extension), contract)
    };
    Extension::ALL.into_iter().map(contract).collect()
}

/// The name of an extension: what its identifier says, in snake case.
fn name(extension: Extension) -> String {
    extension.urn().rsplit(':').nth(1).unwrap_or_default().replace('-', "_")
}

fn examples(input: &CardInput) -> Json {
    let text = "Which parts of this repository handle errors of the network?";
    let mut examples = JsonMap::new();
    for line in input.lines() {
        let message = match line {
            Line::V03 => {
                json!({ "messageId": "message-1", "role": "user", "parts": [{ "kind": "text", "text": text }] })
            }
            Line::V10 => json!({ "messageId": "message-1", "role": "ROLE_USER", "parts": [{ "text": text }] }),
        };
        for operation in [Operation::Send, Operation::Stream] {
            let method = operation.method(line).unwrap_or_default();
            let value = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "message": message } });
            examples.insert(method.to_owned(), json!({ "summary": format!("{method}, line {line}"), "value": value }));
        }
    }
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "opencode.sessions.list", "params": { "limit": 20 } });
    examples
        .insert("opencode.sessions.list".to_owned(), json!({ "summary": "A method of an extension", "value": list }));
    Json::Object(examples)
}

/// Adds a path of REST, below a tenant if that is named.
fn add(paths: &mut JsonMap, endpoint: &RestEndpoint, line: Line, tenant: Option<&str>) {
    let path = match tenant {
        Some(tenant) => format!("/{{{tenant}}}{}", endpoint.path),
        None => endpoint.path.clone(),
    };
    let method = endpoint.method.to_ascii_lowercase();
    let operation = rest(endpoint, line, tenant);
    let place = paths.entry(path).or_insert_with(|| json!({}));
    place[method] = operation;
}

fn rest(endpoint: &RestEndpoint, line: Line, tenant: Option<&str>) -> Json {
    let prefix = match line {
        Line::V03 => "V03",
        Line::V10 => "V10",
    };
    let schema = |name: &str| reference("schemas", &format!("{prefix}{name}"));
    let (reply, media) = match endpoint.operation {
        Operation::Send => (schema("SendMessageResponse"), A2A_JSON),
        Operation::Stream | Operation::Subscribe => (schema("StreamResponse"), EVENT_STREAM),
        Operation::Get | Operation::Cancel => (schema("Task"), A2A_JSON),
        Operation::List => (schema("TaskPage"), A2A_JSON),
        Operation::PutPush | Operation::GetPush => (schema("PushConfig"), A2A_JSON),
        Operation::ListPush => (schema("PushConfigPage"), A2A_JSON),
        Operation::DeletePush => (json!({ "type": "object" }), A2A_JSON),
        Operation::ExtendedCard => (reference("schemas", "AgentCard"), A2A_JSON),
    };
    let media = if line == Line::V03 && media == A2A_JSON { JSON } else { media };
    let body = match endpoint.operation {
        Operation::Send | Operation::Stream => Some(schema("SendMessageRequest")),
        Operation::PutPush => Some(schema("PushConfig")),
        _ => None,
    };
    let mut operation = json!({
        "operationId": operation_id(endpoint, line, tenant),
        "summary": summary(endpoint.operation),
        "tags": [format!("A2A {line}")],
        "parameters": rest_parameters(endpoint, line, tenant),
        "responses": {
            "200": { "description": "It worked.", "content": content(media, &reply) },
            "4XX": { "description": "The request is refused.", "content": content(JSON, &schema("Error")) },
            "5XX": { "description": "The service failed.", "content": content(JSON, &schema("Error")) },
        },
    });
    if let Some(body) = body {
        let mut body = content(JSON, &body);
        if line == Line::V10 {
            body[A2A_JSON] = body[JSON].clone();
        }
        operation["requestBody"] = json!({ "required": true, "content": body });
    }
    operation
}

fn operation_id(endpoint: &RestEndpoint, line: Line, tenant: Option<&str>) -> String {
    let name = endpoint.operation.method(Line::V10).unwrap_or_default();
    // Subscribing is there by two methods.
    let method = if endpoint.operation == Operation::Subscribe { endpoint.method } else { "" };
    let line = if line == Line::V03 { "_0_3" } else { "" };
    let tenant = if tenant.is_some() { "_tenant" } else { "" };
    format!("{name}{method}{line}{tenant}")
}

fn summary(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "Sends a message to the agent.",
        Operation::Stream => "Sends a message, and streams what happens.",
        Operation::Get => "Returns a task.",
        Operation::List => "Lists tasks, the last changed first.",
        Operation::Cancel => "Cancels a task.",
        Operation::Subscribe => "Streams what happens to a task.",
        Operation::PutPush => "Creates or replaces a push configuration of a task.",
        Operation::GetPush => "Returns a push configuration of a task.",
        Operation::ListPush => "Lists the push configurations of a task.",
        Operation::DeletePush => "Deletes a push configuration of a task.",
        Operation::ExtendedCard => "Returns the extended card.",
    }
}

fn rest_parameters(endpoint: &RestEndpoint, line: Line, tenant: Option<&str>) -> Vec<Json> {
    let text = || json!({ "type": "string" });
    let in_path = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": text() });
    let in_query = |name: &str, schema: Json| json!({ "name": name, "in": "query", "schema": schema });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let page = || {
        [
            in_query("pageSize", json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE })),
            in_query("pageToken", text()),
        ]
    };
    let mut parameters: Vec<Json> = tenant.into_iter().map(in_path).collect();
    let own = ["id", "push_id"].into_iter().filter(|name| endpoint.path.contains(&format!("{{{name}}}")));
    parameters.extend(own.map(in_path));
    match endpoint.operation {
        Operation::Get => parameters.push(in_query("historyLength", count())),
        Operation::List => {
            let since = if line == Line::V03 { "lastUpdatedAfter" } else { "statusTimestampAfter" };
            parameters.extend([in_query("contextId", text()), in_query("status", text())]);
            parameters.extend(page());
            parameters.extend([
                in_query("historyLength", count()),
                in_query(since, json!({ "type": "string", "format": "date-time" })),
                in_query("includeArtifacts", json!({ "type": "boolean" })),
            ]);
        }
        Operation::ListPush => parameters.extend(page()),
        Operation::Subscribe => {
            parameters.extend([reference("parameters", "last_event"), in_query("after", count())]);
        }
        _ => {}
    }
    parameters.extend([reference("parameters", "version"), reference("parameters", "extensions")]);
    parameters
}
