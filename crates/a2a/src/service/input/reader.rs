//! Parts of messages as parts of prompts, with the content of the files that they name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::PromptPart;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use percent_encoding::percent_decode_str;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use url::Url;
use web::AddressGuard;

use super::disk::{self, Found};
use super::{Files, media};
use crate::model::{Content, Part};
use crate::service::fetch::fetch;
use crate::service::scope::resolve;

/// The most files of a message.
const MAX_FILES: usize = 64;
/// The most files of a message that are fetched from the web.
const MAX_FETCHED: usize = 8;
/// The most bytes of a file.
const MAX_FILE_BYTES: usize = 5 << 20;
/// The most bytes of a file that is shown as text: an agent runtime takes no more.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// The most bytes of all files of a message.
const MAX_TOTAL_BYTES: usize = 10 << 20;
/// How long reading all files of a message may take.
const MAX_TIME: Duration = Duration::from_secs(30);
/// How much of an address is shown in an error.
const MAX_SHOWN: usize = 200;

/// Base64 as clients send it: with or without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const PLAIN: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Why a part is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// It is not what it should be.
    Malformed(String),
    /// It names something that may not be read, or cannot be read.
    Refused(String),
}

impl Problem {
    /// What is wrong.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Malformed(text) | Self::Refused(text) => text,
        }
    }
}

/// Reads the files of one message, within limits for all of them.
pub(super) struct Reader<'a> {
    files: Files,
    guard: &'a AddressGuard,
    /// The directories whose files may be named, with symbolic links resolved.
    roots: Vec<PathBuf>,
    deadline: Instant,
    count: usize,
    fetched: usize,
    bytes: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(files: Files, guard: &'a AddressGuard, roots: Vec<PathBuf>) -> Self {
        let deadline = Instant::now() + MAX_TIME;
        Self { files, guard, roots, deadline, count: 0, fetched: 0, bytes: 0 }
    }

    /// A part as a part of a prompt.
    pub(super) async fn read(&mut self, part: &Part) -> Result<PromptPart, Problem> {
        let bytes = match &part.content {
            Content::Text(text) => return Ok(PromptPart::text(text.clone())),
            Content::Data(data) => {
                let name = part.filename.clone().unwrap_or_else(|| "data.json".to_owned());
                let bytes = serde_json::to_vec_pretty(data).unwrap_or_default();
                return self.content(Some(name), Some("application/json"), bytes);
            }
            Content::Raw(text) => decode(text).ok_or_else(|| malformed("the bytes are no base64"))?,
            Content::Url(address) => return self.address(part, address).await,
        };
        self.content(part.filename.clone(), part.media_type.as_deref(), bytes)
    }

    async fn address(&mut self, part: &Part, address: &str) -> Result<PromptPart, Problem> {
        let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("data") => {
                let (media_type, bytes) = data_url(address).ok_or_else(|| malformed("it is no data: address"))?;
                let media_type = part.media_type.clone().or(media_type);
                self.content(part.filename.clone(), media_type.as_deref(), bytes)
            }
            Some("file") => self.file(part, address).await,
            Some("http" | "https") => self.web(part, address).await,
            _ => {
                let shown = shown(address);
                Err(Problem::Refused(format!("{shown} is no address of a data:, file:, http: or https: file")))
            }
        }
    }

    async fn web(&mut self, part: &Part, address: &str) -> Result<PromptPart, Problem> {
        self.fetched += 1;
        if self.fetched > MAX_FETCHED {
            return Err(Problem::Refused(format!("A message names at most {MAX_FETCHED} files on the web")));
        }
        let left = MAX_FILE_BYTES.min(MAX_TOTAL_BYTES - self.bytes);
        let fetched = timeout_at(self.deadline, fetch(self.guard, address, left)).await;
        let fetched = fetched.map_err(|_| late())?.map_err(|error| Problem::Refused(error.to_string()))?;
        let name = part.filename.clone().or_else(|| {
            let url = Url::parse(address).ok()?;
            let name = url.path_segments()?.next_back()?.to_owned();
            let name = percent_decode_str(&name).decode_utf8_lossy().into_owned();
            (!name.is_empty()).then_some(name)
        });
        let media_type = part.media_type.clone().or(fetched.media_type);
        self.content(name, media_type.as_deref(), fetched.body)
    }

    async fn file(&mut self, part: &Part, address: &str) -> Result<PromptPart, Problem> {
        self.count()?;
        let url = Url::parse(address).map_err(|_| malformed("it is no file: address"))?;
        let path = url.to_file_path().map_err(|()| malformed("the file: address names no absolute path here"))?;
        let lines = disk::Lines::of(&url);
        let (files, roots) = (self.files, self.roots.clone());
        let look = spawn_blocking(move || -> Result<(PathBuf, Option<Found>), disk::DiskError> {
            let path = resolve(&path).ok_or(disk::DiskError::Outside)?;
            if !roots.iter().any(|root| path.starts_with(root)) {
                return Err(disk::DiskError::Outside);
            }
            if files == Files::Elsewhere {
                return Ok((path, None));
            }
            match disk::read(&path, MAX_FILE_BYTES) {
                Err(disk::DiskError::Missing) if files == Files::Nearby => Ok((path, None)),
                found => found.map(|found| (path, Some(found))),
            }
        });
        let looked = timeout_at(self.deadline, look).await.map_err(|_| late())?;
        let looked = looked.map_err(|_| Problem::Refused(format!("{} could not be read", shown(address))))?;
        let (path, found) = looked.map_err(|error| Problem::Refused(format!("{} {error}", shown(address))))?;
        let name = part.filename.clone().or_else(|| name_of(&path));
        match found {
            Some(Found::File(bytes)) => {
                let media_type = part.media_type.as_deref().filter(|it| *it != media::DIRECTORY);
                let bytes = match lines {
                    Some(lines) => lines.cut(bytes),
                    None => bytes,
                };
                self.content(name, media_type, bytes)
            }
            Some(Found::Directory(listing)) => self.content(name, Some(media::TEXT), listing.into_bytes()),
            None => remote(part, &path, &url, name),
        }
    }

    fn count(&mut self) -> Result<(), Problem> {
        self.count += 1;
        match self.count > MAX_FILES {
            true => Err(Problem::Refused(format!("A message has at most {MAX_FILES} files"))),
            false => Ok(()),
        }
    }

    /// The content of a file as a part.
    fn content(
        &mut self,
        filename: Option<String>,
        media_type: Option<&str>,
        bytes: Vec<u8>,
    ) -> Result<PromptPart, Problem> {
        self.count()?;
        let media_type = media::of(media_type, filename.as_deref(), &bytes);
        let name = filename.as_deref().unwrap_or("The file").to_owned();
        let limit = if media_type == media::TEXT { MAX_TEXT_BYTES } else { MAX_FILE_BYTES };
        if bytes.len() > limit {
            let message = format!("{} has {} bytes, and at most {limit} are taken", shown(&name), bytes.len());
            return Err(Problem::Refused(message));
        }
        self.bytes += bytes.len();
        if self.bytes > MAX_TOTAL_BYTES {
            let message = format!("The files of a message have at most {MAX_TOTAL_BYTES} bytes together");
            return Err(Problem::Refused(message));
        }
        let url = format!("data:{media_type};base64,{}", STANDARD.encode(&bytes));
        Ok(PromptPart::File { id: None, mime: media_type, filename, url, source: None })
    }
}

