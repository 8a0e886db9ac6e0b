//! Parses the static token file: `token,user,uid[,"group1,group2"]` per line
//! (docs/api/authentication.md#static-token-file).
//!
//! Fields may be quoted. A quote inside a quoted field is doubled, and a quoted field may contain commas and
//! line ends. Empty lines are skipped. Files that work with kube-apiserver must also work here. Therefore, as
//! in kube-apiserver, a line with an empty token is skipped, additional columns are ignored, and the last of
//! several lines with the same token is used. Each of these cases produces a [`SuspiciousLine`] with the line
//! number.
//!
//! Tokens are stored as digests. A lookup compares only digests, so its duration reveals nothing about the
//! tokens.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::authenticator::Accepted;
use super::{Cause, TokenAuthenticator, sha256};
use crate::identity::User;

/// Reasons why a token file cannot be used, with the texts of kube-apiserver and of Go's CSV reader. The
/// first line and the first column have number 1.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenFileError {
    /// A line has too few columns. The caller inserts the file name before the text.
    #[error("must have at least 3 columns (token, user name, user uid), found {0}")]
    TooFewColumns(usize),
    /// The quotes of a record do not match.
    #[error("{}parse error on line {line}, column {column}: {problem}", Begins(*begins, *line))]
    Syntax {
        /// Line on which the record begins.
        begins: usize,
        /// Line that contains the problem.
        line: usize,
        /// Column of the problem in bytes.
        column: usize,
        /// Kind of the syntax problem.
        problem: SyntaxProblem,
    },
    /// The file is not UTF-8.
    #[error("line {line}: not UTF-8 text")]
    NotText {
        /// Line of the first byte that is not UTF-8.
        line: usize,
    },
}

/// The kind of a syntax problem with quotes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SyntaxProblem {
    /// An unquoted field contains a quote.
    #[error("bare \" in non-quoted field")]
    BareQuote,
    /// Text follows a closing quote before the next comma, or the closing quote is missing.
    #[error("extraneous or missing \" in quoted-field")]
    Quote,
}

/// The first line of a record and the line of the problem. If both lines are equal, the formatted text is
/// empty.
struct Begins(usize, usize);

impl fmt::Display for Begins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 { Ok(()) } else { write!(f, "record on line {}; ", self.0) }
    }
}

/// A line of a token file that is probably a mistake. The first line has number 1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SuspiciousLine {
    line: usize,
    what: Doubtful,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Doubtful {
    MoreColumns(usize),
    EmptyToken,
    EmptyUser,
    EmptyGroup,
    UnsendableToken,
    Duplicate(usize),
}

impl fmt::Display for SuspiciousLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.what {
            Doubtful::MoreColumns(count) => write!(
                f,
                "{count} columns, of which 4 are read: several groups go into one column in double quotes"
            ),
            Doubtful::EmptyToken => f.write_str("the token is empty, the line is skipped"),
            Doubtful::EmptyUser => f.write_str("the user name is empty"),
            Doubtful::EmptyGroup => f.write_str("a group is empty"),
            Doubtful::UnsendableToken => f.write_str(
                "the token holds a space or another character that cannot stand in a bearer token",
            ),
            Doubtful::Duplicate(first) => write!(f, "the token of line {first} is given again and replaced"),
        }
    }
}

/// The authenticator of the tokens in a token file.
#[derive(Clone, Debug)]
pub struct StaticTokens {
    users: HashMap<[u8; 32], Arc<User>>,
    doubts: Vec<SuspiciousLine>,
}

