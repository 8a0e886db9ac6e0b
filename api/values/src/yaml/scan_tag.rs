//! Scans directives, anchors, aliases and tags.

use super::scan::{Scanned, Scanner};
use super::token::{Mark, TagDirective, TagParts, TokenKind};

impl<'t> Scanner<'t> {
    /// Scans a directive from its `%` to the end of its line.
    pub(super) fn scan_directive(&mut self) -> Scanned<TokenKind<'t>> {
        self.cursor.skip();
        let name = self.scan_name();
        if name.is_empty() {
            return Err(self.error("could not find expected directive name"));
        }
        if !self.cursor.is_white() {
            return Err(self.error("found unexpected non-alphabetical character"));
        }
        let kind = match name {
            "YAML" => self.scan_version()?,
            "TAG" => self.scan_tag_directive()?,
            _ => return Err(self.error("found unknown directive name")),
        };
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.is_break_or_end() {
            return Err(self.error("did not find expected comment or line break"));
        }
        self.cursor.take_break();
        Ok(kind)
    }

    /// Scans letters, digits, `-` and `_`.
    fn scan_name(&mut self) -> &'t str {
        let start = self.cursor.position();
        while self.cursor.is_word() {
            self.cursor.skip();
        }
        self.cursor.since(start)
    }

    fn scan_version(&mut self) -> Scanned<TokenKind<'t>> {
        self.cursor.skip_blanks();
        let major = self.scan_version_number()?;
        if self.cursor.peek() != b'.' {
            return Err(self.error("did not find expected digit or '.' character"));
        }
        self.cursor.skip();
        let minor = self.scan_version_number()?;
        Ok(TokenKind::VersionDirective { major, minor })
    }

    fn scan_version_number(&mut self) -> Scanned<u8> {
        const DIGITS_MAX: usize = 2;
        let start = self.cursor.position();
        let mut number = 0;
        while self.cursor.peek().is_ascii_digit() {
            if self.cursor.position() - start == DIGITS_MAX {
                return Err(self.error("found extremely long version number"));
            }
            number = number * 10 + (self.cursor.peek() - b'0');
            self.cursor.skip();
        }
        if self.cursor.position() == start {
            Err(self.error("did not find expected version number"))
        } else {
            Ok(number)
        }
    }

    fn scan_tag_directive(&mut self) -> Scanned<TokenKind<'t>> {
        self.cursor.skip_blanks();
        let handle = self.scan_tag_handle(true)?.to_owned();
        if !self.cursor.is_blank() {
            return Err(self.error("did not find expected whitespace"));
        }
        self.cursor.skip_blanks();
        let prefix = self.scan_tag_uri("")?;
        if !self.cursor.is_white() {
            return Err(self.error("did not find expected whitespace or line break"));
        }
        Ok(TokenKind::TagDirective(Box::new(TagDirective { handle, prefix })))
    }

    /// Scans an anchor or an alias from its `&` or `*`.
    pub(super) fn scan_anchor(&mut self) -> Scanned<(TokenKind<'t>, Mark)> {
        let is_alias = self.cursor.peek() == b'*';
        self.cursor.skip();
        let name = self.scan_name();
        let ends_well = self.cursor.is_white()
            || matches!(self.cursor.peek(), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends_well {
            return Err(self.error("did not find expected alphabetic or numeric character"));
        }
        let kind = if is_alias { TokenKind::Alias(name) } else { TokenKind::Anchor(name) };
        Ok((kind, self.cursor.mark()))
    }

    /// Scans a tag from its `!`.
    pub(super) fn scan_tag(&mut self) -> Scanned<(TokenKind<'t>, Mark)> {
        let parts = if self.cursor.peek_at(1) == b'<' {
            self.cursor.skip_many(2);
            let suffix = self.scan_tag_uri("")?;
            if self.cursor.peek() != b'>' {
                return Err(self.error("did not find the expected '>'"));
            }
            self.cursor.skip();
            TagParts { handle: String::new(), suffix }
        } else {
            let handle = self.scan_tag_handle(false)?;
            if handle.len() > 1 && handle.ends_with('!') {
                TagParts { handle: handle.to_owned(), suffix: self.scan_tag_uri("")? }
            } else {
                match self.scan_tag_uri(handle)? {
                    suffix if suffix.is_empty() => TagParts { handle: suffix, suffix: "!".to_owned() },
                    suffix => TagParts { handle: "!".to_owned(), suffix },
                }
            }
        };
        if !self.cursor.is_white() {
            return Err(self.error("did not find expected whitespace or line break"));
        }
        Ok((TokenKind::Tag(Box::new(parts)), self.cursor.mark()))
    }

    /// Scans `!`, `!word` or `!word!`. In a directive, `!word` is incomplete.
    fn scan_tag_handle(&mut self, is_directive: bool) -> Scanned<&'t str> {
        if self.cursor.peek() != b'!' {
            return Err(self.error("did not find expected '!'"));
        }
        let start = self.cursor.position();
        self.cursor.skip();
        self.scan_name();
        if self.cursor.peek() == b'!' {
            self.cursor.skip();
        } else if is_directive && self.cursor.position() > start + 1 {
            return Err(self.error("did not find expected '!'"));
        }
        Ok(self.cursor.since(start))
    }

    /// Scans the characters of a URI after `head`, the start of a tag that turned out not to be a handle.
    fn scan_tag_uri(&mut self, head: &str) -> Scanned<String> {
        let mut uri = head.as_bytes().get(1..).unwrap_or_default().to_vec();
        let start = self.cursor.position();
        loop {
            match self.cursor.peek() {
                b'%' => self.scan_uri_escapes(&mut uri)?,
                byte if self.cursor.is_word() || b";/?:@&=+$,.!~*'()[]".contains(&byte) => {
                    uri.push(byte);
                    self.cursor.skip();
                }
                _ => break,
            }
        }
        if head.is_empty() && self.cursor.position() == start {
            return Err(self.error("did not find expected tag URI"));
        }
        Ok(String::from_utf8_lossy(&uri).into_owned())
    }

    /// Scans the escaped bytes of one character.
    fn scan_uri_escapes(&mut self, uri: &mut Vec<u8>) -> Scanned {
        let mut missing = None;
        while missing != Some(0) {
            let digit = |at| char::from(self.cursor.peek_at(at)).to_digit(16);
            let octet = match (self.cursor.peek(), digit(1), digit(2)) {
                (b'%', Some(high), Some(low)) => (high << 4 | low) as u8,
                _ => return Err(self.error("did not find URI escaped octet")),
            };
            missing = Some(match (missing, octet) {
                (Some(missing), 0x80..=0xbf) => missing - 1,
                (Some(_), _) => return Err(self.error("found an incorrect trailing UTF-8 octet")),
                (None, ..=0x7f) => 0,
                (None, 0xc0..=0xdf) => 1,
                (None, 0xe0..=0xef) => 2,
                (None, 0xf0..=0xf7) => 3,
                (None, _) => return Err(self.error("found an incorrect leading UTF-8 octet")),
            });
            uri.push(octet);
            self.cursor.skip_many(3);
        }
        Ok(())
    }
}
