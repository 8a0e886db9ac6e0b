//! Positions and tokens, which the scanner passes to the parser.

use std::borrow::Cow;

/// A position in the text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Mark {
    /// Offset in characters from the start of the text.
    pub index: usize,
    /// Line number, counted from 0.
    pub line: usize,
    /// Offset in characters from the start of the line.
    pub column: usize,
}

/// A token with its start and end.
#[derive(Debug)]
pub(super) struct YamlToken<'t> {
    pub kind: TokenKind<'t>,
    pub start: Mark,
    pub end: Mark,
}

/// The kinds of tokens. Tokens without characters of their own (`Block…Start`, `BlockEnd`, and the `Key` of a
/// simple key) follow from the indentation and from a later `:`.
#[derive(Debug)]
pub(super) enum TokenKind<'t> {
    StreamEnd,
    VersionDirective { major: u8, minor: u8 },
    TagDirective(Box<TagDirective>),
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'t str),
    Anchor(&'t str),
    Tag(Box<TagParts>),
    Scalar { text: Cow<'t, str>, is_plain: bool },
}

/// The directive `%TAG handle prefix`.
#[derive(Clone, Debug)]
pub(super) struct TagDirective {
    pub handle: String,
    pub prefix: String,
}

/// A tag as written: `!suffix`, `!handle!suffix`, or `!<suffix>`, which has an empty handle.
#[derive(Debug)]
pub(super) struct TagParts {
    pub handle: String,
    pub suffix: String,
}
