//! What is decided by the request alone: whether it is taken at all, and whether it is the same as another.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::model::Role;
use crate::service::input;
use crate::{Error, ErrorKind, SendRequest};

/// The output that every client has to take, and what else there is.
const REQUIRED_MODE: &str = "text/plain";
const DATA_MODE: &str = "application/json";
/// The longest id that a client may choose.
const MAX_ID_BYTES: usize = 512;

/// Refuses what needs no look at anything.
pub(super) fn check(request: &SendRequest) -> Result<(), Error> {
    let SendRequest { message, options, .. } = request;
    if message.message_id.is_empty() {
        return Err(Error::invalid("message.messageId", "message.messageId must not be empty"));
    }
    if message.role != Role::User {
        return Err(Error::invalid("message.role", "A message to the agent has the role of the user"));
    }
    let ids = [
        ("message.messageId", Some(&message.message_id)),
        ("message.contextId", message.context_id.as_ref()),
        ("message.taskId", message.task_id.as_ref()),
    ];
    for (field, id) in ids {
        if id.is_some_and(|id| id.len() > MAX_ID_BYTES || id.chars().any(char::is_control)) {
            return Err(Error::invalid(field, format!("{field} is longer than {MAX_ID_BYTES} bytes or malformed")));
        }
    }
    let modes = &options.accepted_output_modes;
    if takes(modes, REQUIRED_MODE) {
        return Ok(());
    }
    let message = "Answers are text; add text/plain to acceptedOutputModes";
    Err(Error::new(ErrorKind::UnsupportedOperation, message)
        .with("accepted_output_modes", modes.clone())
        .with("required_output_modes", vec![REQUIRED_MODE])
        .with("supported_output_modes", vec![REQUIRED_MODE, DATA_MODE]))
}

/// Whether a client takes a media type. Without a list it takes all.
fn takes(modes: &[String], wanted: &str) -> bool {
    let kind = wanted.split('/').next().unwrap_or_default();
    modes.is_empty()
        || modes.iter().any(|mode| {
            let mode = mode.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            mode == wanted || mode == "*/*" || mode.strip_suffix("/*") == Some(kind)
        })
}

/// Tells the same message sent again from another one.
pub(super) fn fingerprint(request: &SendRequest) -> String {
    let content = json!([request.message, input::metadata_of(request)]);
    let digest = Sha256::digest(content.to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the client of a request takes no structured data.
pub(super) fn is_text_only(request: &SendRequest) -> bool {
    !takes(&request.options.accepted_output_modes, DATA_MODE)
}
