//! The entry point for fuzzers.

use web::{SseDecoder, SseEvent};

use crate::LlmError;
use crate::openai::Decoder;
use crate::sse::MAX_EVENT;

/// Decodes any bytes as a model's stream, in chunks whose size the first byte gives. It must neither panic nor run
/// long, whatever the input.
pub fn fuzz_decoder(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    let mut reader = SseDecoder::new(MAX_EVENT);
    let mut decoder = Decoder::default();
    let mut read = |stream: &[u8], decoder: &mut Decoder| -> Result<(), LlmError> {
        let mut sink = |event: SseEvent| decoder.push(&event.data).map(drop);
        for chunk in stream.chunks(usize::from(*size).max(1)) {
            reader.push(chunk, &mut sink)?;
        }
        reader.finish(&mut sink)
    };
    if read(stream, &mut decoder).is_ok() {
        drop(decoder.finish());
    }
    // Also as a single payload and as an error body, so that short inputs reach deep.
    let text = String::from_utf8_lossy(stream);
    drop(Decoder::default().push(&text));
    drop(crate::classify::http_error(u16::from(*size) + 300, "", [], &text, std::time::SystemTime::UNIX_EPOCH));
}
