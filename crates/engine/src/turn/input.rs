//! Turns client input into a stored message. Files are read now, so that the turn sees what the user saw.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{
    AgentPart, Extra, FilePart, HostError, Message, MessageError, MessageId, ModelRef, Part, PartHead, PromptInput,
    PromptPart, Session, SessionId, SubtaskPart, TextPart, UserMessage, UserTime,
};
use base64::Engine as _;

use crate::Inner;
use crate::ask::rules::Level;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::project::mcp;
use crate::turn::structured_output;

/// The maximum number of parts in one prompt.
const PARTS_MAX: usize = 1_000;
/// The maximum size of one `data:` URL.
const DATA_MAX: usize = 20 << 20;
/// The maximum size of one inlined `data:` text.
const INLINE_MAX: usize = 1 << 20;

/// A prompt that is ready to be stored.
pub(crate) struct AcceptedPrompt {
    pub(crate) message: UserMessage,
    pub(crate) parts: Vec<Part>,
    /// Files that could not be read. The turn runs anyway, and the model is told.
    pub(crate) problems: Vec<MessageError>,
    /// The file versions learned by reading its files.
    pub(crate) file_changes: Vec<tools::Change>,
}

impl AcceptedPrompt {
    pub(crate) fn info(&self) -> Message {
        Message::User(self.message.clone())
    }

    fn set_message_id(&mut self, id: MessageId) {
        self.parts.iter_mut().filter_map(Part::head_mut).for_each(|head| head.message_id = id.clone());
        self.message.id = id;
    }
}

impl Inner {
    /// Checks a prompt and reads the files it names. Stores nothing, so an error has no effect.
    pub(crate) async fn accept(
        &self,
        instance: &Instance,
        session: &Session,
        input: PromptInput,
    ) -> Result<AcceptedPrompt, HostError> {
        if input.parts.len() > PARTS_MAX {
            return Err(HostError::Invalid(format!(
                "A prompt has at most {PARTS_MAX} parts, got {}",
                input.parts.len()
            )));
        }
        let agent_name = input.agent.or_else(|| session.agent.clone()).unwrap_or_else(|| instance.default_agent());
        let agent = instance.agent(&agent_name)?;
        let last = session.model.as_ref().map(|m| ModelRef {
            provider_id: m.provider_id.clone(),
            model_id: m.id.clone(),
            variant: m.variant.clone().filter(|v| v != "default"),
        });
        let usable = |model: &ModelRef| self.resolve(instance, model).is_ok();
        let remote = instance.remote(&agent_name).map(|remote| remote.model(&agent_name));
        let mut model = match (remote, input.model.or_else(|| agent.model.clone())) {
            (Some(model), _) => model,
            (None, Some(model)) => {
                self.check_model(instance, &model).await?;
                model
            }
            (None, None) => match last.filter(usable) {
                Some(model) => model,
                None => self.default_model(instance).await?,
            },
        };
        model.variant = input.variant.or(model.variant).or_else(|| agent.variant.clone());
        let chosen = input.message_id;
        let message = UserMessage {
            id: chosen.clone().unwrap_or_else(MessageId::new),
            session_id: session.id.clone(),
            time: UserTime { created: api::now() },
            format: input.format.map(structured_output::complete),
            summary: None,
            agent: agent_name,
            model,
            system: input.system,
            tools: input.tools,
            extra: Extra::default(),
        };
        let mut accepted =
            AcceptedPrompt { message, parts: Vec::new(), problems: Vec::new(), file_changes: Vec::new() };
        let reader = PromptReader { inner: self, instance, session: &session.id };
        for part in input.parts {
            self.check_part(&part)?;
            reader.read_part(&mut accepted, part).await?;
        }
        if chosen.is_none() {
            // The id is made last: reading may take a while, and clients sort by id.
            accepted.set_message_id(MessageId::after(self.store.newest_stamp(&session.id).map_err(store_error)?));
        }
        Ok(accepted)
    }
}

impl Inner {
    /// Rejects a part id that is in use, because it would move another message's part here, and a huge image, because
    /// every step would send it.
    fn check_part(&self, part: &PromptPart) -> Result<(), HostError> {
        let (PromptPart::Text { id, .. }
        | PromptPart::File { id, .. }
        | PromptPart::Agent { id, .. }
        | PromptPart::Subtask { id, .. }) = part;
        if let Some(id) = id
            && self.store.part(id).map_err(store_error)?.is_some()
        {
            return Err(HostError::Conflict(format!("The part id {id} is in use")));
        }
        match part {
            PromptPart::File { url, .. } if url.starts_with("data:") && url.len() > DATA_MAX => {
                Err(HostError::Invalid(format!("A data: address has at most {DATA_MAX} bytes, got {}", url.len())))
            }
            _ => Ok(()),
        }
    }
}

