//! What can be chosen for a session: its mode (the agent), its model, its effort, whether it asks. Kept in step with each
//! other, in the current form and in those of older clients.

use agent_client_protocol_schema::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigSelectOption, SessionMode, SessionModeState, UnstructuredCommandInput,
};
use api::{
    Agent, AgentMode, Command, Host, HostError, Model, ModelRef, Provider, Scope, Session, SessionId, SessionModel,
    UpdateSession,
};
use serde_json::{Value, json};

use crate::capabilities::Abilities;
use crate::rpc::Error;

/// The effort that leaves the model as it is.
const DEFAULT_EFFORT: &str = "default";
/// What stands in the place of the model while none is chosen and none is the default.
const NO_MODEL: &str = "none";
/// The most models that are listed.
const MAX_MODELS: usize = 2_000;

/// What was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The agent.
    pub mode: String,
    /// The model.
    pub model: Option<ModelRef>,
    /// Its effort; nothing leaves it as it is.
    pub effort: Option<String>,
    /// What would be asked is allowed.
    pub approve: bool,
}

impl Chosen {
    /// What the session had last.
    pub fn of(session: &Session, choices: &Choices) -> Self {
        let mode = session.agent.clone().filter(|agent| choices.mode(agent).is_ok());
        let model = session.model.as_ref().map(|model| ModelRef::new(&model.provider_id, &model.id));
        let model = model.filter(|model| choices.model(model).is_some()).or_else(|| choices.default.clone());
        let effort = session.model.as_ref().and_then(|model| model.variant.clone());
        let mode = mode.unwrap_or_else(|| choices.agents.first().map(|agent| agent.name.clone()).unwrap_or_default());
        let mut chosen = Self { mode, model, effort: None, approve: false };
        chosen.effort = effort.filter(|effort| choices.efforts(&chosen).any(|known| known == effort));
        chosen
    }

