//! One event or stored part after another: what it adds to what is known, and what is to be told of it.

use std::collections::VecDeque;

use api::{AssistantMessage, EventBody, Json, JsonMap, MessageId, PartId, Session, ToolPart};
use serde_json::json;

use super::{Chunk, MAX_EARLY_BYTES, MAX_EARLY_EVENTS, MAX_FOREIGN, News, Told, Translator, title_of, tool};
use crate::event::{Block, Lane, StreamMark};
use crate::model::Part;

impl Translator {
    pub(super) fn take(&mut self, body: &EventBody, news: &mut Vec<News>) {
        match body {
            EventBody::PermissionAsked(ask) if self.ask(ask.id.as_str()) => news.push(News::Permission(ask.clone())),
            EventBody::QuestionAsked(ask) if self.ask(ask.id.as_str()) => news.push(News::Question(ask.clone())),
            EventBody::PermissionReplied { request_id, reply, .. } => {
                let declined = *reply == api::PermissionReplyKind::Reject;
                self.resolve(request_id.to_string(), declined, news);
            }
            EventBody::QuestionReplied { request_id, .. } => self.resolve(request_id.to_string(), false, news),
            EventBody::QuestionRejected { request_id, .. } => self.resolve(request_id.to_string(), true, news),
            // Everything else about subagents is their own business.
            body if body.session_id().is_none() || body.session_id() != self.session.as_ref() => {}
            EventBody::SessionUpdated { info, .. } => self.take_title(info, news),
            EventBody::MessageUpdated { info, .. } => self.take_message(info, news),
            EventBody::PartUpdated { part, .. } => {
                let Some(head) = part.head() else { return };
                if self.is_known_or_waits(&head.message_id, body) {
                    self.take_part(part, news);
                }
            }
            EventBody::PartDelta { message_id, part_id, field, delta, .. }
                if field == "text" && self.is_known_or_waits(message_id, body) =>
            {
                self.take_delta(part_id, delta, news);
            }
            _ => {}
        }
    }

    /// Whether a request is new.
    fn ask(&mut self, id: &str) -> bool {
        if self.asks.contains_key(id) {
            return false;
        }
        self.asks.insert(id.to_owned(), true).is_none()
    }

    pub(super) fn resolve(&mut self, request: String, declined: bool, news: &mut Vec<News>) {
        if let Some(is_open) = self.asks.get_mut(&request)
            && std::mem::take(is_open)
        {
            news.push(News::Resolved { request, declined });
        }
    }

    fn take_title(&mut self, info: &Session, news: &mut Vec<News>) {
        let title = title_of(&info.title);
        if title.is_none() || self.title == title {
            return;
        }
        self.title = title;
        if let (true, Some(session)) = (self.begun, self.session()) {
            self.note("session", session, None, "status", news);
        }
    }

    fn note(&self, name: &str, value: Json, message: Option<&MessageId>, source: &str, news: &mut Vec<News>) {
        let mut shared = JsonMap::new();
        shared.extend(self.session().map(|session| ("session".to_owned(), session)));
        shared.insert(name.to_owned(), value);
        let mark = StreamMark { message_id: message.map(MessageId::to_string), source: source.to_owned(), role: None };
        news.push(News::Note { shared, mark });
    }

    pub(super) fn is_ours(&self, message: &MessageId) -> bool {
        self.messages.contains_key(message)
    }

    pub(super) fn told(&mut self, message: &MessageId) -> &mut Told {
        if !self.messages.contains_key(message) {
            self.order.push(message.clone());
        }
        self.begun = true;
        self.messages.entry(message.clone()).or_default()
    }

    pub(super) fn take_message(&mut self, info: &api::Message, news: &mut Vec<News>) {
        match info {
            api::Message::User(user) => {
                if self.prompts.contains(&user.id) {
                    self.begun = true;
                } else if self.begun && !self.is_foreign(&user.id) && self.is_after_prompts(&user.id) {
                    // Somebody joined the turn; the answers belong to both.
                    self.prompts.insert(user.id.clone());
                }
                self.drop_waiting(&user.id);
            }
            api::Message::Assistant(answer) if self.prompts.contains(&answer.parent_id) => {
                self.take_answer(answer);
                self.take_waiting(&answer.id, news);
            }
            api::Message::Assistant(answer) if self.is_ours(&answer.id) => self.take_answer(answer),
            api::Message::Assistant(answer) => {
                if self.foreign.len() == MAX_FOREIGN {
                    self.foreign.pop_front();
                }
                if !self.is_foreign(&answer.id) {
                    self.foreign.push_back(answer.id.clone());
                }
                self.drop_waiting(&answer.id);
            }
        }
    }

    fn is_after_prompts(&self, message: &MessageId) -> bool {
        self.prompts.iter().min().is_none_or(|first| first < message)
    }

    fn take_answer(&mut self, answer: &AssistantMessage) {
        let told = self.told(&answer.id);
        told.is_hidden |= answer.summary == Some(true);
        told.tokens = answer.tokens.clone();
        told.cost = answer.cost;
        told.is_complete |= answer.time.completed.is_some() || answer.error.is_some();
    }