struct PromptReader<'a> {
    inner: &'a Inner,
    instance: &'a Instance,
    session: &'a SessionId,
}

impl PromptReader<'_> {
    async fn read_part(&self, accepted: &mut AcceptedPrompt, part: PromptPart) -> Result<(), HostError> {
        let head = |id: Option<api::PartId>, accepted: &AcceptedPrompt| {
            let mut head = PartHead::new(self.session, &accepted.message.id);
            if let Some(id) = id {
                head.id = id;
            }
            head
        };
        match part {
            PromptPart::Text { id, text, synthetic, ignored, time, metadata } => {
                let head = head(id, accepted);
                accepted.parts.push(Part::Text(TextPart {
                    head,
                    text,
                    synthetic,
                    ignored,
                    time,
                    metadata,
                    extra: Extra::default(),
                }));
            }
            PromptPart::File { id, mime, filename, url, source } => {
                let file = FilePart { head: head(id, accepted), mime, filename, url, source, extra: Extra::default() };
                self.read_file(accepted, file).await?;
            }
            PromptPart::Agent { id, name, source } => {
                self.instance.agent(&name)?;
                let head = head(id, accepted);
                accepted.parts.push(Part::Agent(AgentPart {
                    head,
                    name: name.clone(),
                    source,
                    extra: Extra::default(),
                }));
                let text = format!(
                    "Turn the message above and what it is about into a prompt, and hand it to the subagent {name} with \
                     the task tool."
                );
                self.push_synthetic(accepted, text);
            }
            PromptPart::Subtask { id, prompt, description, agent, model, command } => {
                self.instance.agent(&agent)?;
                let head = head(id, accepted);
                let extra = Extra::default();
                accepted.parts.push(Part::Subtask(SubtaskPart {
                    head,
                    prompt,
                    description,
                    agent,
                    model,
                    command,
                    extra,
                }));
            }
        }
        Ok(())
    }

    async fn read_file(&self, accepted: &mut AcceptedPrompt, mut file: FilePart) -> Result<(), HostError> {
        if let Some((server, uri)) = mcp::resource_of(&file) {
            let servers = self.inner.servers_of(self.instance, self.session);
            for text in mcp::read_for_prompt(&servers, &server, &uri, &mut file).await {
                self.push_synthetic(accepted, text);
            }
        } else if let Some(rest) = file.url.strip_prefix("data:") {
            if file.mime == "text/plain" {
                let text = inline_text(rest)?;
                let name = file.filename.as_ref().map(|name| ("filePath".to_owned(), name.as_str().into()));
                self.push_synthetic(accepted, read_call_text(&api::Json::Object(name.into_iter().collect())));
                self.push_synthetic(accepted, text);
            }
        } else if file.url.starts_with("file:") {
            let (path, range) = file_url(&file.url)?;
            let mut input = serde_json::json!({ "filePath": path });
            if let Some((offset, limit)) = range {
                input["offset"] = offset.into();
                if let Some(limit) = limit {
                    input["limit"] = limit.into();
                }
            }
            let (offset, limit) = range.map_or((None, None), |(offset, limit)| (Some(offset), limit));
            let read = tools::read_for_prompt(&path, offset, limit, &self.context(&accepted.message)).await;
            self.push_synthetic(accepted, read_call_text(&input));
            match read {
                Ok(read) => {
                    accepted.file_changes.extend(read.changes);
                    if let Some(attachment) = read.attachments.into_iter().next() {
                        // An image stays an image, but must no longer depend on the disk.
                        file.mime = attachment.mime;
                        file.url = attachment.url;
                    } else {
                        self.push_synthetic(accepted, read.output);
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    let text =
                        format!("Read tool failed to read {} with the following error: {message}", path.display());
                    self.push_synthetic(accepted, text);
                    accepted.problems.push(MessageError::unknown(message));
                    return Ok(());
                }
            }
        } else {
            return Err(HostError::Invalid(format!(
                "A file part needs a file: or data: address, got {:?}",
                file.url.chars().take(60).collect::<String>()
            )));
        }
        // Part ids grow with their order, so the file's id comes after those of the texts made from it.
        file.head.id = api::PartId::new();
        accepted.parts.push(Part::File(file));
        Ok(())
    }

    fn context(&self, message: &UserMessage) -> tools::Context {
        tools::Context {
            session: self.session.clone(),
            message: message.id.clone(),
            call_id: String::new(),
            agent: message.agent.clone(),
            directory: self.instance.directory.clone(),
            worktree: self.instance.worktree().to_owned(),
            env: self.inner.environments.of(self.session),
            exec: self.instance.exec.clone(),
            cancel: self.inner.tasks.closing().child_token(),
            progress: tools::Progress::none(),
            options: Arc::new(self.instance.options_for_session(self.session, self.inner.known_files(self.session))),
            answers: None,
            granted: Arc::from([]),
            readable: self.instance.agents.get(&message.agent).map_or_else(tools::ReadPolicy::nothing, |agent| {
                let tighten = self.instance.loaded.config.tightened(&agent.name);
                Level::new(&agent.permission, 0, &[], &tighten).readable_files()
            }),
            traceparent: None,
        }
    }

    fn push_synthetic(&self, accepted: &mut AcceptedPrompt, text: String) {
        accepted.parts.push(synthetic_text(self.session, &accepted.message.id, text));
    }
}

