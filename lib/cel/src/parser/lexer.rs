//! Splitting of the text into tokens.
//!
//! Each token is the longest text that matches a rule; keywords take precedence over identifiers. If no rule
//! matches, the lexer reports the text from the start of the attempt up to and including the character that
//! failed, and continues after it. White space and comments are dropped.

use super::token::{Token, TokenKind};

/// The range of the text that matches no token, from the start of the attempt to the character that failed.
pub(super) struct LexError {
    pub offset: u32,
    /// Offset of the first byte of the text.
    pub start: usize,
    /// Offset after the last byte of the text.
    pub end: usize,
}

/// Returns the tokens, the last of which has the kind [`TokenKind::End`], and the errors in order of
/// position.
pub(super) fn tokenize(text: &str) -> (Vec<Token>, Vec<LexError>) {
    let mut lexer = Lexer { chars: text.char_indices().collect(), text, at: 0 };
    let (mut tokens, mut errors) = (Vec::new(), Vec::new());
    while let Some(c) = lexer.peek(0) {
        let start = lexer.at;
        if matches!(c, ' ' | '\t' | '\r' | '\n' | '\x0c') {
            lexer.at += 1;
        } else if c == '/' && lexer.peek(1) == Some('/') {
            lexer.skip_while(0, |c| c != '\n');
        } else {
            match lexer.token(c) {
                Ok((kind, len)) => {
                    lexer.at = start + len;
                    tokens.push(Token {
                        kind,
                        offset: start as u32,
                        start: lexer.byte(start),
                        end: lexer.byte(start + len),
                    });
                }
                Err(failed) => {
                    lexer.at = (start + failed + 1).min(lexer.chars.len());
                    let (from, end) = (lexer.byte(start) as usize, lexer.byte(lexer.at) as usize);
                    errors.push(LexError { offset: start as u32, start: from, end });
                }
            }
        }
    }
    let (offset, end) = (lexer.chars.len() as u32, text.len() as u32);
    tokens.push(Token { kind: TokenKind::End, offset, start: end, end });
    (tokens, errors)
}

struct Lexer<'t> {
    text: &'t str,
    chars: Vec<(usize, char)>,
    at: usize,
}

/// The kind of a token and its length in characters, or the number of characters that matched before the
/// failure.
type Match = Result<(TokenKind, usize), usize>;

