//! The extensions of the protocol that this service speaks, and how requests ask for them.

use http::HeaderMap;

use super::methods;
use crate::model::Line;

/// An extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Extension {
    /// Continuing a session of the agent runtime.
    SessionBinding,
    /// Choosing the model of a request.
    ModelSelection,
    /// Metadata of stream events: blocks, numbers, progress, usage.
    StreamHints,
    /// Answering permissions and questions.
    InteractiveInterrupt,
    /// Reading and controlling sessions.
    SessionManagement,
    /// Listing providers and models.
    ProviderDiscovery,
    /// Listing and changing projects, workspaces and worktrees.
    WorkspaceControl,
    /// Listing permissions and questions that wait for an answer.
    InterruptRecovery,
    /// What the service retains over versions.
    CompatibilityProfile,
    /// Which methods the service has.
    WireContract,
    /// The sessions of subagents below a task.
    SubagentTree,
}

impl Extension {
    /// All extensions.
    pub const ALL: [Self; 11] = [
        Self::SessionBinding,
        Self::ModelSelection,
        Self::StreamHints,
        Self::InteractiveInterrupt,
        Self::SessionManagement,
        Self::ProviderDiscovery,
        Self::WorkspaceControl,
        Self::InterruptRecovery,
        Self::CompatibilityProfile,
        Self::WireContract,
        Self::SubagentTree,
    ];

    /// The extensions that bear on messages and tasks.
    const OF_TASKS: [Self; 5] =
        [Self::SessionBinding, Self::ModelSelection, Self::StreamHints, Self::InteractiveInterrupt, Self::SubagentTree];

    /// Its identifier.
    pub fn urn(self) -> &'static str {
        match self {
            Self::SessionBinding => "urn:opencode-a2a:extension:session-binding:v1",
            Self::ModelSelection => "urn:opencode-a2a:extension:model-selection:v1",
            Self::StreamHints => "urn:opencode-a2a:extension:stream-hints:v1",
            Self::InteractiveInterrupt => "urn:opencode-a2a:extension:interactive-interrupt:v1",
            Self::SessionManagement => "urn:opencode-a2a:extension:session-management:v1",
            Self::ProviderDiscovery => "urn:opencode-a2a:extension:provider-discovery:v1",
            Self::WorkspaceControl => "urn:opencode-a2a:extension:workspace-control:v1",
            Self::InterruptRecovery => "urn:opencode-a2a:extension:interrupt-recovery:v1",
            Self::CompatibilityProfile => "urn:opencode-a2a:extension:compatibility-profile:v1",
            Self::WireContract => "urn:opencode-a2a:extension:wire-contract:v1",
            Self::SubagentTree => "urn:trefoil:a2a:extension:subagent-tree:v1",
        }
    }

    /// Its older identifier, which clients of 0.3 know.
    pub fn older_identifier(self) -> Option<String> {
        let anchor = match self {
            Self::SessionBinding => "shared-session-binding-v1",
            Self::ModelSelection => "shared-model-selection-v1",
            Self::StreamHints => "shared-stream-hints-v1",
            Self::InteractiveInterrupt => "shared-interactive-interrupt-v1",
            Self::SessionManagement => "opencode-session-management-v1",
            Self::ProviderDiscovery => "opencode-provider-discovery-v1",
            Self::WorkspaceControl => "opencode-workspace-control-v1",
            Self::InterruptRecovery => "opencode-interrupt-recovery-v1",
            Self::CompatibilityProfile => "a2a-compatibility-profile-v1",
            Self::WireContract => "a2a-wire-contract-v1",
            Self::SubagentTree => return None,
        };
        Some(format!("{OLDER_PREFIX}{anchor}"))
    }

    /// The extension that either identifier names.
    pub fn parse(identifier: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|extension| {
            extension.urn() == identifier
                || (identifier.starts_with(OLDER_PREFIX) && extension.older_identifier().as_deref() == Some(identifier))
        })
    }

    /// The extension that a method belongs to.
    pub fn of_method(name: &str) -> Option<Self> {
        methods::EXTENSIONS.iter().find(|method| method.name == name).map(|method| method.extension)
    }
}

const OLDER_PREFIX: &str =
    "https://github.com/Intelligent-Internet/opencode-a2a/blob/main/docs/extension-specifications.md#";

/// A set of extensions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtensionSet(u16);

impl ExtensionSet {
    /// No extension.
    pub const NONE: Self = Self(0);
    /// All extensions.
    pub const ALL: Self = Self(u16::MAX);

