//! Streams text and reasoning: subscribers get every piece at once, the row follows at intervals.
//!
//! Rows and events carry a part as a whole. So a long text is split into parts of [`PART_MAX`] bytes: the model reads
//! those of one message as one text, and clients show them one after the other.
//!
//! A block of the model gets its part with its first text, or at its end if it has only data of its vendor.

use std::time::{Duration, Instant};

use api::{Extra, JsonMap, MessageId, Part, PartHead, PartTime, ReasoningPart, TextPart};
use llm::BlockKind;
use store::StoreError;

use crate::turn::Turn;
use crate::turn::vendor_data;

/// The maximum size of one part; longer text continues in another one.
pub(crate) const PART_MAX: usize = 256 << 10;
/// How often a short part is written to its row. Its text reaches subscribers at once.
const ROW_INTERVAL: Duration = Duration::from_millis(250);
/// A part of this size is written half as often as a short one, one of twice the size a third as often. So a growing
/// row writes at most this many bytes per interval.
const ROW_BYTES: usize = 32 << 10;

/// How long a constantly changing row of this size waits between two writes. `base` is the interval of a tiny row.
pub(crate) fn row_interval(base: Duration, bytes: usize) -> Duration {
    base.saturating_mul(u32::try_from(1 + bytes / ROW_BYTES).unwrap_or(u32::MAX))
}

/// Writes the open text or reasoning part, if there is one.
pub(crate) struct TextWriter {
    open: Option<Part>,
    /// The block that the model has begun and not ended.
    block: Option<Block>,
    saved_at: Instant,
}

impl Default for TextWriter {
    fn default() -> Self {
        Self { open: None, block: None, saved_at: Instant::now() }
    }
}

/// A block of the model.
struct Block {
    kind: BlockKind,
    /// What its vendor wants back with it, as far as it is known.
    metadata: JsonMap,
}

