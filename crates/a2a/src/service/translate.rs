//! What happens at the agent runtime, as the events of a task. Pure: events and stored messages in, events of the task out.
//!
//! The runtime tells things twice, late, or after a gap; a task tells each thing once and in order. So what was told is
//! remembered by message, and whatever arrives is compared with it: a stored message and the events about it are the same case.

mod channel;
mod news;
mod outcome;
mod take;
#[cfg(test)]
mod tests;
mod tool;

use std::collections::{HashMap, HashSet, VecDeque};

use api::{EventBody, Json, JsonMap, MessageId, MessageWithParts, PartId, SessionId, Tokens, Usd};
use serde_json::json;

use crate::event::{Block, Lane, StreamMark, TaskEvent};
use crate::model::{ArtifactId, Content, Part};
use channel::Channel;
pub(super) use news::{Chunk, News};
pub(super) use outcome::{Failure, Outcome};

/// How many bytes of deltas may wait for the part that they belong to.
const MAX_EARLY_BYTES: usize = 256 << 10;
/// How many events may wait for the message that they belong to.
const MAX_EARLY_EVENTS: usize = 256;
/// How many messages of others are remembered, so that events about them are recognised.
const MAX_FOREIGN: usize = 256;
/// What the runtime calls a session until it has a title.
const NO_TITLE: &str = "New session - ";

/// Translates the events of one turn.
pub(super) struct Translator {
    /// The session; `None` as long as the task has none.
    session: Option<SessionId>,
    /// The prompts that the turn answers.
    prompts: HashSet<MessageId>,
    /// Whether the turn has begun.
    begun: bool,
    messages: HashMap<MessageId, Told>,
    /// The messages that were told of, in order.
    order: Vec<MessageId>,
    /// Where the text of a part belongs.
    parts: HashMap<PartId, (MessageId, Block)>,
    /// The last payload of each tool call, and how far the call was.
    tools: HashMap<PartId, (Json, u8)>,
    /// The parts about which progress was told.
    steps: HashSet<PartId>,
    lanes: HashSet<Lane>,
    /// The requests that are open, and those that were answered.
    asks: HashMap<String, bool>,
    title: Option<String>,
    foreign: VecDeque<MessageId>,
    /// Deltas whose part is not known yet.
    early: HashMap<PartId, String>,
    early_bytes: usize,
    /// Events whose message is not known yet.
    waiting: VecDeque<(MessageId, EventBody)>,
    is_behind: bool,
    /// Whether the text was replaced as a whole: nothing may be added to it then.
    is_text_final: bool,
}

/// What was told of a message.
#[derive(Default)]
struct Told {
    text: Channel,
    reasoning: Channel,
    tokens: Tokens,
    cost: Usd,
    is_complete: bool,
    /// It is a summary of the conversation, which is not for the client.
    is_hidden: bool,
}

impl Told {
    fn channel(&mut self, block: Block) -> &mut Channel {
        if block == Block::Reasoning { &mut self.reasoning } else { &mut self.text }
    }
}

impl Translator {
    /// A translator for the turn that answers a prompt.
    pub(super) fn new(session: Option<SessionId>, prompt: MessageId) -> Self {
        Self {
            session,
            prompts: HashSet::from([prompt]),
            begun: false,
            messages: HashMap::new(),
            order: Vec::new(),
            parts: HashMap::new(),
            tools: HashMap::new(),
            steps: HashSet::new(),
            lanes: HashSet::new(),
            asks: HashMap::new(),
            title: None,
            foreign: VecDeque::new(),
            early: HashMap::new(),
            early_bytes: 0,
            waiting: VecDeque::new(),
            is_behind: false,
            is_text_final: false,
        }
    }

    /// The task has a session now.
    pub(super) fn bind(&mut self, session: SessionId, title: Option<String>) {
        (self.session, self.title) = (Some(session), title);
    }

    /// Another prompt takes the place of the first, which had no answer.
    pub(super) fn expect(&mut self, prompt: MessageId) {
        self.prompts.insert(prompt);
        self.begun = false;
    }

    /// Whether events did not fit: the stored state has to be read. Asking resets it.
    pub(super) fn take_behind(&mut self) -> bool {
        std::mem::take(&mut self.is_behind)
    }

    /// Whether the session has taken the prompt.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// A request was answered here, and that was told.
    pub(super) fn note_resolved(&mut self, request: &str) {
        self.asks.insert(request.to_owned(), false);
    }

    /// Forgets the open requests but these. One that is still open at the agent runtime is asked anew then.
    pub(super) fn retain_asks(&mut self, known: impl Fn(&str) -> bool) {
        self.asks.retain(|id, is_open| !*is_open || known(id));
    }

    /// Whether the end of a message was told.
    pub(super) fn has_completed(&self, message: &MessageId) -> bool {
        self.messages.get(message).is_some_and(|told| told.is_complete)
    }

    /// Remembers an event that was told before a restart.
    pub(super) fn restore(&mut self, event: &TaskEvent) {
        match event {
            TaskEvent::Artifact { id: ArtifactId::Lane(lane), parts, append, mark, .. } => {
                let is_new = self.lanes.insert(lane.clone());
                let message = mark.as_ref().and_then(|mark| MessageId::parse(mark.message_id.as_deref()?).ok());
                match (lane, message) {
                    (Lane::Tool(part), _) => {
                        let payload = parts.first().map(|part| &part.content);
                        if let (Ok(part), Some(Content::Data(data))) = (PartId::parse(part), payload) {
                            self.tools.insert(part, (data.clone(), tool::rank_of(data)));
                        }
                    }
                    (lane, Some(message)) if *append || is_new => {
                        let told = self.told(&message);
                        for part in parts {
                            if let Content::Text(text) = &part.content {
                                told.channel(lane.block()).restore(text);
                            }
                        }
                    }
                    _ => self.is_text_final |= *lane == Lane::Text,
                }
            }
            TaskEvent::Status { metadata, .. } => self.restore_shared(metadata),
            TaskEvent::Artifact { .. } | TaskEvent::Message(_) => {}
        }
    }

