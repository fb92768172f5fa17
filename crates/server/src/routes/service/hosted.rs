//! Operations that OpenCode backs with hosted services. Trefoil has none, and says so.

use api::{HostError, Session};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{JsonReply, NeverReply, Operation, operation};
use crate::routes::sessions::session::SessionPath;

const NO_SHARING: &str =
    "Trefoil has no service where sessions could be shared; `trefoil session export` writes a file";
const NO_UPGRADE: &str = "Trefoil does not upgrade itself; install a newer one the way this one was installed";
const NO_CONSOLE: &str = "Trefoil has no accounts, so there is no organisation to switch to";

pub fn operations() -> Vec<Operation> {
    const SHARE: &str = "/session/{sessionID}/share";
    let switch = "/experimental/console/switch";
    vec![
        operation(Method::POST, SHARE, "session.share", "Publish a session.", share)
            .not_found()
            .not_offered(NO_SHARING),
        operation(Method::DELETE, SHARE, "session.unshare", "Stop sharing a session.", unshare)
            .not_found()
            .partial("nothing is shared here; a session that another server published stays published"),
        operation(Method::POST, "/global/upgrade", "global.upgrade", "Install a newer version.", upgrade)
            .global()
            .error(400, &["UpgradeError", "BadRequestError"])
            .not_offered(NO_UPGRADE),
        operation(Method::GET, "/experimental/console", "experimental.console.get", "The account.", console),
        operation(
            Method::GET,
            "/experimental/console/orgs",
            "experimental.console.listOrgs",
            "The organisations of the account.",
            orgs,
        ),
        operation(Method::POST, switch, "experimental.console.switchOrg", "Use another organisation.", switch_org)
            .not_offered(NO_CONSOLE),
    ]
}

async fn share(request: Request<SessionPath>) -> Result<JsonReply<Session>, Error> {
    request.host.share(&request.path.session.0).await.map(JsonReply).map_err(sharing_error)
}

async fn unshare(request: Request<SessionPath>) -> Result<JsonReply<Session>, Error> {
    request.host.unshare(&request.path.session.0).await.map(JsonReply).map_err(sharing_error)
}

/// Names the alternative to sharing.
fn sharing_error(error: HostError) -> Error {
    match error {
        HostError::Unsupported(_) => Error::unsupported(NO_SHARING),
        error => error.into(),
    }
}

/// The version to install.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is checked")]
struct UpgradeBody {
    target: Option<String>,
}

/// The result of an upgrade.
#[derive(Debug, JsonSchema)]
#[schemars(inline, untagged)]
#[expect(dead_code, reason = "only documented")]
enum UpgradeResult {
    Done {
        #[schemars(extend("enum" = [true]))]
        success: bool,
        version: String,
    },
    Failed {
        #[schemars(extend("enum" = [false]))]
        success: bool,
        error: String,
    },
}

async fn upgrade(_: Request<NoParams, NoParams, JsonBody<UpgradeBody>>) -> Result<NeverReply<UpgradeResult>, Error> {
    Err(Error::not_offered(serde_json::json!({ "success": false, "error": NO_UPGRADE })))
}

/// The account; nobody has one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ConsoleState")]
struct ConsoleState {
    console_managed_providers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_org_name: Option<String>,
    switchable_org_count: u64,
}

async fn console(_: Request) -> Result<JsonReply<ConsoleState>, Error> {
    Ok(JsonReply(ConsoleState {
        console_managed_providers: Vec::new(),
        active_org_name: None,
        switchable_org_count: 0,
    }))
}

/// The organisations of the account.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Orgs {
    orgs: Vec<Org>,
}

/// An organisation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Org {
    #[serde(rename = "accountID")]
    account: String,
    #[serde(rename = "accountEmail")]
    email: String,
    #[serde(rename = "accountUrl")]
    url: String,
    #[serde(rename = "orgID")]
    id: String,
    #[serde(rename = "orgName")]
    name: String,
    active: bool,
}

async fn orgs(_: Request) -> Result<JsonReply<Orgs>, Error> {
    Ok(JsonReply(Orgs { orgs: Vec::new() }))
}

/// The organisation to switch to.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is checked")]
struct SwitchBody {
    #[serde(rename = "accountID")]
    account: String,
    #[serde(rename = "orgID")]
    org: String,
}

async fn switch_org(_: Request<NoParams, NoParams, JsonBody<SwitchBody>>) -> Result<NeverReply<bool>, Error> {
    Err(Error::unsupported(NO_CONSOLE))
}