    fn is_foreign(&self, message: &MessageId) -> bool {
        self.foreign.contains(message)
    }

    /// Whether an event about a message of the turn can be used. One about a message that is not known yet waits.
    fn is_known_or_waits(&mut self, message: &MessageId, body: &EventBody) -> bool {
        if self.is_ours(message) {
            return true;
        }
        if self.prompts.contains(message) || self.is_foreign(message) || !self.is_after_prompts(message) {
            return false;
        }
        if self.waiting.len() == MAX_EARLY_EVENTS {
            self.waiting.clear();
            self.is_behind = true;
        }
        self.waiting.push_back((message.clone(), body.clone()));
        false
    }

    fn take_waiting(&mut self, message: &MessageId, news: &mut Vec<News>) {
        let (now, later) = std::mem::take(&mut self.waiting).into_iter().partition(|(of, _)| of == message);
        self.waiting = later;
        let now: VecDeque<(MessageId, EventBody)> = now;
        for (_, body) in now {
            self.take(&body, news);
        }
    }

    fn drop_waiting(&mut self, message: &MessageId) {
        self.waiting.retain(|(of, _)| of != message);
    }

    pub(super) fn take_part(&mut self, part: &api::Part, news: &mut Vec<News>) {
        match part {
            api::Part::Text(text) => {
                let is_closed = text.time.as_ref().is_some_and(|time| time.end.is_some());
                self.take_text(&text.head, Block::Text, &text.text, is_closed, news);
            }
            api::Part::Reasoning(text) => {
                self.take_text(&text.head, Block::Reasoning, &text.text, text.time.end.is_some(), news);
            }
            api::Part::Tool(tool) => self.take_tool(tool, news),
            api::Part::StepStart(step) if self.steps.insert(step.head.id.clone()) => {
                let progress = json!({"type": "step-start", "part_id": step.head.id});
                self.note("progress", progress, Some(&step.head.message_id), "progress", news);
            }
            api::Part::StepFinish(step) if self.steps.insert(step.head.id.clone()) => {
                let progress = json!({"type": "step-finish", "part_id": step.head.id, "reason": step.reason});
                self.note("progress", progress, Some(&step.head.message_id), "progress", news);
            }
            _ => {}
        }
    }

    fn take_text(&mut self, head: &api::PartHead, block: Block, text: &str, is_closed: bool, news: &mut Vec<News>) {
        self.parts.insert(head.id.clone(), (head.message_id.clone(), block));
        let early = self.early.remove(&head.id);
        if let Some(early) = &early {
            self.early_bytes = self.early_bytes.saturating_sub(early.len());
        }
        let Some(told) = self.messages.get_mut(&head.message_id) else { return };
        let is_hidden = told.is_hidden;
        let more = told.channel(block).set(&head.id, text, early.as_deref(), is_closed);
        if !is_hidden {
            self.write(&head.message_id, block, more, news);
        }
    }

    fn take_delta(&mut self, part: &PartId, delta: &str, news: &mut Vec<News>) {
        let Some((message, block)) = self.parts.get(part).cloned() else {
            if self.early_bytes + delta.len() > MAX_EARLY_BYTES {
                self.early.clear();
                self.early_bytes = 0;
                self.is_behind = true;
                return;
            }
            self.early_bytes += delta.len();
            self.early.entry(part.clone()).or_default().push_str(delta);
            return;
        };
        let Some(told) = self.messages.get_mut(&message) else { return };
        let is_hidden = told.is_hidden;
        let more = told.channel(block).add(part, delta);
        if !is_hidden {
            self.write(&message, block, more, news);
        }
    }

    fn write(&mut self, message: &MessageId, block: Block, more: Option<String>, news: &mut Vec<News>) {
        let Some(more) = more.filter(|more| !more.is_empty()) else { return };
        let lane = if block == Block::Reasoning { Lane::Reasoning } else { Lane::Text };
        if lane == Lane::Text && self.is_text_final {
            return;
        }
        let chunk = self.chunk(lane, message, "stream", Part::text(more));
        news.push(News::Block(chunk));
    }

    fn take_tool(&mut self, tool: &ToolPart, news: &mut Vec<News>) {
        let (payload, rank) = (tool::payload(tool), tool::rank(&tool.state));
        if let Some((known, known_rank)) = self.tools.get(&tool.head.id)
            && (rank < *known_rank || payload == *known || *known_rank == tool::DONE)
        {
            return;
        }
        self.tools.insert(tool.head.id.clone(), (payload.clone(), rank));
        let lane = Lane::Tool(tool.head.id.to_string());
        let chunk = self.chunk(lane, &tool.head.message_id, "tool_part_update", Part::data(payload));
        news.push(News::Block(chunk));
    }

    fn chunk(&mut self, lane: Lane, message: &MessageId, source: &str, part: Part) -> Chunk {
        let append_any = !self.lanes.is_empty();
        let append = !self.lanes.insert(lane.clone());
        let mark = StreamMark { message_id: Some(message.to_string()), source: source.to_owned(), role: None };
        Chunk { lane, parts: vec![part], append, append_any, mark }
    }
}
