//! What a turn knows of its session: the messages for the model, and the prompts that wait for an answer.
//!
//! A step must not get slower as the session grows. So each message is converted once, when it joins: its prompt
//! messages are shared by all requests, and anything steps ask about all messages is kept up to date.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use api::{
    AssistantMessage, IdStamp, Json, Message, MessageId, MessageWithParts, Modalities, ModelRef, Part, SessionId,
    SubtaskPart, ToolState, UserMessage, json_size,
};
use llm::CachedMessage;
use store::{Store, StoreError};

use crate::turn::history;

/// The approximate memory of a message besides its text.
const MESSAGE_BYTES: usize = 512;

/// The messages of a session, and which of them wait for an answer.
pub(crate) struct Conversation {
    pub(crate) session: SessionId,
    /// The store's revision when the messages were read.
    pub(crate) revision: u64,
    /// The approximate memory it takes.
    pub(crate) bytes: usize,
    /// The accepted prompts this turn has seen, in order of acceptance.
    pub(crate) pending: Vec<MessageId>,
    /// The stored messages of those prompts.
    prompts: Vec<MessageWithParts>,
    /// The newest answer given by this process, as stored, and its size in bytes.
    newest_answer: Option<(MessageWithParts, usize)>,
    /// In session order.
    entries: Vec<ConversationEntry>,
    /// The index of the last message at the last sync with the rows: everything before it is known.
    synced_to: usize,
    /// The greatest stamp among the message ids.
    stamp: IdStamp,
    known_ids: HashSet<MessageId>,
    /// By the prompt they answer.
    answers: HashMap<MessageId, PromptAnswers>,
    /// The ids of all tool calls.
    calls: Arc<HashSet<String>>,
    /// The instruction files loaded by earlier reads.
    instructions: Vec<String>,
    /// Whether any prompt message contains files.
    has_files: bool,
}

/// A message of the conversation.
struct ConversationEntry {
    id: MessageId,
    messages: Vec<CachedMessage>,
    /// For an answer: its agent and the prompt it answers.
    answer: Option<(String, MessageId)>,
    /// For an answer with data of its vendor: its model, and the messages for any other.
    foreign: Option<(ModelRef, OnceLock<Vec<CachedMessage>>)>,
}

impl ConversationEntry {
    /// The messages for a model, which `is_own` compares with the one that gave this answer.
    fn messages_for(&self, is_own: &impl Fn(&ModelRef) -> bool) -> &[CachedMessage] {
        match &self.foreign {
            Some((model, plain)) if !is_own(model) => {
                plain.get_or_init(|| self.messages.iter().filter_map(history::without_vendor_data).collect())
            }
            _ => &self.messages,
        }
    }
}

/// The answers to a prompt.
#[derive(Default)]
struct PromptAnswers {
    count: u32,
    /// Whether one of them is final.
    ended: bool,
}

impl Conversation {
    /// Reads a session from the store.
    pub(crate) async fn load(store: &Store, session: &SessionId, revision: u64) -> Result<Self, StoreError> {
        let mut pages = store.message_pages(session, None, None)?;
        let mut conversation = Self::empty(session, revision);
        for message in pages.next_page()? {
            conversation.add(&message);
        }
        // A long session takes a while.
        while !pages.is_done() {
            let read = move |_: &Store| {
                for message in pages.next_page()? {
                    conversation.add(&message);
                }
                Ok::<_, StoreError>((pages, conversation))
            };
            (pages, conversation) = store.long_read(read).await?;
        }
        conversation.synced_to = conversation.entries.len().saturating_sub(1);
        Ok(conversation)
    }

    pub(crate) fn empty(session: &SessionId, revision: u64) -> Self {
        Self {
            session: session.clone(),
            revision,
            bytes: 0,
            pending: Vec::new(),
            prompts: Vec::new(),
            newest_answer: None,
            entries: Vec::new(),
            synced_to: 0,
            stamp: IdStamp::default(),
            known_ids: HashSet::new(),
            answers: HashMap::new(),
            calls: Arc::default(),
            instructions: Vec::new(),
            has_files: false,
        }
    }