/// A text for the model that the user did not write.
pub(crate) fn synthetic_text(session: &SessionId, message: &MessageId, text: String) -> Part {
    Part::Text(TextPart {
        head: PartHead::new(session, message),
        text,
        synthetic: Some(true),
        ignored: None,
        time: None,
        metadata: None,
        extra: Extra::default(),
    })
}

fn read_call_text(input: &api::Json) -> String {
    format!("Called the Read tool with the following input: {input}")
}

/// The text of a `data:` URL, without the scheme.
fn inline_text(rest: &str) -> Result<String, HostError> {
    let (head, body) =
        rest.split_once(',').ok_or_else(|| HostError::Invalid("A data: address needs a comma".to_owned()))?;
    let bytes = if head.ends_with(";base64") {
        base64::engine::general_purpose::STANDARD
            .decode(body)
            .map_err(|error| HostError::Invalid(format!("A data: address is not valid base64: {error}")))?
    } else {
        percent_decode(body)
    };
    if bytes.len() > INLINE_MAX {
        return Err(HostError::Invalid(format!(
            "An inlined text has at most {INLINE_MAX} bytes, got {}; name the file instead",
            bytes.len()
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn percent_decode(text: &str) -> Vec<u8> {
    let hex = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) =
                (bytes.get(at + 1).and_then(|b| hex(*b)), bytes.get(at + 2).and_then(|b| hex(*b)))
        {
            out.push(high * 16 + low);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

/// First line and number of lines, from `?start=&end=`.
type LineRange = (u64, Option<u64>);

/// Path and line range of a `file:` URL.
fn file_url(url: &str) -> Result<(PathBuf, Option<LineRange>), HostError> {
    let bad = || HostError::Invalid(format!("Not a usable file: address: {url:?}"));
    let parsed = url::Url::parse(url).map_err(|_| bad())?;
    let path = parsed.to_file_path().map_err(|()| bad())?;
    let number =
        |key: &str| parsed.query_pairs().find(|(k, _)| k == key).and_then(|(_, value)| value.parse::<u64>().ok());
    let range = number("start").map(|start| {
        let start = start.max(1);
        (start, number("end").map(|end| end.max(start) - start + 1))
    });
    Ok((path, range))
}

/// A prompt part for a file on disk.
pub(crate) fn file_part(path: &Path) -> Option<PromptPart> {
    let url = url::Url::from_file_path(path).ok()?;
    let directory = path.is_dir();
    Some(PromptPart::File {
        id: None,
        mime: if directory { "application/x-directory" } else { "text/plain" }.to_owned(),
        filename: path.file_name().map(|name| name.to_string_lossy().into_owned()),
        url: url.to_string(),
        source: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_urls_with_line_ranges() {
        let (path, range) = file_url("file:///p/a%20b.rs?start=3&end=5").unwrap();
        assert_eq!((path.to_str().unwrap(), range), ("/p/a b.rs", Some((3, Some(3)))));
        assert_eq!(file_url("file:///p/x").unwrap().1, None);
        assert!(file_url("file://host/x y").is_err());
    }

    #[test]
    fn inlined_texts() {
        assert_eq!(inline_text("text/plain;base64,aW5saW5l").unwrap(), "inline");
        assert_eq!(inline_text("text/plain,a%20b%").unwrap(), "a b%");
        assert!(inline_text("text/plain;base64,***").is_err());
        assert!(inline_text("nothing").is_err());
    }
}
