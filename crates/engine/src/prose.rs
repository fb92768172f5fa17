//! Text and reasoning while they are written: subscribers get every piece at once, the row follows now and then.

use std::time::{Duration, Instant};

use api::{Extra, MessageId, Part, PartHead, PartTime, ReasoningPart, TextPart};
use store::StoreError;

use crate::step::put_part;
use crate::turn::Turn;

/// A part that is being written reaches its row this often; its text reaches subscribers at once.
const ROW_INTERVAL: Duration = Duration::from_millis(250);

/// The text or reasoning that is being written, if any.
pub(crate) struct Prose {
    open: Option<Part>,
    saved: Instant,
}

impl Default for Prose {
    fn default() -> Self {
        Self { open: None, saved: Instant::now() }
    }
}

impl Prose {
    /// Whether reasoning is being written.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self.open, Some(Part::Reasoning(_)))
    }

    /// Adds to what is written. What is of the other kind must have [ended](Self::end) before. `held`: its beginning may
    /// wait for the next commit, with which the caller sends it out before it waits for anything.
    pub(crate) async fn write(
        &mut self,
        turn: &Turn,
        message: &MessageId,
        delta: &str,
        reasoning: bool,
        held: bool,
    ) -> Result<(), StoreError> {
        if self.open.is_none() {
            let part = blank(PartHead::new(&turn.session_id, message), reasoning);
            let mut batch = turn.batch();
            put_part(&mut batch, &part);
            if held {
                turn.hold(batch);
            } else {
                turn.store().commit(batch).await?;
            }
            self.saved = Instant::now();
            self.open = Some(part);
        }
        let Some(part) = &mut self.open else { return Ok(()) };
        match part {
            Part::Text(text) => text.text.push_str(delta),
            Part::Reasoning(text) => text.text.push_str(delta),
            _ => {}
        }
        turn.live(part, delta);
        if self.saved.elapsed() >= ROW_INTERVAL {
            let mut batch = turn.batch();
            batch.progress(part);
            self.saved = Instant::now();
            turn.store().commit(batch).await?;
        }
        Ok(())
    }

    /// What was written is complete. `set_aside`: the model shall not see it again.
    pub(crate) fn end(&mut self, set_aside: bool) -> Option<Part> {
        let mut part = self.open.take()?;
        let end = Some(api::now());
        match &mut part {
            Part::Text(text) => {
                text.ignored = set_aside.then_some(true);
                text.time.get_or_insert_default().end = end;
            }
            Part::Reasoning(text) => text.time.end = end,
            _ => {}
        }
        Some(part)
    }

    /// Whether nothing is being written that is of the other kind.
    pub(crate) fn fits(&self, reasoning: bool) -> bool {
        self.open.is_none() || self.is_reasoning() == reasoning
    }
}

fn blank(head: PartHead, reasoning: bool) -> Part {
    let (text, time, extra) = (String::new(), PartTime { start: api::now(), end: None }, Extra::default());
    if reasoning {
        return Part::Reasoning(ReasoningPart { head, text, metadata: None, time, extra });
    }
    let (synthetic, ignored, metadata) = (None, None, None);
    Part::Text(TextPart { head, text, synthetic, ignored, time: Some(time), metadata, extra })
}