    /// The prompt to answer next in a turn: the newest waiting one, unless it has its final answer. Prompts and notes
    /// that arrived meanwhile join the conversation here.
    pub(crate) fn next_prompt(&mut self, store: &Store, turn: Option<u64>) -> Result<Option<UserMessage>, StoreError> {
        let inbox = store.inbox(&self.session)?;
        for row in inbox.iter().filter(|row| Some(row.turn) == turn) {
            if !self.pending.contains(&row.message_id) {
                self.pending.push(row.message_id.clone());
            }
        }
        let Some(newest) = self.pending.last().filter(|newest| !self.is_answered(newest)).cloned() else {
            return Ok(None);
        };
        self.catch_up(store)?;
        for id in &self.pending {
            // It was already stored when the conversation was read.
            if self.known_ids.contains(id) && self.prompt(id).is_none() {
                self.prompts.extend(store.message(id)?);
            }
        }
        Ok(self.prompt(&newest).and_then(|prompt| prompt.info.as_user()).cloned())
    }

    /// Adds the messages that others have stored since the last sync, each in its place: a prompt may have arrived
    /// before the end of a step that did not see it.
    fn catch_up(&mut self, store: &Store) -> Result<(), StoreError> {
        let from = self.entries.get(self.synced_to).map(|entry| &entry.id);
        let ids = store.message_ids(&self.session, from)?;
        let mut later = self.entries.split_off(self.synced_to.min(self.entries.len()));
        for id in &ids {
            if let Some(index) = later.iter().position(|entry| entry.id == *id) {
                self.entries.push(later.remove(index));
            } else if let Some(message) = store.message(id)?.filter(|message| message.info.as_user().is_some()) {
                self.add(&message);
                if self.pending.contains(id) {
                    self.prompts.push(message);
                }
            }
        }
        self.synced_to = self.entries.len().saturating_sub(1);
        Ok(())
    }

    /// The greatest stamp among the message ids.
    pub(crate) fn stamp(&self) -> IdStamp {
        self.stamp
    }

    /// A waiting prompt.
    fn prompt(&self, id: &MessageId) -> Option<&MessageWithParts> {
        self.prompts.iter().rfind(|prompt| prompt.info.id() == id)
    }

    /// The parts of these prompts.
    pub(crate) fn parts_of(&self, prompts: &[MessageId]) -> impl Iterator<Item = &Part> {
        prompts.iter().filter_map(|id| self.prompt(id)).flat_map(|prompt| &prompt.parts)
    }

    /// The messages for the model, with unsupported files replaced, and without the data of other vendors. `is_own`:
    /// whether the model understands the data of another one's answer.
    pub(crate) fn prompt_messages(
        &self,
        supported: &Modalities,
        is_own: impl Fn(&ModelRef) -> bool,
    ) -> Vec<CachedMessage> {
        let messages = self.entries.iter().flat_map(|entry| entry.messages_for(&is_own));
        if self.has_files {
            messages.map(|said| history::fit_modalities(said, supported)).collect()
        } else {
            messages.cloned().collect()
        }
    }

    /// The ids of all tool calls so far; some servers reuse theirs.
    pub(crate) fn calls(&self) -> Arc<HashSet<String>> {
        self.calls.clone()
    }

    /// The instruction files loaded by earlier reads.
    pub(crate) fn instructions(&self) -> &[String] {
        &self.instructions
    }

    /// The agent of the last answer to another prompt.
    pub(crate) fn agent_before(&self, prompt: &MessageId) -> Option<&str> {
        let answers = self.entries.iter().rev().filter_map(|entry| entry.answer.as_ref());
        answers.filter(|(_, parent)| parent != prompt).map(|(agent, _)| agent.as_str()).next()
    }

