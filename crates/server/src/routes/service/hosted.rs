//! What OpenCode does with services of its own. Trefoil has none, and says so.

use api::{Host as _, Session};
use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::operation::request::{Call, JsonBody, Nothing};
use crate::operation::{Data, Never, Operation, operation};
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
        operation(Method::DELETE, SHARE, "session.unshare", "Take it back.", unshare)
            .not_found()
            .partial("nothing is shared here, so what another server published stays there"),
        operation(Method::POST, "/global/upgrade", "global.upgrade", "Install a newer version.", upgrade)
            .global()
            .error(400, &["UpgradeError", "BadRequestError"])
            .not_offered(NO_UPGRADE),
        operation(Method::GET, "/experimental/console", "experimental.console.get", "The account.", console),
        operation(
            Method::GET,
            "/experimental/console/orgs",
            "experimental.console.listOrgs",
            "Its organisations.",
            orgs,
        ),
        operation(Method::POST, switch, "experimental.console.switchOrg", "Use another organisation.", switch_org)
            .not_offered(NO_CONSOLE),
    ]
}

async fn share(call: Call<SessionPath>) -> Result<Never<Session>, Error> {
    call.state.engine.session(&call.scope, &call.path.session.0).await?;
    Err(Error::unsupported(NO_SHARING))
}

async fn unshare(call: Call<SessionPath>) -> Result<Data<Session>, Error> {
    let session = call.state.engine.session(&call.scope, &call.path.session.0).await?;
    if session.share.is_some() {
        return Err(Error::unsupported(NO_SHARING));
    }
    Ok(Data(session))
}

/// Which version.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is looked at")]
struct Upgrade {
    target: Option<String>,
}

/// How it went.
#[derive(Debug, JsonSchema)]
#[schemars(inline, untagged)]
#[expect(dead_code, reason = "only documented")]
enum Upgraded {
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

async fn upgrade(_: Call<Nothing, Nothing, JsonBody<Upgrade>>) -> Result<Never<Upgraded>, Error> {
    Err(Error::not_offered(serde_json::json!({ "success": false, "error": NO_UPGRADE })))
}

/// An account that nobody has.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ConsoleState")]
struct Console {
    console_managed_providers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_org_name: Option<String>,
    switchable_org_count: u64,
}

async fn console(_: Call) -> Result<Data<Console>, Error> {
    Ok(Data(Console { console_managed_providers: Vec::new(), active_org_name: None, switchable_org_count: 0 }))
}

/// Organisations.
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

async fn orgs(_: Call) -> Result<Data<Orgs>, Error> {
    Ok(Data(Orgs { orgs: Vec::new() }))
}

/// Which one.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its shape is looked at")]
struct Switch {
    #[serde(rename = "accountID")]
    account: String,
    #[serde(rename = "orgID")]
    org: String,
}

async fn switch_org(_: Call<Nothing, Nothing, JsonBody<Switch>>) -> Result<Never<bool>, Error> {
    Err(Error::unsupported(NO_CONSOLE))
}