/// A file that only the agent runtime can read, by its resolved path.
fn remote(part: &Part, path: &Path, asked: &Url, filename: Option<String>) -> Result<PromptPart, Problem> {
    let mut url = Url::from_file_path(path).map_err(|()| malformed("the file: address names no absolute path here"))?;
    url.set_query(asked.query());
    let mime = part.media_type.clone().unwrap_or_else(|| media::of(None, filename.as_deref(), &[]));
    Ok(PromptPart::File { id: None, mime, filename, url: url.into(), source: None })
}

fn name_of(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

fn malformed(problem: &str) -> Problem {
    Problem::Malformed(problem.to_owned())
}

fn late() -> Problem {
    Problem::Refused(format!("The files of the message were not read within {} s", MAX_TIME.as_secs()))
}

/// An address as an error shows it.
fn shown(address: &str) -> String {
    address.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    PLAIN.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

/// The media type and the content of a `data:` address.
fn data_url(address: &str) -> Option<(Option<String>, Vec<u8>)> {
    let (head, body) = address.get(5..)?.split_once(',')?;
    let (media_type, is_base64) = match head.strip_suffix(";base64") {
        Some(head) => (head, true),
        None => (head, false),
    };
    let media_type = media_type.split(';').next().map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned);
    let unescaped: Vec<u8> = percent_decode_str(body).collect();
    let bytes = if is_base64 { decode(std::str::from_utf8(&unescaped).ok()?)? } else { unescaped };
    Some((media_type, bytes))
}
