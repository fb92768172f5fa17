//! The requests of a turn: answered by the user, by `--yes`, or by refusing them where there is nobody to ask.

use api::{HostError, PermissionReply, PermissionReplyKind};

use super::Turn;
use crate::run::asks::{Ask, LineEffect, Reply, reject, summary};

impl Turn {
    /// Answers a request by itself, or adds it to those for the user.
    pub(super) async fn ask(&mut self, ask: Ask) {
        if self.flags.cancelled {
            return;
        }
        match ask {
            Ask::Permission(request) if self.options.yes => {
                let note = format!("allowed by --yes: {}\n", summary(&request));
                let reply = PermissionReply { reply: PermissionReplyKind::Once, message: None };
                self.reply_for_user(Reply::Permission(request.id, reply), &note).await;
            }
            ask if self.options.interactive => self.asks.add(ask),
            Ask::Permission(request) => {
                let note = format!(
                    "denied: {} needs permission, and there is no terminal to ask on\n  \
                     hint: run it again with --yes, or add a rule to `permission` in trefoil.json\n",
                    summary(&request)
                );
                self.reply_for_user(Reply::Permission(request.id, reject(None)), &note).await;
            }
            Ask::Question(request) => {
                let note = "denied: the agent asks a question, and there is no terminal to answer on\n";
                self.reply_for_user(Reply::Question(request.id, None), note).await;
            }
        }
    }

    /// Answers for the user, and says so unless somebody else was faster.
    async fn reply_for_user(&mut self, reply: Reply, note: &str) {
        if self.reply(reply).await {
            self.display.note(note);
        }
    }

    /// Shows the first request.
    pub(super) fn show_request(&mut self) {
        if let Some(text) = self.asks.prompt() {
            self.is_prompted = true;
            self.input.discard();
            self.display.ask(&text);
        }
    }

    /// Removes a request that was answered, here or elsewhere.
    pub(super) fn close_request(&mut self, id: &str) {
        if self.asks.remove(id) && std::mem::take(&mut self.is_prompted) {
            self.display.close_question();
            self.display.remark("\n  answered elsewhere");
        }
    }

    /// Takes a line that the user typed.
    pub(super) async fn handle_line(&mut self, line: Option<String>) {
        self.is_prompted = false;
        self.display.close_question();
        match self.asks.apply(line.as_deref()) {
            Some(LineEffect::Reply(reply)) => {
                self.reply(reply).await;
            }
            Some(LineEffect::More(why)) if !why.is_empty() => self.display.remark(&format!("  {why}")),
            Some(LineEffect::More(_)) | None => {}
        }
    }

    /// Answers a request. Returns whether the answer was accepted.
    async fn reply(&mut self, reply: Reply) -> bool {
        let result = match reply {
            Reply::Permission(id, reply) => self.host.reply_permission(&id, reply).await,
            Reply::Question(id, answers) => self.host.reply_question(&id, answers).await,
        };
        match result {
            Ok(()) => return true,
            // Somebody else was faster, or the same answer settled both.
            Err(HostError::Conflict(_) | HostError::NotFound { .. }) => {}
            Err(error) => {
                self.display.note(&format!("the answer was not accepted: {}\n", api::strip_control(&error.to_string())))
            }
        }
        false
    }
}