impl StaticTokens {
    /// Parses a whole file.
    ///
    /// # Errors
    /// Returns the first problem of the file.
    pub fn parse(text: &[u8]) -> Result<StaticTokens, TokenFileError> {
        let text = match std::str::from_utf8(text) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                let before = &text[..error.valid_up_to()];
                let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
                return Err(TokenFileError::NotText { line });
            }
        };
        let mut users: HashMap<[u8; 32], (usize, Arc<User>)> = HashMap::new();
        let mut doubts = Vec::new();
        let mut records = Records { rest: text, line: 1, column: 1 };
        while let Some((line, fields)) = records.next_record()? {
            let mut doubt = |what| doubts.push(SuspiciousLine { line, what });
            let Some((token, user)) = entry(fields, &mut doubt)? else { continue };
            if let Some((first, _)) = users.insert(sha256(token.as_bytes()), (line, Arc::new(user))) {
                doubt(Doubtful::Duplicate(first));
            }
        }
        let users = users.into_iter().map(|(digest, (_, user))| (digest, user)).collect();
        Ok(StaticTokens { users, doubts })
    }

    /// Returns the suspicious lines of the file, in order.
    pub fn doubts(&self) -> &[SuspiciousLine] {
        &self.doubts
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns whether the file has no tokens.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

impl TokenAuthenticator for StaticTokens {
    fn authenticate(&self, token: &str, _: &[String], _: SystemTime) -> Result<Option<Accepted>, Cause> {
        Ok(self.users.get(&sha256(token.as_bytes())).cloned().map(Accepted::for_this_server))
    }
}

/// Converts the fields of a record to a token and its user. Returns `None` if the token is empty.
fn entry(
    fields: Vec<String>,
    doubt: &mut impl FnMut(Doubtful),
) -> Result<Option<(String, User)>, TokenFileError> {
    let count = fields.len();
    let mut fields = fields.into_iter();
    let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(TokenFileError::TooFewColumns(count));
    };
    if count > 4 {
        doubt(Doubtful::MoreColumns(count));
    }
    if token.is_empty() {
        doubt(Doubtful::EmptyToken);
        return Ok(None);
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        doubt(Doubtful::UnsendableToken);
    }
    if name.is_empty() {
        doubt(Doubtful::EmptyUser);
    }
    // An empty column gives one empty group.
    let groups = fields.next();
    let groups: Vec<&str> = groups.iter().flat_map(|list| list.split(',')).collect();
    if groups.contains(&"") {
        doubt(Doubtful::EmptyGroup);
    }
    let mut user = User::new(name, groups);
    user.uid = uid;
    user.mark_authenticated();
    Ok(Some((token, user)))
}

/// An iterator over the records of a comma-separated text.
struct Records<'t> {
    rest: &'t str,
    line: usize,
    /// Column in bytes at which `rest` begins; the first column has number 1.
    column: usize,
}

