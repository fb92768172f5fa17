//! What a session can choose from, and what it has selected: mode (the agent), model, effort, and whether to ask.
//! Offered as config options and in the forms of older clients.

use agent_client_protocol_schema::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigSelectOption, SessionMode, SessionModeState, UnstructuredCommandInput,
};
use api::{
    Agent, AgentMode, CatalogHost, Command, HostError, Model, ModelRef, Provider, Scope, Session, SessionId,
    SessionModel, UpdateSession,
};
use serde_json::{Value, json};

use crate::capabilities::Capabilities;
use crate::rpc::Error;

/// The effort that leaves the model's default.
const DEFAULT_EFFORT: &str = "default";
/// The id shown while no model is selected and there is no default.
const NO_MODEL: &str = "none";
/// The most models listed.
const MAX_MODELS: usize = 2_000;

/// The selection of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// The name of the agent.
    pub mode: String,
    /// The model.
    pub model: Option<ModelRef>,
    /// Its effort; `None` for the default.
    pub effort: Option<String>,
    /// Whether to allow everything that would be asked.
    pub approve: bool,
}

impl Selection {
    /// The selection stored in a session.
    pub fn of_session(session: &Session, catalog: &SessionCatalog) -> Self {
        let mode = session.agent.clone().filter(|agent| catalog.mode(agent).is_ok());
        let model = session.model.as_ref().map(|model| ModelRef::new(&model.provider_id, &model.id));
        let model = model.filter(|model| catalog.model(model).is_some()).or_else(|| catalog.default.clone());
        let effort = session.model.as_ref().and_then(|model| model.variant.clone());
        let mode = mode.unwrap_or_else(|| catalog.agents.first().map(|agent| agent.name.clone()).unwrap_or_default());
        let mut selection = Self { mode, model, effort: None, approve: false };
        selection.effort = effort.filter(|effort| catalog.efforts(&selection).any(|known| known == effort));
        selection
    }

    /// The session update that stores this selection, if it changed. `approve` belongs to the client alone.
    pub fn update_since(&self, before: &Self) -> Option<UpdateSession> {
        let model = |model: &ModelRef| SessionModel {
            id: model.model_id.clone(),
            provider_id: model.provider_id.clone(),
            variant: Some(self.effort.clone().unwrap_or_else(|| DEFAULT_EFFORT.to_owned())),
        };
        let other_model = (&self.model, &self.effort) != (&before.model, &before.effort);
        let change = UpdateSession {
            agent: Some(self.mode.clone()).filter(|_| self.mode != before.mode),
            model: self.model.as_ref().filter(|_| other_model).map(model),
            ..UpdateSession::default()
        };
        (change != UpdateSession::default()).then_some(change)
    }
}

/// What a session can choose from.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionCatalog {
    agents: Vec<Agent>,
    providers: Vec<Provider>,
    default: Option<ModelRef>,
    /// Why there is no default model, and what to do about it.
    no_model_reason: Option<String>,
    commands: Vec<Command>,
}

impl SessionCatalog {
    /// Loads the catalog from the host.
    pub async fn load(host: &dyn CatalogHost, scope: &Scope, session: &SessionId) -> Result<Self, HostError> {
        let commands = host.session_commands(session);
        let (agents, providers, default, commands) =
            futures::join!(host.agents(scope), host.providers(scope), host.default_model(scope), commands);
        let usable = |agent: &Agent| agent.mode != AgentMode::Subagent && agent.hidden != Some(true);
        Ok(Self {
            agents: agents?.into_iter().filter(usable).collect(),
            providers: providers?,
            no_model_reason: default.as_ref().err().map(ToString::to_string),
            default: default.ok(),
            commands: commands?,
        })
    }

    /// The commands.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// The context size of the selected model.
    pub fn context(&self, selection: &Selection) -> u64 {
        selection.model.as_ref().and_then(|model| self.model(model)).map_or(0, |model| model.limit.context)
    }

