//! Tokens of the language, sets of them, and their names in error messages.

/// The kind of a token. The order is the order in which messages list expected tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum TokenKind {
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Exclamation,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
    End,
}

/// Names in messages, indexed by [`TokenKind`].
const NAMES: [&str; 36] = [
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
    "<EOF>",
];

/// A token and its position in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub kind: TokenKind,
    /// Offset in code points.
    pub offset: u32,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

/// A set of token kinds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct TokenSet(u64);

impl TokenSet {
    pub const EMPTY: Self = Self(0);

    pub const fn new(kinds: &[TokenKind]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn with(self, kind: TokenKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    pub const fn contains(self, kind: TokenKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Formats the names of the tokens. Several names are in braces.
    pub fn display(self) -> String {
        let names: Vec<&str> =
            (0..NAMES.len()).filter(|kind| self.0 & 1 << kind != 0).map(|kind| NAMES[kind]).collect();
        match names.as_slice() {
            [name] => (*name).to_owned(),
            names => format!("{{{}}}", names.join(", ")),
        }
    }
}
