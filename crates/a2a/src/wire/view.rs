//! What a client sees: the syntax of its dialect, the extensions that it activated, and whether it takes text alone.

use super::dialect::{Dialect, Syntax, Transport};
use super::extension::{Extension, ExtensionSet, visible};
use crate::model::Line;

/// What a client sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// How its requests and replies are spelled.
    pub dialect: Dialect,
    /// The extensions whose metadata is shown.
    pub extensions: ExtensionSet,
    /// Whether it takes no structured data.
    pub text_only: bool,
}

impl View {
    /// What a client sees.
    pub fn new(dialect: Dialect, extensions: ExtensionSet, text_only: bool) -> Self {
        Self { dialect, extensions, text_only }
    }

    /// All that a line has to show, as JSON-RPC spells it.
    pub fn all(line: Line) -> Self {
        let extensions = visible(line, ExtensionSet::ALL);
        Self::new(Dialect::of(line, Transport::JsonRpc), extensions, false)
    }

    pub(super) fn syntax(&self) -> Syntax {
        self.dialect.syntax()
    }

    /// Whether a member of `metadata.shared` is shown.
    pub(super) fn shows_shared(&self, member: &str) -> bool {
        let extension = match member {
            "session" => Extension::SessionBinding,
            "model" => Extension::ModelSelection,
            "stream" | "progress" | "usage" => Extension::StreamHints,
            "interrupt" => Extension::InteractiveInterrupt,
            _ => return true,
        };
        self.extensions.contains(extension)
    }

    /// Whether a member of `metadata` is shown.
    pub(super) fn shows(&self, member: &str) -> bool {
        member != "trefoil" || self.extensions.contains(Extension::SubagentTree)
    }
}
