//! `initialize` and authentication.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthStatusCapabilities,
    Implementation, InitializeResponse, LogoutCapabilities, McpCapabilities, PromptCapabilities,
    SessionAdditionalDirectoriesCapabilities, SessionArchiveCapabilities, SessionCapabilities,
    SessionCloseCapabilities, SessionDeleteCapabilities, SessionForkCapabilities, SessionListCapabilities,
    SessionResumeCapabilities, SessionStatusCapabilities, SessionTitleCapabilities,
};
use api::{Caller, ProviderSource, Scope};
use serde_json::{Value, json};

use super::Agent;
use crate::capabilities::Capabilities;
use crate::lock;
use crate::rpc::Error;

/// The id of our sign-in method.
const LOGIN: &str = "trefoil-login";
/// How much of a client's name is kept, in characters.
const MAX_CLIENT_NAME: usize = 100;
/// The id that older clients know from OpenCode.
const LEGACY_LOGIN: &str = "opencode-login";

impl Agent {
    pub(super) fn initialize(&self, params: &Value) -> Result<Value, Error> {
        if !params["protocolVersion"].is_u64() {
            return Err(Error::invalid_params("protocolVersion is missing: expected an integer"));
        }
        let client = Capabilities::from_initialize(params);
        *lock(&self.capabilities) = Some(client);
        if let Some(name) = params["clientInfo"]["name"].as_str() {
            let name: String = name.chars().take(MAX_CLIENT_NAME).collect();
            self.named_host.get_or_init(|| self.options.host.with_caller(Caller::owner(name)));
        }
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .delete(SessionDeleteCapabilities::new())
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
            .fork(SessionForkCapabilities::new())
            .archive(SessionArchiveCapabilities::new())
            .status(SessionStatusCapabilities::new())
            .title(SessionTitleCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let auth = AgentAuthCapabilities::new().status(AuthStatusCapabilities::new()).logout(LogoutCapabilities::new());
        // Extensions that other agents have, too: messages into a running turn, and prompts that queue behind it.
        let extensions = json!({"steering": {"supported": true}, "claudeCode": {"promptQueueing": true}});
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true).sse(true))
            .session_capabilities(sessions)
            .auth(auth)
            .meta(extensions.as_object().cloned());
        // Whatever version the client speaks, this is the newest we do.
        let answer = InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .auth_methods(vec![self.login(client)])
            .agent_info(Implementation::new("trefoil", self.options.version.clone()).title("Trefoil".to_owned()));
        Ok(json!(answer))
    }

    fn login(&self, client: Capabilities) -> AuthMethod {
        let login = &self.options.login;
        let name = "Sign in to a model provider";
        let all = [login.command.as_slice(), &login.args].concat();
        let description = format!("Run `{} {}` in a terminal", login.program, all.join(" "));
        let old = client.legacy_terminal_login.then(|| {
            let call = json!({"command": login.program, "args": all, "label": name});
            json!({ "terminal-auth": call }).as_object().cloned().unwrap_or_default()
        });
        if client.terminal_login {
            let method = AuthMethodTerminal::new(LOGIN, name).args(login.args.clone());
            return AuthMethod::Terminal(method.description(description).meta(old));
        }
        AuthMethod::Agent(AuthMethodAgent::new(LOGIN, name).description(description).meta(old))
    }

    pub(super) fn authenticate(&self, params: &Value) -> Result<Value, Error> {
        let method = params.get("methodId").or_else(|| params.get("authMethodId")).and_then(Value::as_str);
        match method {
            Some(LOGIN | LEGACY_LOGIN) => {
                self.logged_out.store(false, Ordering::Release);
                Ok(json!({}))
            }
            Some(other) => {
                let message = format!("There is no sign-in method {other:?}; use {LOGIN}");
                Err(Error::invalid_params(message).with(json!({ "methodId": other })))
            }
            None => Err(Error::invalid_params("methodId is missing: expected a string")),
        }
    }

    pub(super) async fn auth_status(self: &Arc<Self>) -> Result<Value, Error> {
        let providers = self.host().providers(&Scope::new("/")).await?;
        let usable = providers.iter().any(|provider| provider.source != ProviderSource::Custom);
        let state = match (self.logged_out.load(Ordering::Acquire), usable) {
            (true, _) => "unauthenticated",
            (false, true) => "authenticated",
            (false, false) => "not_required",
        };
        Ok(json!({ "state": state }))
    }
}