    /// Whether a prompt has its final answer.
    fn is_answered(&self, prompt: &MessageId) -> bool {
        self.answers.get(prompt).is_some_and(|answers| answers.ended)
    }

    /// The number of steps a prompt has had, in any process.
    pub(crate) fn steps(&self, prompt: &MessageId) -> u32 {
        self.answers.get(prompt).map_or(0, |answers| answers.count)
    }

    /// The next task that a prompt hands to a subagent without asking the model. Its call has the part's id.
    pub(crate) fn next_subtask(&self) -> Option<(UserMessage, SubtaskPart)> {
        let prompts = self.pending.iter().filter_map(|id| self.prompt(id));
        let mut tasks = prompts.flat_map(|m| m.parts.iter().filter_map(Part::as_subtask).map(move |task| (m, task)));
        let (message, task) = tasks.find(|(_, task)| !self.calls.contains(task.head.id.as_str()))?;
        Some((message.info.as_user()?.clone(), task.clone()))
    }

    /// Whether a prompt is a command that a subagent carried out.
    pub(crate) fn is_delegated_command(&self, prompt: &MessageId) -> bool {
        let mut tasks = self.prompt(prompt).into_iter().flat_map(|m| m.parts.iter().filter_map(Part::as_subtask));
        tasks.any(|task| task.command.is_some())
    }

