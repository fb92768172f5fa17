//! The message of a task: arguments, standard input and files.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use api::PromptPart;
use tokio::sync::mpsc;

use crate::exit::{Exit, Failure};
use crate::terminal;

/// The most bytes that are read from standard input, which becomes one message.
const MAX_STDIN: u64 = 10 << 20;
/// How long standard input may stay open before the user is told what `run` waits for.
const STDIN_NOTICE: Duration = Duration::from_secs(2);

/// The arguments, followed by standard input unless it is a terminal.
pub async fn text(words: &[String]) -> anyhow::Result<String> {
    let mut message = words.join(" ");
    if !io::stdin().is_terminal() {
        let piped = stdin().await.context("cannot read standard input")?;
        let piped = piped.trim_end();
        if !message.is_empty() && !piped.is_empty() {
            message.push('\n');
        }
        message.push_str(piped);
    }
    Ok(message)
}

/// Reads standard input to its end on a thread of its own, so that Ctrl-C works meanwhile.
async fn stdin() -> anyhow::Result<String> {
    let (sender, mut receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let result = io::stdin().lock().take(MAX_STDIN + 1).read_to_end(&mut bytes).map(|_| bytes);
        let _ = sender.blocking_send(result);
    });
    let received = match tokio::time::timeout(STDIN_NOTICE, receiver.recv()).await {
        Ok(received) => received,
        Err(_) => {
            terminal::say("waiting for the end of standard input (redirect it from /dev/null if there is none)\n");
            receiver.recv().await
        }
    };
    let bytes = received.context("the reader stopped")??;
    if bytes.len() as u64 > MAX_STDIN {
        let failure = Failure::new(Exit::Usage, format!("it has more than {} MB", MAX_STDIN >> 20));
        return Err(failure.hint("put it into a file and name that with --file").into());
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(Exit::Usage, "it is not UTF-8 text").hint("attach binary data with --file").into())
}

/// A file, directory or image as a part of the prompt.
pub fn file(directory: &Path, path: &Path) -> anyhow::Result<PromptPart> {
    let path = directory.join(path);
    let unusable = |why: String| Failure::new(Exit::Usage, format!("cannot attach {}: {why}", path.display()));
    let absolute = path.canonicalize().map_err(|error| unusable(error.to_string()))?;
    let url = url::Url::from_file_path(&absolute).map_err(|()| unusable("it has no file address".into()))?;
    let mime = if absolute.is_dir() { "application/x-directory" } else { mime(&absolute) };
    let filename = absolute.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(PromptPart::File { id: None, mime: mime.into(), filename, url: url.into(), source: None })
}

fn mime(path: &Path) -> &'static str {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("pdf") => "application/pdf",
        _ => "text/plain",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_parts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a b.PNG"), "x").unwrap();
        let part = file(dir.path(), Path::new("a b.PNG")).unwrap();
        let PromptPart::File { mime, filename, url, .. } = part else { panic!("not a file") };
        assert_eq!((mime.as_str(), filename.as_deref()), ("image/png", Some("a b.PNG")));
        assert!(url.starts_with("file:///") && url.ends_with("a%20b.PNG"), "{url}");
        let part = file(dir.path(), Path::new(".")).unwrap();
        assert!(matches!(part, PromptPart::File { mime, .. } if mime == "application/x-directory"));
    }

    #[test]
    fn a_missing_file_is_a_usage_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = file(dir.path(), Path::new("nope")).unwrap_err();
        assert_eq!(error.downcast_ref::<Failure>().unwrap().exit, Exit::Usage);
        assert!(error.to_string().contains("nope: No such file"), "{error}");
    }
}