    /// What a session must remember of a new choice, if anything. That nothing is asked holds for the client alone.
    pub fn since(&self, before: &Self) -> Option<UpdateSession> {
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

/// What there is to choose from.
#[derive(Debug, Clone, PartialEq)]
pub struct Choices {
    agents: Vec<Agent>,
    providers: Vec<Provider>,
    default: Option<ModelRef>,
    /// Why no model is the default, and what to do about it.
    missing: Option<String>,
    commands: Vec<Command>,
}

impl Choices {
    /// Asks the host.
    pub async fn load(host: &dyn Host, scope: &Scope, session: &SessionId) -> Result<Self, HostError> {
        let commands = host.session_commands(scope, session);
        let (agents, providers, default, commands) =
            futures::join!(host.agents(scope), host.providers(scope), host.default_model(scope), commands);
        let usable = |agent: &Agent| agent.mode != AgentMode::Subagent && agent.hidden != Some(true);
        Ok(Self {
            agents: agents?.into_iter().filter(usable).collect(),
            providers: providers?,
            missing: default.as_ref().err().map(ToString::to_string),
            default: default.ok(),
            commands: commands?,
        })
    }

    /// The commands.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// How many tokens the chosen model takes.
    pub fn context(&self, chosen: &Chosen) -> u64 {
        chosen.model.as_ref().and_then(|model| self.model(model)).map_or(0, |model| model.limit.context)
    }

    fn model(&self, model: &ModelRef) -> Option<&Model> {
        self.providers.iter().find(|provider| provider.id == model.provider_id)?.models.get(&model.model_id)
    }

    fn efforts(&self, chosen: &Chosen) -> impl Iterator<Item = &String> {
        let model = chosen.model.as_ref().and_then(|model| self.model(model));
        model.and_then(|model| model.variants.as_ref()).into_iter().flat_map(|variants| variants.keys())
    }

    fn mode(&self, name: &str) -> Result<&Agent, Error> {
        self.agents.iter().find(|agent| agent.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.agents.iter().map(|agent| agent.name.as_str()).collect();
            let message = format!("There is no mode {name:?}; there are: {}", known.join(", "));
            Error::invalid_params(message).with(json!({ "mode": name }))
        })
    }

    /// Chooses a mode.
    pub fn set_mode(&self, chosen: &mut Chosen, name: &str) -> Result<(), Error> {
        self.mode(name)?;
        chosen.mode = name.to_owned();
        Ok(())
    }

    /// Chooses a model, `provider/model` or `provider/model/effort`.
    pub fn set_model(&self, chosen: &mut Chosen, name: &str) -> Result<(), Error> {
        let unknown = || {
            Error::invalid_params(format!("There is no model {name:?}; `trefoil models` lists what there is"))
                .with(json!({ "modelId": name }))
        };
        if name == NO_MODEL && chosen.model.is_none() {
            return Ok(());
        }
        let whole = ModelRef::parse(name).ok_or_else(unknown)?;
        let (model, effort) = match (self.model(&whole), name.rsplit_once('/')) {
            (Some(_), _) => (whole, None),
            (None, Some((model, effort))) => (ModelRef::parse(model).ok_or_else(unknown)?, Some(effort)),
            (None, None) => return Err(unknown()),
        };
        self.model(&model).ok_or_else(unknown)?;
        let mut changed = Chosen { model: Some(model), effort: None, ..chosen.clone() };
        // An effort that both models have stays.
        changed.effort = chosen.effort.clone().filter(|effort| self.efforts(&changed).any(|known| known == effort));
        if let Some(effort) = effort {
            self.set_effort(&mut changed, effort)?;
        }
        *chosen = changed;
        Ok(())
    }

    fn set_effort(&self, chosen: &mut Chosen, name: &str) -> Result<(), Error> {
        if name == DEFAULT_EFFORT {
            chosen.effort = None;
            return Ok(());
        }
        if !self.efforts(chosen).any(|known| known == name) {
            return Err(
                Error::invalid_params(format!("The model has no effort {name:?}")).with(json!({"effort": name}))
            );
        }
        chosen.effort = Some(name.to_owned());
        Ok(())
    }

    /// Chooses whatever an option is about.
    pub fn set(&self, can: Abilities, chosen: &mut Chosen, option: &str, value: &Value) -> Result<(), Error> {
        let unknown =
            || Error::invalid_params(format!("There is no option {option:?}")).with(json!({"configId": option}));
        match (option, value) {
            ("model", Value::String(name)) => self.set_model(chosen, name),
            ("mode", Value::String(name)) => self.set_mode(chosen, name),
            ("effort", Value::String(name)) if self.efforts(chosen).next().is_some() => self.set_effort(chosen, name),
            ("approve", Value::Bool(on)) if can.booleans => {
                chosen.approve = *on;
                Ok(())
            }
            ("model" | "mode" | "effort" | "approve", _) => {
                Err(Error::invalid_params(format!("The option {option:?} does not take {value}"))
                    .with(json!({"configId": option})))
            }
            _ => Err(unknown()),
        }
    }

    /// The complete list of options.
    pub fn options(&self, can: Abilities, chosen: &Chosen) -> Vec<SessionConfigOption> {
        let select = |(id, name, description): (String, String, Option<String>)| {
            SessionConfigSelectOption::new(id, name).description(description)
        };
        let model = SessionConfigOption::select(
            "model",
            "Model",
            current(chosen),
            self.models(chosen).map(select).collect::<Vec<_>>(),
        );
        let missing = self.missing.clone().filter(|_| chosen.model.is_none());
        let mut options = vec![model.description(missing).category(SessionConfigOptionCategory::Model)];
        let mut efforts: Vec<_> = self
            .efforts(chosen)
            .map(|effort| SessionConfigSelectOption::new(effort.clone(), capital(effort)))
            .collect();
        if !efforts.is_empty() {
            efforts.push(SessionConfigSelectOption::new(DEFAULT_EFFORT, "Default"));
            let current = chosen.effort.clone().unwrap_or_else(|| DEFAULT_EFFORT.to_owned());
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
                SessionConfigOption::select("mode", "Session Mode", chosen.mode.clone(), modes)
                    .category(SessionConfigOptionCategory::Mode),
            );
        }
        if can.booleans {
            options.push(
                SessionConfigOption::boolean("approve", "Allow without asking", chosen.approve).description(
                    "Edits and commands run without a question; what a rule denies stays denied".to_owned(),
                ),
            );
        }
        options
    }

    /// The same for clients that know modes.
    pub fn modes(&self, chosen: &Chosen) -> Option<SessionModeState> {
        let mode = |agent: &Agent| {
            SessionMode::new(agent.name.clone(), agent.name.clone()).description(agent.description.clone())
        };
        (!self.agents.is_empty())
            .then(|| SessionModeState::new(chosen.mode.clone(), self.agents.iter().map(mode).collect()))
    }

    /// The same for clients that know models.
    pub fn models_state(&self, chosen: &Chosen) -> Value {
        let shown = |(id, name, description): (String, String, Option<String>)| match description {
            Some(description) => json!({"modelId": id, "name": name, "description": description}),
            None => json!({"modelId": id, "name": name}),
        };
        let models: Vec<Value> = self.models(chosen).map(shown).collect();
        json!({"currentModelId": current(chosen), "availableModels": models})
    }

    /// The id, the name and the description of each model that can be chosen. While none is, the first entry says what
    /// is missing: clients show a list of models only if one of them is current.
    fn models(&self, chosen: &Chosen) -> impl Iterator<Item = (String, String, Option<String>)> {
        let none = chosen.model.is_none().then(|| (NO_MODEL.to_owned(), "No model".to_owned(), self.missing.clone()));
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

    /// The commands that the human can type.
    pub fn available(&self) -> AvailableCommandsUpdate {
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

/// The id of the chosen model as clients see it.
fn current(chosen: &Chosen) -> String {
    chosen.model.as_ref().map_or_else(|| NO_MODEL.to_owned(), ModelRef::to_string)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
