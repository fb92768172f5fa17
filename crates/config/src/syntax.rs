//! The formats that configuration is written in: JSON with comments, and YAML front matter in markdown.

pub(crate) mod frontmatter;
pub(crate) mod jsonc;