impl Lexer<'_> {
    /// Returns the character that is `ahead` characters after the current position.
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).map(|&(_, c)| c)
    }

    /// Returns the byte offset of a character.
    fn byte(&self, at: usize) -> u32 {
        self.chars.get(at).map_or(self.text.len(), |&(byte, _)| byte) as u32
    }

    fn skip_while(&mut self, from: usize, holds: impl Fn(char) -> bool) {
        self.at += self.run(from, holds);
    }

    /// Returns the position of the first character, at or after `from`, for which `holds` is false.
    fn run(&self, from: usize, holds: impl Fn(char) -> bool) -> usize {
        let mut at = from;
        while self.peek(at).is_some_and(&holds) {
            at += 1;
        }
        at
    }

    fn token(&self, first: char) -> Match {
        use TokenKind as T;
        let second = self.peek(1);
        let one = |kind| Ok((kind, 1));
        let two = |kind| Ok((kind, 2));
        match first {
            '=' if second == Some('=') => two(T::Equals),
            '!' if second == Some('=') => two(T::NotEquals),
            '!' => one(T::Exclamation),
            '<' if second == Some('=') => two(T::LessEquals),
            '<' => one(T::Less),
            '>' if second == Some('=') => two(T::GreaterEquals),
            '>' => one(T::Greater),
            '&' if second == Some('&') => two(T::And),
            '|' if second == Some('|') => two(T::Or),
            '=' | '&' | '|' => Err(1),
            '[' => one(T::LeftBracket),
            ']' => one(T::RightBracket),
            '{' => one(T::LeftBrace),
            '}' => one(T::RightBrace),
            '(' => one(T::LeftParen),
            ')' => one(T::RightParen),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => {
                Ok((T::Float, self.exponent(self.digits(1))))
            }
            '.' => one(T::Dot),
            ',' => one(T::Comma),
            '-' => one(T::Minus),
            '?' => one(T::Question),
            ':' => one(T::Colon),
            '+' => one(T::Plus),
            '*' => one(T::Star),
            '/' => one(T::Slash),
            '%' => one(T::Percent),
            '`' => self.escaped_identifier(),
            '"' | '\'' => self.string(0),
            '0'..='9' => Ok(self.number()),
            'a'..='z' | 'A'..='Z' | '_' => Ok(self.word(first)),
            _ => Err(0),
        }
    }

    fn digits(&self, from: usize) -> usize {
        self.run(from, |c| c.is_ascii_digit())
    }

    /// Returns the position after an exponent at `from`, or `from` if there is no exponent.
    fn exponent(&self, from: usize) -> usize {
        if !matches!(self.peek(from), Some('e' | 'E')) {
            return from;
        }
        let sign = usize::from(matches!(self.peek(from + 1), Some('+' | '-')));
        let digits = from + 1 + sign;
        match self.digits(digits) {
            end if end > digits => end,
            _ => from,
        }
    }

    fn number(&self) -> (TokenKind, usize) {
        let unsigned = |end| match self.peek(end) {
            Some('u' | 'U') => (TokenKind::Uint, end + 1),
            _ => (TokenKind::Int, end),
        };
        if self.peek(0) == Some('0') && self.peek(1) == Some('x') {
            let end = self.run(2, |c| c.is_ascii_hexdigit());
            if end > 2 {
                return unsigned(end);
            }
        }
        let whole = self.digits(0);
        let fraction = match self.peek(whole) {
            Some('.') => self.digits(whole + 1),
            _ => whole,
        };
        let fraction = if fraction > whole + 1 { fraction } else { whole };
        match self.exponent(fraction) {
            end if end > whole => (TokenKind::Float, end),
            _ => unsigned(whole),
        }
    }

    fn word(&self, first: char) -> (TokenKind, usize) {
        let quote_at = |at| matches!(self.peek(at), Some('"' | '\''));
        let literal = match first {
            'b' | 'B' if quote_at(1) => self.string(1).map(|(_, end)| (TokenKind::Bytes, end)),
            'b' | 'B' if matches!(self.peek(1), Some('r' | 'R')) && quote_at(2) => {
                self.raw_string(2).map(|end| (TokenKind::Bytes, end)).ok_or(0)
            }
            'r' | 'R' if quote_at(1) => self.raw_string(1).map(|end| (TokenKind::String, end)).ok_or(0),
            _ => Err(0),
        };
        literal.unwrap_or_else(|_| {
            let end = self.run(0, |c| c.is_ascii_alphanumeric() || c == '_');
            let text = &self.text[self.byte(self.at) as usize..self.byte(self.at + end) as usize];
            let kind = match text {
                "in" => TokenKind::In,
                "true" => TokenKind::True,
                "false" => TokenKind::False,
                "null" => TokenKind::Null,
                _ => TokenKind::Identifier,
            };
            (kind, end)
        })
    }

    fn escaped_identifier(&self) -> Match {
        let end = self.run(1, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
        match self.peek(end) {
            Some('`') if end > 1 => Ok((TokenKind::EscapedIdentifier, end + 1)),
            _ => Err(end),
        }
    }

    /// Matches a string whose opening quote is at `open`.
    fn string(&self, open: usize) -> Match {
        let quote = self.peek(open);
        if self.peek(open + 1) == quote {
            // Two quotes are an empty string, unless they begin a triple-quoted string.
            if self.peek(open + 2) == quote
                && let Some(end) = self.triple_quoted(open + 3, quote, true)
            {
                return Ok((TokenKind::String, end));
            }
            return Ok((TokenKind::String, open + 2));
        }
        let mut at = open + 1;
        loop {
            match self.peek(at) {
                None | Some('\n' | '\r') => return Err(at),
                Some('\\') => at = self.escape(at)?,
                c if c == quote => return Ok((TokenKind::String, at + 1)),
                Some(_) => at += 1,
            }
        }
    }

    fn raw_string(&self, open: usize) -> Option<usize> {
        let quote = self.peek(open);
        if self.peek(open + 1) == quote
            && self.peek(open + 2) == quote
            && let Some(end) = self.triple_quoted(open + 3, quote, false)
        {
            return Some(end);
        }
        let end = self.run(open + 1, |c| Some(c) != quote && c != '\n' && c != '\r');
        (self.peek(end) == quote).then_some(end + 1)
    }

    /// Returns the end of a triple-quoted string whose content starts at `from`.
    fn triple_quoted(&self, from: usize, quote: Option<char>, escapes: bool) -> Option<usize> {
        let mut at = from;
        loop {
            match self.peek(at) {
                None => return None,
                Some('\\') if escapes => at = self.escape(at).ok()?,
                c if c == quote && self.peek(at + 1) == quote && self.peek(at + 2) == quote => {
                    return Some(at + 3);
                }
                Some(_) => at += 1,
            }
        }
    }

    /// Returns the end of the escape sequence whose backslash is at `at`, or the position that does not
    /// match.
    fn escape(&self, at: usize) -> Result<usize, usize> {
        let digits = |from: usize, count: usize, fits: fn(char) -> bool| {
            (from..from + count).find(|&at| !self.peek(at).is_some_and(fits)).map_or(Ok(from + count), Err)
        };
        let hex = |c: char| c.is_ascii_hexdigit();
        let octal = |c: char| matches!(c, '0'..='7');
        match self.peek(at + 1) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => Ok(at + 2),
            Some('x' | 'X') => digits(at + 2, 2, hex),
            Some('u') => digits(at + 2, 4, hex),
            Some('U') => digits(at + 2, 8, hex),
            Some('0'..='3') => digits(at + 2, 2, octal),
            _ => Err(at + 1),
        }
    }
}