    fn model(&self, model: &ModelRef) -> Option<&Model> {
        self.providers.iter().find(|provider| provider.id == model.provider_id)?.models.get(&model.model_id)
    }

    fn efforts(&self, selection: &Selection) -> impl Iterator<Item = &String> {
        let model = selection.model.as_ref().and_then(|model| self.model(model));
        model.and_then(|model| model.variants.as_ref()).into_iter().flat_map(|variants| variants.keys())
    }

    fn mode(&self, name: &str) -> Result<&Agent, Error> {
        self.agents.iter().find(|agent| agent.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.agents.iter().map(|agent| agent.name.as_str()).collect();
            let message = format!("There is no mode {name:?}; there are: {}", known.join(", "));
            Error::invalid_params(message).with(json!({ "mode": name }))
        })
    }

    /// Selects a mode.
    pub fn set_mode(&self, selection: &mut Selection, name: &str) -> Result<(), Error> {
        self.mode(name)?;
        selection.mode = name.to_owned();
        Ok(())
    }

    /// Selects a model, `provider/model` or `provider/model/effort`.
    pub fn set_model(&self, selection: &mut Selection, name: &str) -> Result<(), Error> {
        let unknown = || {
            Error::invalid_params(format!("There is no model {name:?}; `trefoil models` lists what there is"))
                .with(json!({ "modelId": name }))
        };
        if name == NO_MODEL && selection.model.is_none() {
            return Ok(());
        }
        let whole = ModelRef::parse(name).ok_or_else(unknown)?;
        let (model, effort) = match (self.model(&whole), name.rsplit_once('/')) {
            (Some(_), _) => (whole, None),
            (None, Some((model, effort))) => (ModelRef::parse(model).ok_or_else(unknown)?, Some(effort)),
            (None, None) => return Err(unknown()),
        };
        self.model(&model).ok_or_else(unknown)?;
        let mut changed = Selection { model: Some(model), effort: None, ..selection.clone() };
        // Keep the effort if both models have it.
        changed.effort = selection.effort.clone().filter(|effort| self.efforts(&changed).any(|known| known == effort));
        if let Some(effort) = effort {
            self.set_effort(&mut changed, effort)?;
        }
        *selection = changed;
        Ok(())
    }

    fn set_effort(&self, selection: &mut Selection, name: &str) -> Result<(), Error> {
        if name == DEFAULT_EFFORT {
            selection.effort = None;
            return Ok(());
        }
        if !self.efforts(selection).any(|known| known == name) {
            return Err(
                Error::invalid_params(format!("The model has no effort {name:?}")).with(json!({"effort": name}))
            );
        }
        selection.effort = Some(name.to_owned());
        Ok(())
    }

    /// Sets a config option.
    pub fn set_option(
        &self,
        capabilities: Capabilities,
        selection: &mut Selection,
        option: &str,
        value: &Value,
    ) -> Result<(), Error> {
        let unknown =
            || Error::invalid_params(format!("There is no option {option:?}")).with(json!({"configId": option}));
        match (option, value) {
            ("model", Value::String(name)) => self.set_model(selection, name),
            ("mode", Value::String(name)) => self.set_mode(selection, name),
            ("effort", Value::String(name)) if self.efforts(selection).next().is_some() => {
                self.set_effort(selection, name)
            }
            ("approve", Value::Bool(on)) if capabilities.boolean_options => {
                selection.approve = *on;
                Ok(())
            }
            ("model" | "mode" | "effort" | "approve", _) => {
                Err(Error::invalid_params(format!("The option {option:?} does not take {value}"))
                    .with(json!({"configId": option})))
            }
            _ => Err(unknown()),
        }
    }

    /// All config options.
    pub fn options(&self, capabilities: Capabilities, selection: &Selection) -> Vec<SessionConfigOption> {
        let select = |(id, name, description): (String, String, Option<String>)| {
            SessionConfigSelectOption::new(id, name).description(description)
        };
        let model = SessionConfigOption::select(
            "model",
            "Model",
            current_model_id(selection),
            self.models(selection).map(select).collect::<Vec<_>>(),
        );
        let missing = self.no_model_reason.clone().filter(|_| selection.model.is_none());
        let mut options = vec![model.description(missing).category(SessionConfigOptionCategory::Model)];
        let mut efforts: Vec<_> = self
            .efforts(selection)
            .map(|effort| SessionConfigSelectOption::new(effort.clone(), capitalize(effort)))
            .collect();
        if !efforts.is_empty() {
            efforts.push(SessionConfigSelectOption::new(DEFAULT_EFFORT, "Default"));
            let current = selection.effort.clone().unwrap_or_else(|| DEFAULT_EFFORT.to_owned());
            options.push(
                SessionConfigOption::select("effort", "Effort", current, efforts)
                    .description("How much the model thinks".to_owned())
                    .category(SessionConfigOptionCategory::ThoughtLevel),
            );
        }
        if !self.agents.is_empty() {
            let mode = |agent: &Agent| {
                SessionConfigSelectOption::new(agent.name.clone(), agent.name.clone())
                    .description(agent.description.clone())
            };
            let modes: Vec<_> = self.agents.iter().map(mode).collect();
            options.push(
                SessionConfigOption::select("mode", "Session Mode", selection.mode.clone(), modes)
                    .category(SessionConfigOptionCategory::Mode),
            );
        }
        if capabilities.boolean_options {
            options.push(
                SessionConfigOption::boolean("approve", "Allow without asking", selection.approve)
                    .description("Edits and commands run without asking; rules that deny still apply".to_owned()),
            );
        }
        options
    }

    /// The modes, for older clients.
    pub fn modes(&self, selection: &Selection) -> Option<SessionModeState> {
        let mode = |agent: &Agent| {
            SessionMode::new(agent.name.clone(), agent.name.clone()).description(agent.description.clone())
        };
        (!self.agents.is_empty())
            .then(|| SessionModeState::new(selection.mode.clone(), self.agents.iter().map(mode).collect()))
    }

    /// The models, for older clients.
    pub fn models_state(&self, selection: &Selection) -> Value {
        let shown = |(id, name, description): (String, String, Option<String>)| match description {
            Some(description) => json!({"modelId": id, "name": name, "description": description}),
            None => json!({"modelId": id, "name": name}),
        };
        let models: Vec<Value> = self.models(selection).map(shown).collect();
        json!({"currentModelId": current_model_id(selection), "availableModels": models})
    }

    /// The id, name and description of each model. While none is selected, the first entry says what is missing:
    /// clients show the list only if one entry is current.
    fn models(&self, selection: &Selection) -> impl Iterator<Item = (String, String, Option<String>)> {
        let none = selection
            .model
            .is_none()
            .then(|| (NO_MODEL.to_owned(), "No model".to_owned(), self.no_model_reason.clone()));
        let of = |provider: &Provider| {
            let (id, name) = (provider.id.clone(), provider.name.clone());
            let models: Vec<_> = provider
                .models
                .values()
                .map(|model| (format!("{id}/{}", model.id), format!("{name}/{}", model.name), None))
                .collect();
            models
        };
        none.into_iter().chain(self.providers.iter().flat_map(of)).take(MAX_MODELS)
    }

    /// The commands that the user can type.
    pub fn available_commands(&self) -> AvailableCommandsUpdate {
        let command = |command: &Command| {
            let made = AvailableCommand::new(command.name.clone(), command.description.clone().unwrap_or_default());
            if command.hints.is_empty() {
                return made;
            }
            let hint = UnstructuredCommandInput::new(command.hints.join(" "));
            made.input(AvailableCommandInput::Unstructured(hint))
        };
        AvailableCommandsUpdate::new(self.commands.iter().map(command).collect())
    }
}

/// The id of the selected model as clients see it.
fn current_model_id(selection: &Selection) -> String {
    selection.model.as_ref().map_or_else(|| NO_MODEL.to_owned(), ModelRef::to_string)
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
