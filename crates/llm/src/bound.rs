//! Bounds the length of an answer, whichever wire it comes by.

use futures::StreamExt;
use futures::stream::{self, Stream};

use crate::{LlmError, LlmEvent};

/// The maximum size of an answer in bytes: text, reasoning and arguments of calls. No model in use comes near a quarter
/// of it.
pub const MAX_ANSWER: usize = 4 << 20;

/// Ends an answer longer than [`MAX_ANSWER`] with an error and drops its source. That closes the connection, so that
/// nothing more is generated and paid for.
pub(crate) fn bounded(
    answer: impl Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static,
) -> impl Stream<Item = Result<LlmEvent, LlmError>> + Send + 'static {
    stream::unfold(Some((Box::pin(answer), 0)), async |state| {
        let (mut answer, said) = state?;
        Some(match answer.next().await? {
            Ok(event) => match said + event.size() {
                said if said > MAX_ANSWER => (Err(LlmError::too_long()), None),
                said => (Ok(event), Some((answer, said))),
            },
            Err(error) => (Err(error), None),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockKind, ErrorClass};
    use api::JsonMap;
    use futures::stream;

    /// How many events of an endless answer arrive before its error.
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
    async fn every_kind_of_output_is_bounded() {
        let piece = "x".repeat(1 << 10);
        let most = MAX_ANSWER >> 10;
        assert_eq!(taken(LlmEvent::Text(piece.clone())).await, most);
        assert_eq!(taken(LlmEvent::Reasoning(piece.clone())).await, most);
        assert_eq!(taken(LlmEvent::ToolInput { index: 0, delta: piece.clone() }).await, most);
        let result =
            LlmEvent::ToolResult { index: 0, output: piece.clone(), is_error: false, metadata: JsonMap::new() };
        assert_eq!(taken(result).await, most);
        let metadata = JsonMap::from_iter([("v".to_owned(), piece.into())]);
        assert!(taken(LlmEvent::Begin { kind: BlockKind::Reasoning, metadata: metadata.clone() }).await <= most);
        assert!(taken(LlmEvent::End { metadata }).await <= most, "vendor data counts");
    }
}
