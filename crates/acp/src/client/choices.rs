//! What can be selected in a session, in the shapes that agents of all versions use.

use serde_json::{Value, json};

use super::ClientError;

/// A model, a mode, or the value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The agent's id for it.
    pub id: String,
    /// The name shown to the user.
    pub name: String,
    /// Whether it is selected.
    pub current: bool,
}

/// The models, modes and options of a session.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    options: Vec<Value>,
    modes: Value,
    models: Value,
}

impl Choices {
    /// Reads the response to `session/new`, `load` or `resume`.
    pub(super) fn of(answer: &Value) -> Self {
        let mut this = Self { options: Vec::new(), modes: answer["modes"].clone(), models: answer["models"].clone() };
        this.update(answer);
        this
    }

    /// Updates the options from a response or an update.
    pub fn update(&mut self, answer: &Value) {
        if let Some(options) = answer["configOptions"].as_array() {
            self.options.clone_from(options);
        }
    }

    /// Everything as the agent sent it.
    pub fn raw(&self) -> Value {
        json!({"modes": self.modes, "models": self.models, "configOptions": self.options})
    }

    /// The options: the name of each, and its choices.
    pub fn options(&self) -> impl Iterator<Item = (String, Vec<Choice>)> + '_ {
        self.options.iter().map(|option| {
            let name = option["name"].as_str().or_else(|| option["id"].as_str()).unwrap_or_default();
            (name.to_owned(), of_option(option))
        })
    }

    fn option(&self, category: &str) -> Option<&Value> {
        self.options.iter().find(|option| option["category"] == category && option["id"].is_string())
    }

    fn option_id(&self, category: &str) -> Option<String> {
        Some(self.option(category)?["id"].as_str()?.to_owned())
    }

    pub(super) fn model_option(&self) -> Option<String> {
        self.option_id("model")
    }

    pub(super) fn mode_option(&self) -> Option<String> {
        self.option_id("mode")
    }

    /// The models: from the config option, or from the list of older agents.
    pub fn models(&self) -> Vec<Choice> {
        match self.option("model") {
            Some(option) => of_option(option),
            None => of_list(&self.models["availableModels"], "modelId", &self.models["currentModelId"]),
        }
    }

    /// The modes: from the config option, or from their own list.
    pub fn modes(&self) -> Vec<Choice> {
        match self.option("mode") {
            Some(option) => of_option(option),
            None => of_list(&self.modes["availableModes"], "id", &self.modes["currentModeId"]),
        }
    }

    pub(super) fn model(&self, wanted: &str) -> Result<Choice, ClientError> {
        find("model", wanted, self.models())
    }

    pub(super) fn mode(&self, wanted: &str) -> Result<Choice, ClientError> {
        find("mode", wanted, self.modes())
    }
}

fn find(what: &'static str, wanted: &str, choices: Vec<Choice>) -> Result<Choice, ClientError> {
    let by_id = choices.iter().position(|choice| choice.id == wanted);
    let by_name = || choices.iter().position(|choice| choice.name.eq_ignore_ascii_case(wanted));
    match by_id.or_else(by_name).and_then(|index| choices.get(index)) {
        Some(choice) => Ok(choice.clone()),
        None => {
            let known = choices.into_iter().map(|choice| choice.id).collect();
            Err(ClientError::Unknown { what, wanted: wanted.to_owned(), known })
        }
    }
}

/// The choices of an option, grouped or not; on and off for a boolean.
fn of_option(option: &Value) -> Vec<Choice> {
    let current = &option["currentValue"];
    if let Some(on) = current.as_bool() {
        let side = |name: &str, is: bool| Choice { id: name.to_owned(), name: name.to_owned(), current: is };
        return vec![side("on", on), side("off", !on)];
    }
    let mut found = Vec::new();
    for entry in option["options"].as_array().into_iter().flatten() {
        match entry["options"].as_array() {
            Some(group) => found.extend(group.iter().filter_map(|entry| choice(entry, "value", current))),
            None => found.extend(choice(entry, "value", current)),
        }
    }
    found
}

fn of_list(list: &Value, id: &str, current: &Value) -> Vec<Choice> {
    list.as_array().into_iter().flatten().filter_map(|entry| choice(entry, id, current)).collect()
}

fn choice(entry: &Value, id: &str, current: &Value) -> Option<Choice> {
    let value = entry[id].as_str()?;
    let name = entry["name"].as_str().unwrap_or(value);
    Some(Choice { id: value.to_owned(), name: name.to_owned(), current: current == value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_in_groups_and_without() {
        let choices = Choices::of(&json!({"configOptions": [
            {"id": "m", "category": "model", "type": "select", "currentValue": "a/1", "options": [
                {"group": "a", "name": "A", "options": [{"value": "a/1", "name": "One"}, {"value": "a/2", "name": "Two"}]},
                {"value": "b/3", "name": "Three"},
            ]},
            {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": true},
        ]}));
        let ids: Vec<_> = choices.models().into_iter().map(|choice| (choice.id, choice.current)).collect();
        assert_eq!(ids, [("a/1".into(), true), ("a/2".into(), false), ("b/3".into(), false)]);
        assert_eq!(choices.model("two").unwrap().id, "a/2");
        assert_eq!(choices.model_option().as_deref(), Some("m"));
        let Err(ClientError::Unknown { known, .. }) = choices.model("four") else { panic!("found") };
        assert_eq!(known.len(), 3);
        assert!(choices.modes().is_empty());
        assert_eq!(choices.options().nth(1).unwrap().1[0].id, "on");
    }

    #[test]
    fn the_lists_of_older_agents() {
        let choices = Choices::of(&json!({
            "modes": {"currentModeId": "plan", "availableModes": [{"id": "build", "name": "Build"}, {"id": "plan"}]},
            "models": {"currentModelId": "x", "availableModels": [{"modelId": "x", "name": "X"}, {"odd": 1}]},
        }));
        assert_eq!(choices.modes().iter().filter(|mode| mode.current).count(), 1);
        assert_eq!((choices.mode("BUILD").unwrap().id.as_str(), choices.mode_option()), ("build", None));
        assert_eq!(choices.models().len(), 1);
    }
}