impl Records<'_> {
    /// Returns the next record and the line on which it begins.
    fn next_record(&mut self) -> Result<Option<(usize, Vec<String>)>, TokenFileError> {
        while self.skip_line_end() {}
        if self.rest.is_empty() {
            return Ok(None);
        }
        let begins = self.line;
        let mut fields = Vec::new();
        loop {
            let field = if self.rest.starts_with('"') { self.quoted() } else { self.plain() };
            let problem = |problem| self.error(begins, problem);
            fields.push(field.map_err(problem)?);
            if self.rest.starts_with(',') {
                self.skip(1);
            } else if self.rest.is_empty() || self.skip_line_end() {
                return Ok(Some((begins, fields)));
            } else {
                // The error contains the column of the closing quote, not of the text after the quote.
                self.column -= 1;
                return Err(self.error(begins, SyntaxProblem::Quote));
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        self.column += bytes;
    }

    fn skip_line_end(&mut self) -> bool {
        let rest = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
        if let Some(rest) = rest {
            self.rest = rest;
            self.line += 1;
            self.column = 1;
        }
        rest.is_some()
    }

    /// Reads an unquoted field, which ends at the next comma or line end.
    fn plain(&mut self) -> Result<String, SyntaxProblem> {
        let end = self.rest.find([',', '\n', '"']).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(end);
        if rest.starts_with('"') {
            self.skip(end);
            return Err(SyntaxProblem::BareQuote);
        }
        let field = if rest.starts_with('\n') { field.strip_suffix('\r').unwrap_or(field) } else { field };
        self.skip(field.len());
        Ok(field.to_owned())
    }

    /// Reads a field in double quotes.
    fn quoted(&mut self) -> Result<String, SyntaxProblem> {
        let mut field = String::new();
        self.skip(1);
        loop {
            let end = self.rest.find('"');
            let part = &self.rest[..end.unwrap_or(self.rest.len())];
            field.push_str(part);
            self.walk(part.len(), end.is_none());
            if end.is_none() {
                return Err(SyntaxProblem::Quote);
            }
            self.skip(1);
            if !self.rest.starts_with('"') {
                return Ok(field);
            }
            field.push('"');
            self.skip(1);
        }
    }

    /// Skips text that can contain several lines. At the end of the file, the position stays on the last line
    /// with text.
    fn walk(&mut self, bytes: usize, is_end: bool) {
        let (part, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        let counted = if is_end { part.strip_suffix('\n').unwrap_or(part) } else { part };
        match counted.rfind('\n') {
            Some(at) => {
                self.line += counted.bytes().filter(|&byte| byte == b'\n').count();
                self.column = part.len() - at;
            }
            None => self.column += part.len(),
        }
    }

    fn error(&self, begins: usize, problem: SyntaxProblem) -> TokenFileError {
        TokenFileError::Syntax { begins, line: self.line, column: self.column, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(file: &StaticTokens, token: &str) -> Option<String> {
        let user = file.authenticate(token, &[], SystemTime::UNIX_EPOCH).unwrap()?.user;
        Some(format!("{}/{}/{}", user.name, user.uid, user.groups.join("+")))
    }

    #[test]
    fn each_line_gives_a_token_its_user() {
        // The rules are in docs/api/authentication.md#static-token-file.
        let file = StaticTokens::parse(
            b"t1,jane,1\r\n\nt2,\"doe, j\",2,dev\nt3,jim,,\"dev,ops\"\nt4,quo\xc3\xa9,4,\"a \"\"b\"\"\"\nt5,x,5,\n",
        )
        .unwrap();
        for (token, user) in [
            ("t1", Some("jane/1/system:authenticated")),
            ("t2", Some("doe, j/2/dev+system:authenticated")),
            ("t3", Some("jim//dev+ops+system:authenticated")),
            ("t4", Some("quoé/4/a \"b\"+system:authenticated")),
            ("t5", Some("x/5/+system:authenticated")),
            ("T1", None),
            ("t", None),
            ("", None),
        ] {
            assert_eq!(who(&file, token).as_deref(), user, "{token}");
        }
        assert_eq!(file.len(), 5);
        assert!(StaticTokens::parse(b"").unwrap().is_empty());
        assert_eq!(
            who(&StaticTokens::parse(b"\xef\xbb\xbftok,u,1").unwrap(), "tok").unwrap(),
            "u/1/system:authenticated"
        );
    }

    #[test]
    fn an_unreadable_token_file_is_refused_with_the_position() {
        for (text, message) in [
            ("a,b", "must have at least 3 columns (token, user name, user uid), found 2"),
            ("# comment", "must have at least 3 columns (token, user name, user uid), found 1"),
            ("a,u\"v,1", "parse error on line 1, column 4: bare \" in non-quoted field"),
            (
                "a,u,1\nb,\"v\"x,2",
                "parse error on line 2, column 5: extraneous or missing \" in quoted-field",
            ),
            ("a,u,1\nb,\"v,2\n", "parse error on line 2, column 8: extraneous or missing \" in quoted-field"),
            (
                "a,\"u\n\nv\",1,\"x\"y",
                "record on line 1; parse error on line 3, column 8: extraneous or missing \" in quoted-field",
            ),
            (
                "a,\"u\nv",
                "record on line 1; parse error on line 2, column 2: extraneous or missing \" in quoted-field",
            ),
        ] {
            assert_eq!(StaticTokens::parse(text.as_bytes()).unwrap_err().to_string(), message, "{text:?}");
        }
        assert_eq!(StaticTokens::parse(b"a,b,c\n\xff").unwrap_err().to_string(), "line 2: not UTF-8 text");
    }

    #[test]
    fn doubtful_lines_of_a_token_file_work_as_in_kube_apiserver_with_a_warning() {
        for (text, token, user, doubt) in [
            ("t,u,1,g,h", "t", Some("u/1/g+system:authenticated"), "line 1: 5 columns, of which 4 are read"),
            ("a,u,1\n\n,u,2", "", None, "line 3: the token is empty"),
            ("t,,1", "t", Some("/1/system:authenticated"), "line 1: the user name is empty"),
            ("t,u,1,\"a,,b\"", "t", Some("u/1/a++b+system:authenticated"), "line 1: a group is empty"),
            ("t t,u,1", "t", None, "line 1: the token holds a space"),
            ("a,u,1\nb,v,2\na,w,3", "a", Some("w/3/system:authenticated"), "line 3: the token of line 1"),
        ] {
            let file = StaticTokens::parse(text.as_bytes()).unwrap();
            assert_eq!(who(&file, token).as_deref(), user, "{text:?}");
            let [reported] = file.doubts() else { panic!("{:?}", file.doubts()) };
            assert!(reported.to_string().starts_with(doubt), "{reported}");
        }
    }
}