    /// Whether it has an extension.
    pub fn contains(self, extension: Extension) -> bool {
        self.0 & (1 << extension as u8) != 0
    }

    /// Adds an extension.
    pub fn insert(&mut self, extension: Extension) {
        self.0 |= 1 << extension as u8;
    }
}

/// What a request is about, which decides the extensions that bear on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Messages and tasks, or nothing that the service knows.
    Tasks,
    /// The extended card, which describes all extensions.
    Card,
    /// A method of an extension.
    Method(Extension),
}

/// The header of both lines.
pub(super) const HEADER: &str = "a2a-extensions";
/// The header that clients of 0.3 also use.
pub(super) const OLDER_HEADER: &str = "x-a2a-extensions";
/// The most identifiers of a request that are read.
const MAX_REQUESTED: usize = 64;

/// The extensions that a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    /// The identifiers, as the client spells them.
    pub identifiers: Vec<String>,
    /// Whether they came in the older header alone, which the response then uses too.
    pub older_header: bool,
}

impl Requested {
    /// Reads both headers, each of which may come several times and hold a list.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let mut requested = Self::default();
        for name in [HEADER, OLDER_HEADER] {
            for value in headers.get_all(name) {
                let Ok(text) = value.to_str() else { continue };
                for identifier in text.split(',').map(str::trim).filter(|identifier| !identifier.is_empty()) {
                    if requested.identifiers.len() < MAX_REQUESTED
                        && !requested.identifiers.iter().any(|known| known == identifier)
                    {
                        requested.identifiers.push(identifier.to_owned());
                    }
                }
            }
        }
        requested.older_header = headers.contains_key(OLDER_HEADER) && !headers.contains_key(HEADER);
        requested
    }

    /// The requested extensions that bear on a subject.
    pub(super) fn activated(&self, subject: Subject) -> ExtensionSet {
        let mut set = ExtensionSet::NONE;
        for extension in self.identifiers.iter().filter_map(|identifier| Extension::parse(identifier)) {
            let bears = match subject {
                Subject::Tasks => Extension::OF_TASKS.contains(&extension),
                Subject::Card => true,
                Subject::Method(needed) => needed == extension,
            };
            if bears {
                set.insert(extension);
            }
        }
        set
    }

    /// The activated identifiers as the client spells them: the value of the response header.
    pub(super) fn confirmed(&self, activated: ExtensionSet) -> String {
        let is_active = |identifier: &&String| Extension::parse(identifier).is_some_and(|it| activated.contains(it));
        let confirmed: Vec<&str> = self.identifiers.iter().filter(is_active).map(String::as_str).collect();
        confirmed.join(",")
    }
}

/// What of the requested extensions shows in payloads. In 0.3 their metadata is always there.
pub(super) fn visible(line: Line, activated: ExtensionSet) -> ExtensionSet {
    match line {
        Line::V03 => {
            let mut all = ExtensionSet::NONE;
            Extension::ALL.into_iter().filter(|it| *it != Extension::SubagentTree).for_each(|it| all.insert(it));
            if activated.contains(Extension::SubagentTree) {
                all.insert(Extension::SubagentTree);
            }
            all
        }
        Line::V10 => activated,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn both_identifiers_name_an_extension() {
        for extension in Extension::ALL {
            assert_eq!(Extension::parse(extension.urn()), Some(extension));
            if let Some(older) = extension.older_identifier() {
                assert_eq!(Extension::parse(&older), Some(extension));
            }
        }
        assert_eq!(Extension::parse("urn:opencode-a2a:extension:session-binding:v2"), None);
    }

    #[test]
    fn lists_in_both_headers_are_read_once_each() {
        let mut headers = HeaderMap::new();
        let urn = Extension::StreamHints.urn();
        let older = Extension::SessionBinding.older_identifier().unwrap();
        headers.append(HEADER, HeaderValue::from_str(&format!("{urn}, urn:unknown ,,{urn}")).unwrap());
        headers.append(OLDER_HEADER, HeaderValue::from_str(&older).unwrap());
        let requested = Requested::read(&headers);
        assert_eq!(requested.identifiers, [urn, "urn:unknown", &older]);
        assert!(!requested.older_header);
        let activated = requested.activated(Subject::Tasks);
        assert!(activated.contains(Extension::StreamHints) && activated.contains(Extension::SessionBinding));
        assert_eq!(requested.confirmed(activated), format!("{urn},{older}"));
        assert_eq!(requested.activated(Subject::Method(Extension::WorkspaceControl)), ExtensionSet::NONE);
    }
}
