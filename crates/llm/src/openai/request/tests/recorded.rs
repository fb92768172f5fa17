//! Our requests beside those that OpenCode sends for the same conversation, field by field. Prose is not compared.

use std::collections::BTreeSet;

use super::*;

const DIFFERENCES: &str = include_str!("../recorded/differences.txt");

fn data_url(part: &Json) -> String {
    let url = &part["image_url"];
    url.as_str().or_else(|| url["url"].as_str()).unwrap().to_owned()
}

fn content(value: &Json) -> Vec<Content> {
    let piece = |part: &Json| match part["type"].as_str().unwrap() {
        "text" => Content::Text(part["text"].as_str().unwrap().to_owned()),
        _ => Content::Image { mime: "image/png".into(), filename: None, data_url: data_url(part) },
    };
    match value {
        Json::String(text) => vec![Content::Text(text.clone())],
        parts => parts.as_array().unwrap().iter().map(piece).collect(),
    }
}

/// The prompt of which a recorded body was made.
fn prompt_of(body: &Json) -> Prompt {
    let mut prompt = Prompt::default();
    let mut after_results = false;
    for message in body["messages"].as_array().unwrap() {
        let attached = std::mem::take(&mut after_results);
        match message["role"].as_str().unwrap() {
            "system" => prompt.system.extend(content(&message["content"]).into_iter().map(|piece| match piece {
                Content::Text(text) => text,
                other => panic!("{other:?}"),
            })),
            // Pictures of results follow them as if from the user.
            "user" if attached => {
                let Some(PromptMessage::Tool(last)) = prompt.messages.pop().map(|message| (*message).clone()) else {
                    panic!("no result")
                };
                let mut attachments = content(&message["content"]);
                attachments.remove(0);
                prompt.messages.push(PromptMessage::Tool(ToolResult { attachments, ..last }).into());
            }
            "user" => prompt.messages.push(PromptMessage::User(content(&message["content"])).into()),
            "assistant" => {
                let mut pieces = vec![AssistantContent::text(message["content"].as_str().unwrap())];
                pieces.extend(message["tool_calls"].as_array().unwrap().iter().map(|call| {
                    AssistantContent::ToolCall {
                        id: call["id"].as_str().unwrap().to_owned(),
                        name: call["function"]["name"].as_str().unwrap().to_owned(),
                        input: serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap(),
                        metadata: JsonMap::new(),
                    }
                }));
                prompt.messages.push(PromptMessage::Assistant(pieces).into());
            }
            _ => {
                after_results = true;
                prompt.messages.push(
                    result(message["tool_call_id"].as_str().unwrap(), message["content"].as_str().unwrap()).into(),
                );
            }
        }
    }
    prompt.tools = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["function"])
        .map(|tool| ToolSpec {
            name: tool["name"].as_str().unwrap().to_owned(),
            description: tool["description"].as_str().unwrap().into(),
            schema: tool["parameters"].clone().into(),
        })
        .collect();
    prompt
}

/// Where two values differ; indices are left out of the paths.
fn differences(path: &str, ours: &Json, theirs: &Json, found: &mut BTreeSet<String>) {
    match (ours, theirs) {
        (Json::Object(a), Json::Object(b)) => {
            for name in a.keys().chain(b.keys()) {
                let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differences(&at, a, b, found),
                    _ => drop(found.insert(at)),
                }
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                differences(&format!("{path}[*]"), a, b, found);
            }
        }
        // Words before the pictures of a result are ours.
        (Json::String(a), Json::String(_)) if path.ends_with("].text") && a.starts_with("Attached to") => {}
        (a, b) if a == b => {}
        _ => drop(found.insert(path.to_owned())),
    }
}

#[test]
fn requests_are_those_of_opencode() {
    let mut found = BTreeSet::new();
    for (vendor, text, options) in [
        ("openrouter", include_str!("../recorded/openrouter.json"), json!({"reasoning": {"effort": "high"}})),
        ("mistral", include_str!("../recorded/mistral.json"), json!({})),
    ] {
        let recording: Json = serde_json::from_str(text).unwrap();
        let (provider, model) = recording["model"].as_str().unwrap().split_once('/').unwrap();
        let dialect = Arc::new(ChatDialect::of(provider, "", model, &json!(false)));
        for theirs in recording["requests"].as_array().unwrap() {
            let mut prompt = prompt_of(theirs);
            prompt.settings = Settings {
                max_output: Some(32_000),
                session: Some("ses_X".into()),
                options: metadata(options.clone()),
                ..Settings::default()
            };
            let mut theirs = theirs.clone();
            // A model is told which tool to choose, or that it may: the default.
            assert_eq!(theirs.as_object_mut().unwrap().remove("tool_choice"), Some(json!("auto")));
            let mut here = BTreeSet::new();
            differences("", &json!(request(&prompt, model, &dialect)), &theirs, &mut here);
            found.extend(here.into_iter().map(|path| format!("{vendor} {path}")));
        }
    }
    let lines = DIFFERENCES.lines().filter(|line| !line.starts_with('#'));
    let accepted: BTreeSet<String> = lines
        .map(|line| {
            let (place, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
            assert!(!reason.trim().is_empty(), "no reason: {line}");
            place.to_owned()
        })
        .collect();
    assert_eq!(found, accepted, "the left side is what differs, the right side what differences.txt says");
}
