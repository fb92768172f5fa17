//! Parses the answers of search services, which have different names for the same few fields.

use api::Json;

use crate::web::webfetch::html;

/// JSON pointers to lists of results, the most common first.
const LISTS: [&str; 11] = [
    "/results",
    "/web/results",
    "/organic",
    "/organic_results",
    "/items",
    "/data",
    "/data/results",
    "/data/web",
    "/webPages/value",
    "/hits",
    "",
];
/// Names of the fields of a result.
const TITLE: [&str; 3] = ["title", "name", "heading"];
const ADDRESS: [&str; 4] = ["url", "link", "href", "uri"];
const TEXT: [&str; 8] = ["content", "snippet", "description", "text", "summary", "body", "excerpt", "highlights"];
const DATE: [&str; 5] = ["publishedDate", "published_date", "date", "page_age", "age"];
/// The maximum length of a field, in characters.
const MAX_TEXT: usize = 1_500;

/// The results in an answer, at most `most`. An answer without a known list is returned as it is.
pub(super) fn read(answer: &str, is_html: bool, most: u64) -> String {
    if is_html {
        return html::to_markdown(answer);
    }
    let Ok(json) = serde_json::from_str::<Json>(answer) else { return answer.to_owned() };
    let lists = LISTS.iter().filter_map(|place| json.pointer(place)?.as_array());
    let mut empty = false;
    for list in lists {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let shown: Vec<String> = list.iter().filter_map(result).take(most).collect();
        if !shown.is_empty() {
            let numbered = shown.iter().enumerate().map(|(index, text)| format!("{}. {text}", index + 1));
            return numbered.collect::<Vec<_>>().join("\n\n");
        }
        empty |= list.is_empty();
    }
    if empty { String::new() } else { answer.to_owned() }
}

/// Formats a result: its title, URL, date and text, each on its own line.
fn result(value: &Json) -> Option<String> {
    let address = text(value, &ADDRESS)?;
    let title = text(value, &TITLE).unwrap_or_else(|| address.clone());
    let lines = [Some(title), Some(address), text(value, &DATE), text(value, &TEXT)];
    Some(lines.into_iter().flatten().collect::<Vec<_>>().join("\n   "))
}

/// The first of these fields that has text, on one line; services put markup and several pieces into it.
fn text(value: &Json, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| {
        let whole = match value.get(*name)? {
            Json::String(text) => text.clone(),
            Json::Array(pieces) => pieces.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" … "),
            _ => return None,
        };
        let line = whole.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut: String = line.chars().take(MAX_TEXT).collect();
        let more = if cut.len() < line.len() { "…" } else { "" };
        Some(format!("{cut}{more}")).filter(|text| !text.is_empty())
    })
}
