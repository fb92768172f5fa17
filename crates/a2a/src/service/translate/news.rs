//! What a translator has to say.

use api::{JsonMap, PermissionRequest, QuestionRequest};

use crate::event::{Lane, StreamMark, TaskEvent};
use crate::model::{ArtifactId, Content, Part};

/// News for the task.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::service) enum News {
    /// More of what the turn writes.
    Block(Chunk),
    /// Progress, or a new title. The state of the task stays as it is.
    Note {
        /// Members of `metadata.shared`.
        shared: JsonMap,
        mark: StreamMark,
    },
    /// The task, or a subagent of it, asks for a permission.
    Permission(Box<PermissionRequest>),
    /// The task, or a subagent of it, asks questions.
    Question(Box<QuestionRequest>),
    /// A request was answered; `declined` if the answer was no.
    Resolved { request: String, declined: bool },
}

/// A piece of what a turn writes.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::service) struct Chunk {
    pub(in crate::service) lane: Lane,
    pub(in crate::service) parts: Vec<Part>,
    pub(in crate::service) append: bool,
    pub(in crate::service) append_any: bool,
    pub(in crate::service) mark: StreamMark,
}

impl Chunk {
    /// Adds what follows it, if both are text of the same message; else gives it back.
    pub(in crate::service) fn merge(&mut self, next: Chunk) -> Result<(), Chunk> {
        let is_text = matches!(next.lane, Lane::Text | Lane::Reasoning);
        if !is_text || !next.append || next.lane != self.lane || next.mark != self.mark {
            return Err(next);
        }
        match (self.parts.as_mut_slice(), next.parts.as_slice()) {
            ([Part { content: Content::Text(text), .. }], [Part { content: Content::Text(more), .. }]) => {
                text.push_str(more);
                Ok(())
            }
            _ => Err(next),
        }
    }

    /// It as an event.
    pub(in crate::service) fn into_event(self) -> TaskEvent {
        TaskEvent::Artifact {
            id: ArtifactId::Lane(self.lane),
            name: None,
            parts: self.parts,
            append: self.append,
            append_any: self.append_any,
            last_chunk: false,
            metadata: JsonMap::new(),
            mark: Some(self.mark),
        }
    }
}