    /// Remembers what metadata tells already.
    pub(super) fn restore_shared(&mut self, metadata: &JsonMap) {
        let Some(shared) = metadata.get("shared") else { return };
        let text = |member: &str, name: &str| shared.get(member)?.get(name)?.as_str().map(str::to_owned);
        if let Some(part) = text("progress", "part_id").and_then(|id| PartId::parse(&id).ok()) {
            self.steps.insert(part);
        }
        if let Some(title) = text("session", "title") {
            self.title = Some(title);
        }
        if let Some(request) = text("interrupt", "request_id") {
            self.asks.insert(request, text("interrupt", "phase").as_deref() == Some("asked"));
        }
    }

    /// An event of the session, or of a subagent.
    pub(super) fn event(&mut self, body: &EventBody) -> Vec<News> {
        let mut news = Vec::new();
        self.take(body, &mut news);
        news
    }

    /// The stored messages from the prompt on: what was missed is told now.
    pub(super) fn stored(&mut self, messages: &[MessageWithParts]) -> Vec<News> {
        let mut news = Vec::new();
        for message in messages {
            self.take_message(&message.info, &mut news);
            if !self.is_ours(message.info.id()) {
                continue;
            }
            for part in &message.parts {
                self.take_part(part, &mut news);
                if let Some(head) = part.head()
                    && let Some((message, block)) = self.parts.get(&head.id).cloned()
                    && let Some(told) = self.messages.get_mut(&message)
                {
                    // Deltas that are on their way may be part of it already.
                    told.channel(block).doubt(&head.id);
                }
            }
        }
        news
    }

    /// The open requests of the session and its subagents: those that are new, and the end of those that are gone.
    pub(super) fn open_asks(&mut self, asks: &[EventBody]) -> Vec<News> {
        let mut news = Vec::new();
        let open: HashSet<String> = asks.iter().filter_map(ask_id).collect();
        let gone: Vec<String> = self
            .asks
            .iter()
            .filter(|(id, is_open)| **is_open && !open.contains(*id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.resolve(id, false, &mut news);
        }
        for ask in asks {
            self.take(ask, &mut news);
        }
        news
    }

    /// What is left to tell once the answer is known. If the text differs from what was told, all of it is told again.
    pub(super) fn finish(&mut self, answer: Option<&MessageWithParts>) -> Vec<News> {
        let mut news = Vec::new();
        if let Some(answer) = answer {
            // The runtime says that it is the answer, whatever its parent is.
            self.told(answer.info.id());
            news = self.stored(std::slice::from_ref(answer));
        }
        let differs = self.messages.values().any(|told| !told.is_hidden && told.text.differs());
        if differs && !self.is_text_final {
            self.is_text_final = true;
            let texts = self.order.iter().filter_map(|id| {
                let told = self.messages.get(id).filter(|told| !told.is_hidden)?;
                Some(Part::text(told.text.known())).filter(|part| part.content != Content::Text(String::new()))
            });
            let parts: Vec<Part> = texts.collect();
            let message_id = answer.map(|answer| answer.info.id().to_string());
            let mark = StreamMark { message_id, source: "stream".to_owned(), role: None };
            let append_any = !self.lanes.is_empty();
            self.lanes.insert(Lane::Text);
            news.push(News::Block(Chunk { lane: Lane::Text, parts, append: false, append_any, mark }));
        }
        news
    }

    /// `metadata.shared.session`, if the task has a session.
    pub(super) fn session(&self) -> Option<Json> {
        let session = self.session.as_ref()?;
        Some(match &self.title {
            Some(title) => json!({"id": session, "title": title}),
            None => json!({"id": session}),
        })
    }

    /// `metadata.shared.usage`, if anything is known.
    pub(super) fn usage(&self) -> Option<Json> {
        if self.messages.is_empty() {
            return None;
        }
        let mut cost = Usd::default();
        let [mut input, mut output, mut total, mut reasoning, mut read, mut write] = [0_u64; 6];
        for told in self.messages.values() {
            let tokens = &told.tokens;
            input += tokens.input;
            output += tokens.output;
            total += tokens.total.unwrap_or(tokens.input + tokens.output);
            reasoning += tokens.reasoning;
            read += tokens.cache.read;
            write += tokens.cache.write;
            cost += told.cost;
        }
        Some(json!({
            "input_tokens": input,
            "output_tokens": output,
            "total_tokens": total,
            "reasoning_tokens": reasoning,
            "cache_tokens": {"read_tokens": read, "write_tokens": write},
            "cost": cost,
        }))
    }
}

/// The title of a session, unless it stands in for one.
pub(super) fn title_of(title: &str) -> Option<String> {
    (!title.is_empty() && !title.starts_with(NO_TITLE)).then(|| title.to_owned())
}

fn ask_id(ask: &EventBody) -> Option<String> {
    match ask {
        EventBody::PermissionAsked(ask) => Some(ask.id.to_string()),
        EventBody::QuestionAsked(ask) => Some(ask.id.to_string()),
        _ => None,
    }
}