    /// The text the user wrote in a waiting prompt.
    pub(crate) fn text_of(&self, prompt: &MessageId) -> String {
        let parts = self.prompt(prompt).map(|m| m.parts.as_slice()).unwrap_or_default();
        let typed = parts.iter().filter_map(Part::as_text).filter(|t| t.synthetic != Some(true));
        typed.map(|t| t.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The newest message of the model.
    pub(crate) fn last_answer(&self) -> Option<MessageId> {
        self.entries.iter().rfind(|entry| entry.answer.is_some()).map(|entry| entry.id.clone())
    }

    /// The newest answer, if it has this id and was given by this process.
    pub(crate) fn answer(&self, id: &MessageId) -> Option<&MessageWithParts> {
        self.newest_answer.as_ref().map(|(newest, _)| newest).filter(|newest| newest.info.id() == id)
    }

    /// Adds a finished step.
    pub(crate) fn push_answer(&mut self, message: AssistantMessage, parts: Vec<Part>) {
        let message = MessageWithParts { info: Message::Assistant(message), parts };
        self.add(&message);
        let bytes = json_size(&message);
        self.bytes += bytes;
        if let Some((_, before)) = self.newest_answer.replace((message, bytes)) {
            self.bytes -= before;
        }
    }

    /// Forgets the prompts of a turn that has ended.
    pub(crate) fn end_turn(&mut self) {
        self.prompts.clear();
        self.pending.clear();
    }

    fn add(&mut self, message: &MessageWithParts) {
        let id = message.info.id().clone();
        let answer = message.info.as_assistant();
        if let Some(answer) = answer {
            let answers = self.answers.entry(answer.parent_id.clone()).or_default();
            answers.count = answers.count.saturating_add(1);
            answers.ended |= is_final(answer);
        }
        for tool in message.parts.iter().filter_map(Part::as_tool) {
            Arc::make_mut(&mut self.calls).insert(tool.call_id.clone());
            if let ToolState::Completed(done) = &tool.state
                && tool.tool == "read"
                && let Some(files) = done.metadata.get("loaded").and_then(Json::as_array)
            {
                self.instructions.extend(files.iter().filter_map(Json::as_str).map(str::to_owned));
            }
        }
        let messages = history::prompt_messages(message);
        for said in &messages {
            let length = said.length();
            // The JSON for requests is about as long as the message itself.
            self.bytes += 2 * (length.text + length.picture_bytes);
            self.has_files |= history::has_files(said);
        }
        self.bytes += MESSAGE_BYTES;
        let model = answer.filter(|_| messages.iter().any(history::has_vendor_data));
        let foreign = model.map(|answer| (ModelRef::new(&answer.provider_id, &answer.model_id), OnceLock::new()));
        let answer = answer.map(|answer| (answer.agent.clone(), answer.parent_id.clone()));
        self.stamp = IdStamp::of(id.as_str()).unwrap_or_default().max(self.stamp);
        self.entries.push(ConversationEntry { id: id.clone(), messages, answer, foreign });
        self.known_ids.insert(id);
    }
}

/// Whether an answer ends its turn.
pub(crate) fn is_final(message: &AssistantMessage) -> bool {
    message.error.is_some()
        || message.structured.is_some()
        || message.finish.as_deref().is_some_and(|finish| finish != "tool-calls" && finish != "unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(number: u64, prompt: u64, finish: Option<&str>) -> MessageWithParts {
        let id = |number: u64| format!("msg_{number:012x}AAAAAAAAAAAAAA");
        let (part, session) = (format!("prt_{number:012x}AAAAAAAAAAAAAA"), "ses_1");
        let info = match finish {
            None => json!({"role": "user", "id": id(number), "sessionID": session, "time": {"created": number},
                "agent": "build", "model": {"providerID": "p", "modelID": "m"}}),
            Some(finish) => json!({"role": "assistant", "id": id(number), "sessionID": session, "parentID": id(prompt),
                "mode": "build", "agent": "build", "path": {"cwd": "/", "root": "/"}, "cost": 0, "finish": finish,
                "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
                "modelID": "m", "providerID": "p", "time": {"created": number, "completed": number}}),
        };
        let part = json!({"type": "text", "id": part, "sessionID": session, "messageID": id(number), "text": "text"});
        MessageWithParts {
            info: serde_json::from_value(info).unwrap(),
            parts: vec![serde_json::from_value(part).unwrap()],
        }
    }

    #[test]
    fn a_message_is_prepared_once_for_all_requests() {
        let mut conversation = Conversation::empty(&SessionId::new(), 0);
        for turn in 0..100 {
            conversation.add(&message(2 * turn, 0, None));
            conversation.add(&message(2 * turn + 1, 2 * turn, Some("stop")));
        }
        let supported = Modalities::default();
        let same = |a: &CachedMessage, b: &CachedMessage| std::ptr::eq::<llm::PromptMessage>(&**a, &**b);
        let messages = |conversation: &Conversation| conversation.prompt_messages(&supported, |_| true);
        let (before, after) = (messages(&conversation), messages(&conversation));
        assert_eq!(before.len(), 200);
        assert!(before.iter().zip(&after).all(|(a, b)| same(a, b)));
        let bytes = conversation.bytes;
        conversation.add(&message(200, 0, None));
        assert_eq!(conversation.bytes - bytes, bytes / 200, "another message costs the same");
        assert!(same(&messages(&conversation)[199], &after[199]));
    }

    #[test]
    fn answers_and_steps_are_counted() {
        let mut conversation = Conversation::empty(&SessionId::new(), 0);
        let prompt = message(1, 0, None).info.id().clone();
        for (number, finish) in [(3, "tool-calls"), (5, "tool-calls")] {
            conversation.add(&message(number, 1, Some(finish)));
        }
        conversation.add(&message(1, 0, None));
        assert_eq!((conversation.steps(&prompt), conversation.is_answered(&prompt)), (2, false));
        conversation.add(&message(6, 1, Some("stop")));
        conversation.add(&message(4, 0, None));
        assert_eq!((conversation.steps(&prompt), conversation.is_answered(&prompt)), (3, true));
        assert_eq!(conversation.last_answer().as_ref(), Some(message(6, 1, None).info.id()));
        assert_eq!(conversation.agent_before(&prompt), None);
    }
}
