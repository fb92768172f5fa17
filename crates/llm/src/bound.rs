//! The bound of an answer: no model is listened to for ever, whichever wire it speaks.

use futures::StreamExt;
use futures::stream::{self, Stream};

use crate::{LlmError, LlmEvent};

/// All that a model may say in one answer, in bytes: text, reasoning and arguments of calls. No model that is in use
/// gives an answer of a quarter of it.
pub const MAX_ANSWER: usize = 4 << 20;

/// Ends an answer that becomes longer than [`MAX_ANSWER`] with an error, and drops what it comes from: that closes the
/// connection, so that nothing more is written and paid for.
pub(crate) fn bounded(
    answer: impl Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static,
) -> impl Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static {
    stream::unfold(Some((Box::pin(answer), 0)), async |answering| {
        let (mut answer, said) = answering?;
        Some(match answer.next().await? {
            Ok(event) => match said + size(&event) {
                said if said > MAX_ANSWER => (Err(LlmError::too_long()), None),
                said => (Ok(event), Some((answer, said))),
            },
            Err(error) => (Err(error), None),
        })
    })
}

/// What an event adds to the answer.
fn size(event: &LlmEvent) -> usize {
    match event {
        LlmEvent::Text(piece) | LlmEvent::Reasoning(piece) => piece.len(),
        // The end of a call repeats what its pieces had.
        LlmEvent::ToolInput { delta, .. } => delta.len(),
        LlmEvent::ToolStart { id, name, .. } => id.len() + name.len(),
        LlmEvent::ToolEnd { .. } | LlmEvent::Usage(_) | LlmEvent::Finish(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorClass;
    use futures::stream;

    /// How many events of an endless answer come before its error.
    async fn taken(event: LlmEvent) -> usize {
        let endless = bounded(stream::repeat_with(move || Ok(event.clone())));
        let mut endless = std::pin::pin!(endless);
        for count in 0.. {
            match endless.next().await.unwrap() {
                Ok(_) => assert!(count <= MAX_ANSWER),
                Err(error) => {
                    assert_eq!(error.class, ErrorClass::TooLong);
                    assert!(error.message.contains("4 MB"), "{error}");
                    return count;
                }
            }
        }
        0
    }

    #[tokio::test]
    async fn whatever_a_model_says_has_an_end() {
        let piece = "x".repeat(1 << 10);
        let most = MAX_ANSWER >> 10;
        assert_eq!(taken(LlmEvent::Text(piece.clone())).await, most);
        assert_eq!(taken(LlmEvent::Reasoning(piece.clone())).await, most);
        assert_eq!(taken(LlmEvent::ToolInput { index: 0, delta: piece }).await, most);
    }
}
