//! Requests in plain words, for clients that know no extension.

use api::{Json, strip_control};

use super::ALWAYS;
use crate::records::{Interrupt, InterruptKind};

/// How much of a text of the agent is shown, in characters. What is longer is in the metadata.
const MAX_SHOWN: usize = 500;
/// How many patterns, questions or options are shown.
const MAX_ITEMS: usize = 20;

/// What the status message says about a request: what is asked, and which answers count.
pub(in crate::service) fn asked_text(interrupt: &Interrupt) -> String {
    match interrupt.kind {
        InterruptKind::Permission => permission(&interrupt.details),
        InterruptKind::Question => questions(&questions_of(&interrupt.details)),
    }
}

fn permission(details: &Json) -> String {
    let permission = text(details, "permission");
    let (wanted, always) = (list(details, "patterns"), list(details, ALWAYS));
    let wish = match (permission, wanted.is_empty()) {
        ("bash", false) => format!("run {wanted}"),
        ("edit" | "write" | "patch", false) => format!("change {wanted}"),
        ("read", false) => format!("read {wanted}"),
        ("webfetch", false) => format!("fetch {wanted}"),
        ("external_directory", false) => format!("use files outside of its directory: {wanted}"),
        (permission, false) => format!("use {} for {wanted}", quoted(permission)),
        (permission, true) => format!("use {}", quoted(permission)),
    };
    let always = match always.is_empty() {
        true => "`always` to allow it from now on".to_owned(),
        false => format!("`always` to allow {always} from now on"),
    };
    format!("The agent asks to {wish}. Answer `once` to allow it this time, {always}, or `reject`.")
}

fn questions(questions: &[Question<'_>]) -> String {
    match questions {
        [] => "The agent asks something. Answer in your own words.".to_owned(),
        [question] => format!("The agent asks: {}\n{}", question.with_options(), question.how_to_answer()),
        questions => {
            let mut text = format!("The agent asks {} questions.", questions.len());
            for (index, question) in questions.iter().take(MAX_ITEMS).enumerate() {
                let number = index + 1;
                text.push_str(&format!("\n{number}. {}\n{}", question.with_options(), question.how_to_answer()));
            }
            text.push_str("\nAnswer all of them in one message, with one line for each, in this order.");
            text
        }
    }
}

/// A question as it is stored.
pub(super) struct Question<'a> {
    text: &'a str,
    /// Labels and descriptions.
    pub(super) options: Vec<(&'a str, &'a str)>,
    /// Whether several options can be chosen.
    pub(super) multiple: bool,
    /// Whether an answer in other words counts.
    pub(super) custom: bool,
}

/// The questions of a request.
pub(super) fn questions_of(details: &Json) -> Vec<Question<'_>> {
    items(details, "questions").iter().map(Question::of).collect()
}

impl<'a> Question<'a> {
    fn of(question: &'a Json) -> Self {
        let flag = |key: &str| question.get(key).and_then(Json::as_bool);
        let options = items(question, "options").iter();
        let options: Vec<_> = options.map(|option| (text(option, "label"), text(option, "description"))).collect();
        Self {
            text: text(question, "question"),
            multiple: flag("multiple").unwrap_or(false),
            custom: flag("custom").unwrap_or(true) || options.is_empty(),
            options,
        }
    }

    fn with_options(&self) -> String {
        let mut text = plain(self.text);
        for (label, description) in self.options.iter().take(MAX_ITEMS) {
            text.push_str(&format!("\n- {}", plain(label)));
            if !description.trim().is_empty() {
                text.push_str(&format!(": {}", plain(description)));
            }
        }
        text
    }

    /// Which answers count.
    pub(super) fn how_to_answer(&self) -> &'static str {
        match (self.options.is_empty(), self.multiple, self.custom) {
            (true, ..) => "Answer in your own words.",
            (false, false, true) => "Answer with one of the options, or in your own words.",
            (false, false, false) => "Answer with one of the options.",
            (false, true, true) => "Answer with options, separated by commas, or in your own words.",
            (false, true, false) => "Answer with options, separated by commas.",
        }
    }

    /// The labels of the options, on one line.
    pub(super) fn labels(&self) -> String {
        let labels: Vec<String> = self.options.iter().take(MAX_ITEMS).map(|(label, _)| plain(label)).collect();
        labels.join(", ")
    }
}

fn items<'a>(of: &'a Json, key: &str) -> &'a [Json] {
    of.get(key).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(of: &'a Json, key: &str) -> &'a str {
    of.get(key).and_then(Json::as_str).unwrap_or_default()
}

fn list(details: &Json, key: &str) -> String {
    let items = items(details, key);
    let mut shown: Vec<String> = items.iter().filter_map(Json::as_str).take(MAX_ITEMS).map(quoted).collect();
    if items.len() > MAX_ITEMS {
        shown.push(format!("and {} more", items.len() - MAX_ITEMS));
    }
    shown.join(", ")
}

fn quoted(text: &str) -> String {
    format!("`{}`", plain(text).replace('`', "'"))
}

/// A text of the agent on one line, without control characters, and not too long.
fn plain(text: &str) -> String {
    let line = strip_control(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