impl TextWriter {
    /// Whether the open part is reasoning.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self.open, Some(Part::Reasoning(_)))
    }

    /// Begins a block, and ends the part before it.
    pub(crate) fn begin_block(&mut self, turn: &Turn, kind: BlockKind, metadata: JsonMap, finished: &mut Vec<Part>) {
        self.close(turn, false, finished);
        self.block = Some(Block { kind, metadata });
    }

    /// Ends the block, with what its vendor wants back. Its row goes out with the next commit. A block with neither
    /// text nor data leaves no part.
    pub(crate) fn end_block(&mut self, turn: &Turn, message: &MessageId, metadata: JsonMap, finished: &mut Vec<Part>) {
        let block = self.block.take();
        let kind = block.as_ref().map(|block| block.kind);
        let mut data = block.map(|block| block.metadata).unwrap_or_default();
        vendor_data::merge(&mut data, metadata);
        if self.open.is_none()
            && let Some(kind) = kind.filter(|_| !data.is_empty())
        {
            self.open = Some(new_part(PartHead::new(&turn.session_id, message), kind == BlockKind::Reasoning));
        }
        if let Some(part) = &mut self.open {
            vendor_data::add(part, data);
        }
        self.close(turn, false, finished);
    }

    /// Appends text. Parts that this completes, because they are full or of the other kind, go to `finished`; their
    /// rows go out with the next commit. `defer`: the first row of a part may wait for that commit too, which the
    /// caller must make before it waits for anything.
    pub(crate) async fn write(
        &mut self,
        turn: &Turn,
        message: &MessageId,
        delta: &str,
        reasoning: bool,
        defer: bool,
        finished: &mut Vec<Part>,
    ) -> Result<(), StoreError> {
        let is_other = |block: &Block| (block.kind == BlockKind::Reasoning) != reasoning;
        if self.block.as_ref().is_some_and(is_other) || (self.open.is_some() && self.is_reasoning() != reasoning) {
            self.close(turn, false, finished);
        }
        let mut rest = delta;
        while !rest.is_empty() {
            let mut room = rest.floor_char_boundary(PART_MAX.saturating_sub(self.bytes()));
            let mut defer = defer;
            if room == 0 && self.open.is_some() {
                self.end_piece(turn, finished);
                room = rest.floor_char_boundary(PART_MAX);
                // A full part is enough for one commit.
                defer = false;
            }
            let (piece, later) = rest.split_at(room);
            if self.open.is_none() {
                let mut part = new_part(PartHead::new(&turn.session_id, message), reasoning);
                if let Some(block) = &self.block {
                    vendor_data::add(&mut part, block.metadata.clone());
                }
                self.begin(turn, part, defer).await?;
            }
            self.grow(turn, piece).await?;
            rest = later;
        }
        Ok(())
    }

    async fn begin(&mut self, turn: &Turn, part: Part, defer: bool) -> Result<(), StoreError> {
        let mut batch = turn.batch();
        batch.publish_part(&part);
        if defer {
            turn.defer(batch);
        } else {
            turn.commit(batch).await?;
        }
        self.saved_at = Instant::now();
        self.open = Some(part);
        Ok(())
    }

    async fn grow(&mut self, turn: &Turn, delta: &str) -> Result<(), StoreError> {
        let Some(part) = &mut self.open else { return Ok(()) };
        match part {
            Part::Text(text) => text.text.push_str(delta),
            Part::Reasoning(text) => text.text.push_str(delta),
            _ => {}
        }
        turn.send_delta(part, delta);
        if self.saved_at.elapsed() >= row_interval(ROW_INTERVAL, bytes(part)) {
            let mut batch = turn.batch();
            batch.progress(part);
            self.saved_at = Instant::now();
            turn.commit(batch).await?;
        }
        Ok(())
    }

    /// Ends a full part, whose block goes on in the next one.
    fn end_piece(&mut self, turn: &Turn, finished: &mut Vec<Part>) {
        if let Some(part) = &mut self.open {
            vendor_data::mark_continued(part);
        }
        let block = self.block.take();
        self.close(turn, false, finished);
        self.block = block;
    }

    /// Ends the open part and moves it to `finished`; its row goes out with the next commit. `discard`: the model must
    /// not see it again.
    pub(crate) fn close(&mut self, turn: &Turn, discard: bool, finished: &mut Vec<Part>) {
        self.block = None;
        let Some(mut part) = self.open.take() else { return };
        let end = Some(api::now());
        match &mut part {
            Part::Text(text) => {
                text.ignored = discard.then_some(true);
                text.time.get_or_insert_default().end = end;
            }
            Part::Reasoning(text) => text.time.end = end,
            _ => {}
        }
        let mut batch = turn.batch();
        batch.publish_part(&part);
        turn.defer(batch);
        finished.push(part);
    }

    fn bytes(&self) -> usize {
        self.open.as_ref().map_or(0, bytes)
    }
}

fn bytes(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.text.len(),
        Part::Reasoning(text) => text.text.len(),
        _ => 0,
    }
}

fn new_part(head: PartHead, reasoning: bool) -> Part {
    let (text, time, extra) = (String::new(), PartTime { start: api::now(), end: None }, Extra::default());
    if reasoning {
        return Part::Reasoning(ReasoningPart { head, text, metadata: None, time, extra });
    }
    let (synthetic, ignored, metadata) = (None, None, None);
    Part::Text(TextPart { head, text, synthetic, ignored, time: Some(time), metadata, extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes written for a text that grows evenly, if rows are written at the interval.
    fn written(bytes_per_second: usize, seconds: usize) -> usize {
        let (mut now, mut saved, mut total) = (Duration::ZERO, Duration::ZERO, 0);
        let end = Duration::from_secs(seconds as u64);
        while now < end {
            now += Duration::from_millis(10);
            let part = (bytes_per_second * now.as_millis() as usize / 1000) % PART_MAX;
            if now - saved >= row_interval(ROW_INTERVAL, part) {
                (saved, total) = (now, total + part);
            }
        }
        total
    }

    #[test]
    fn a_long_text_is_written_at_a_bounded_rate() {
        let most = ROW_BYTES * 4 * 100;
        for rate in [100, 10_000, 1_000_000] {
            assert!(written(rate, 100) <= most, "{rate}: {} of {most}", written(rate, 100));
        }
        assert_eq!(row_interval(ROW_INTERVAL, 0), ROW_INTERVAL, "the interval of a short text is unchanged");
    }
}
