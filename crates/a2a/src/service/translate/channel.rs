//! The text or the reasoning of one message: what is known of its parts, and how much of it was told.

use api::PartId;

/// The text or the reasoning of one message.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// Its parts as they are known, in order.
    parts: Vec<Known>,
    /// What was told.
    told: String,
}

#[derive(Debug)]
struct Known {
    id: PartId,
    text: String,
    /// Whether deltas may be part of the text already, so that only the next whole text counts.
    in_doubt: bool,
    is_closed: bool,
}

impl Channel {
    /// Takes in what was told before a restart.
    pub(super) fn restore(&mut self, text: &str) {
        self.told.push_str(text);
    }

    /// All that is known.
    pub(super) fn known(&self) -> String {
        if self.parts.is_empty() {
            self.told.clone()
        } else {
            self.parts.iter().map(|part| part.text.as_str()).collect()
        }
    }

    /// Whether what was told is not how the known text begins.
    pub(super) fn differs(&self) -> bool {
        !self.parts.is_empty() && self.known() != self.told
    }

    /// The whole text of a part, and deltas that came before it. Returns what is to be told.
    pub(super) fn set(&mut self, id: &PartId, text: &str, early: Option<&str>, is_closed: bool) -> Option<String> {
        let text = match early {
            // The part was created empty, or is behind its deltas.
            Some(early) if early.starts_with(text) => early,
            _ => text,
        };
        match self.parts.iter_mut().find(|part| part.id == *id) {
            // It is late.
            Some(part) if !is_closed && part.text.len() > text.len() && part.text.starts_with(text) => return None,
            Some(part) if part.is_closed && !is_closed => return None,
            Some(part) => {
                part.text = text.to_owned();
                (part.in_doubt, part.is_closed) = (false, is_closed);
            }
            None => {
                self.parts.push(Known { id: id.clone(), text: text.to_owned(), in_doubt: false, is_closed });
            }
        }
        self.advance()
    }

    /// More text of a part. Returns what is to be told.
    pub(super) fn add(&mut self, id: &PartId, delta: &str) -> Option<String> {
        let is_complete = self.is_told();
        let last = self.parts.len().checked_sub(1)?;
        let index = self.parts.iter().position(|part| part.id == *id)?;
        let part = self.parts.get_mut(index).filter(|part| !part.in_doubt && !part.is_closed)?;
        part.text.push_str(delta);
        if is_complete && index == last {
            self.told.push_str(delta);
            return Some(delta.to_owned());
        }
        self.advance()
    }

    /// Deltas of an open part that arrive from now on may be part of its text already.
    pub(super) fn doubt(&mut self, id: &PartId) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.id == *id) {
            part.in_doubt |= !part.is_closed;
        }
    }

    fn is_told(&self) -> bool {
        self.parts.iter().map(|part| part.text.len()).sum::<usize>() == self.told.len()
    }

    /// Tells what follows what was told. A text that was rewritten is not told before the end.
    fn advance(&mut self) -> Option<String> {
        let known = self.known();
        let more = known.strip_prefix(self.told.as_str())?.to_owned();
        self.told = known;
        Some(more)
    }
}
