//! How each line spells states and roles.

use super::dialect::Syntax;
use crate::model::{Role, TaskState};

/// The spelling of a state.
pub(super) fn state_name(state: TaskState, syntax: Syntax) -> &'static str {
    match (syntax, state) {
        (Syntax::Kinds, TaskState::Submitted) => "submitted",
        (Syntax::Kinds, TaskState::Working) => "working",
        (Syntax::Kinds, TaskState::InputRequired) => "input-required",
        (Syntax::Kinds, TaskState::AuthRequired) => "auth-required",
        (Syntax::Kinds, TaskState::Completed) => "completed",
        (Syntax::Kinds, TaskState::Canceled) => "canceled",
        (Syntax::Kinds, TaskState::Failed) => "failed",
        (Syntax::Kinds, TaskState::Rejected) => "rejected",
        (_, TaskState::Submitted) => "TASK_STATE_SUBMITTED",
        (_, TaskState::Working) => "TASK_STATE_WORKING",
        (_, TaskState::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
        (_, TaskState::AuthRequired) => "TASK_STATE_AUTH_REQUIRED",
        (_, TaskState::Completed) => "TASK_STATE_COMPLETED",
        // The protocol buffers of 0.3 have the other English spelling.
        (Syntax::Proto03, TaskState::Canceled) => "TASK_STATE_CANCELLED",
        (Syntax::Proto10, TaskState::Canceled) => "TASK_STATE_CANCELED",
        (_, TaskState::Failed) => "TASK_STATE_FAILED",
        (_, TaskState::Rejected) => "TASK_STATE_REJECTED",
    }
}

/// Reads a state. In 0.3 each transport takes the spelling of the other one, too.
pub(super) fn parse_state(text: &str, syntax: Syntax) -> Option<TaskState> {
    let syntaxes: &[Syntax] = match syntax {
        Syntax::Proto10 => &[Syntax::Proto10],
        Syntax::Kinds | Syntax::Proto03 => &[Syntax::Kinds, Syntax::Proto03, Syntax::Proto10],
    };
    TaskState::ALL.into_iter().find(|state| syntaxes.iter().any(|syntax| state_name(*state, *syntax) == text))
}

/// The spelling of a role.
pub(super) fn role_name(role: Role, syntax: Syntax) -> &'static str {
    match (syntax, role) {
        (Syntax::Kinds, Role::User) => "user",
        (Syntax::Kinds, Role::Agent) => "agent",
        (_, Role::User) => "ROLE_USER",
        (_, Role::Agent) => "ROLE_AGENT",
    }
}

/// Reads a role. In 0.3 REST takes the spelling of JSON-RPC, too, as its specification has both.
pub(super) fn parse_role(text: &str, syntax: Syntax) -> Option<Role> {
    let syntaxes: &[Syntax] = match syntax {
        Syntax::Proto10 => &[Syntax::Proto10],
        Syntax::Kinds => &[Syntax::Kinds],
        Syntax::Proto03 => &[Syntax::Proto03, Syntax::Kinds],
    };
    [Role::User, Role::Agent].into_iter().find(|role| syntaxes.iter().any(|syntax| role_name(*role, *syntax) == text))
}

/// The roles that a syntax has, for errors.
pub(super) fn roles(syntax: Syntax) -> &'static str {
    match syntax {
        Syntax::Kinds => "`user` or `agent`",
        Syntax::Proto03 | Syntax::Proto10 => "`ROLE_USER` or `ROLE_AGENT`",
    }
}
