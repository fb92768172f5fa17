//! What a person types.

use std::io::{self, IsTerminal as _};

use tokio::sync::mpsc;

/// Typed lines that may wait to be read.
const MAX_LINES: usize = 16;

/// Whether a person can be asked: they must see the question and be able to answer it.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Lines typed at the terminal; `None` is the end of input. The reading thread starts with the first question.
#[derive(Default)]
pub struct LineReader(Option<mpsc::Receiver<Option<String>>>);

impl LineReader {
    /// Drops what was typed before the question appeared: it cannot be the answer.
    pub fn discard(&mut self) {
        while self.receiver().try_recv().is_ok() {}
    }

    /// The next line.
    pub async fn line(&mut self) -> Option<String> {
        self.receiver().recv().await.flatten()
    }

    fn receiver(&mut self) -> &mut mpsc::Receiver<Option<String>> {
        self.0.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(MAX_LINES);
            std::thread::spawn(move || {
                loop {
                    let mut line = String::new();
                    let line = io::stdin().read_line(&mut line).is_ok_and(|read| read > 0).then_some(line);
                    let end = line.is_none();
                    if sender.blocking_send(line).is_err() || end {
                        return;
                    }
                }
            });
            receiver
        })
    }
}
