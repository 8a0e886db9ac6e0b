//! Parses the static token file: `token,user,uid[,"group1,group2"]` per line
//! (docs/api/authentication.md#static-token-file).
//!
//! Fields may be quoted, a quote inside quotes is doubled, and a quoted field may hold commas and line ends. Empty
//! lines are skipped. Anything ambiguous is an error that names its line: a token that does not work, or works for
//! another user, is worse than a server that does not start.
//!
//! Tokens are stored as digests. A lookup compares digests only, so its timing reveals nothing about the tokens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::chain::Accepted;
use super::{Cause, TokenAuthenticator, sha256};
use crate::identity::User;

/// Why a token file cannot be used. Lines count from 1.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TokenFileError {
    /// Line on which the record begins (or, inside a quoted field, the offending one).
    pub line: usize,
    /// The problem.
    pub problem: Problem,
}

/// The problem with a line of a token file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Too few columns.
    #[error("expected at least 3 columns (token, user name, user id), found {0}")]
    TooFewColumns(usize),
    /// Too many columns, most often because groups were not quoted.
    #[error("expected at most 4 columns, found {0}; several groups go into one column in double quotes")]
    TooManyColumns(usize),
    /// The token is empty.
    #[error("the token is empty")]
    EmptyToken,
    /// The user name is empty.
    #[error("the user name is empty")]
    EmptyUser,
    /// One of several groups is empty.
    #[error("a group is empty")]
    EmptyGroup,
    /// The token cannot be sent in a header.
    #[error("the token holds a space or another character that cannot stand in a bearer token")]
    UnsendableToken,
    /// The same token was given before.
    #[error("the token was already given on line {0}")]
    Duplicate(usize),
    /// A quote inside an unquoted field.
    #[error("a double quote inside a field that does not begin with one")]
    BareQuote,
    /// Text between a closing quote and the next comma.
    #[error("text after the closing double quote of a field")]
    AfterQuote,
    /// A quoted field that never ends.
    #[error("a double quote is never closed")]
    OpenQuote,
    /// Not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
}

/// The authenticator of the tokens in a file.
#[derive(Clone, Debug)]
pub struct StaticTokens {
    users: HashMap<[u8; 32], Arc<User>>,
}

impl StaticTokens {
    /// Reads a whole file.
    ///
    /// # Errors
    /// The first problem of the file.
    pub fn parse(text: &[u8]) -> Result<StaticTokens, TokenFileError> {
        let text = match std::str::from_utf8(text) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                let before = &text[..error.valid_up_to()];
                let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
                return Err(TokenFileError { line, problem: Problem::NotText });
            }
        };
        let mut users: HashMap<[u8; 32], (usize, Arc<User>)> = HashMap::new();
        let mut records = Records { rest: text, line: 1 };
        while let Some((line, fields)) = records.next_record()? {
            let (token, user) = entry(fields).map_err(|problem| TokenFileError { line, problem })?;
            let digest = sha256(token.as_bytes());
            if let Some((first, _)) = users.get(&digest) {
                return Err(TokenFileError { line, problem: Problem::Duplicate(*first) });
            }
            users.insert(digest, (line, Arc::new(user)));
        }
        Ok(StaticTokens { users: users.into_iter().map(|(digest, (_, user))| (digest, user)).collect() })
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether the file has no tokens.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

impl TokenAuthenticator for StaticTokens {
    fn authenticate(&self, token: &str, _: &[String], _: SystemTime) -> Result<Option<Accepted>, Cause> {
        Ok(self.users.get(&sha256(token.as_bytes())).cloned().map(Accepted::for_this_server))
    }
}

/// Turns the fields of one record into a token and its user.
fn entry(fields: Vec<String>) -> Result<(String, User), Problem> {
    let count = fields.len();
    let mut fields = fields.into_iter();
    let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(Problem::TooFewColumns(count));
    };
    let groups = fields.next().unwrap_or_default();
    if count > 4 {
        return Err(Problem::TooManyColumns(count));
    }
    if token.is_empty() {
        return Err(Problem::EmptyToken);
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Problem::UnsendableToken);
    }
    if name.is_empty() {
        return Err(Problem::EmptyUser);
    }
    let groups: Vec<&str> = if groups.is_empty() { Vec::new() } else { groups.split(',').collect() };
    if groups.contains(&"") {
        return Err(Problem::EmptyGroup);
    }
    let mut user = User::new(name, groups);
    user.uid = uid;
    user.mark_authenticated();
    Ok((token, user))
}

/// The records of a comma-separated text, one at a time.
struct Records<'t> {
    rest: &'t str,
    line: usize,
}

impl Records<'_> {
    /// The next record and the line it begins on.
    fn next_record(&mut self) -> Result<Option<(usize, Vec<String>)>, TokenFileError> {
        while self.skip_line_end() {}
        if self.rest.is_empty() {
            return Ok(None);
        }
        let begins = self.line;
        let mut fields = Vec::new();
        loop {
            fields.push(if self.rest.starts_with('"') { self.quoted()? } else { self.plain()? });
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
            } else if self.rest.is_empty() || self.skip_line_end() {
                return Ok(Some((begins, fields)));
            } else {
                return Err(self.error(Problem::AfterQuote));
            }
        }
    }

    fn skip_line_end(&mut self) -> bool {
        let rest = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
        if let Some(rest) = rest {
            self.rest = rest;
            self.line += 1;
        }
        rest.is_some()
    }

    /// A field up to the next comma or line end.
    fn plain(&mut self) -> Result<String, TokenFileError> {
        let end = self.rest.find([',', '\n', '"']).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(end);
        if rest.starts_with('"') {
            return Err(self.error(Problem::BareQuote));
        }
        let field = if rest.starts_with('\n') { field.strip_suffix('\r').unwrap_or(field) } else { field };
        self.rest = &self.rest[field.len()..];
        Ok(field.to_owned())
    }

    /// A field in double quotes.
    fn quoted(&mut self) -> Result<String, TokenFileError> {
        let opened = self.line;
        let mut field = String::new();
        self.rest = &self.rest[1..];
        loop {
            let Some(end) = self.rest.find('"') else {
                return Err(TokenFileError { line: opened, problem: Problem::OpenQuote });
            };
            let (part, rest) = self.rest.split_at(end);
            self.line += part.bytes().filter(|&byte| byte == b'\n').count();
            field.push_str(part);
            self.rest = &rest[1..];
            match self.rest.strip_prefix('"') {
                Some(rest) => {
                    field.push('"');
                    self.rest = rest;
                }
                None => return Ok(field),
            }
        }
    }

    fn error(&self, problem: Problem) -> TokenFileError {
        TokenFileError { line: self.line, problem }
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
        // docs/api/authentication.md#static-token-file.
        let file = StaticTokens::parse(
            b"t1,jane,1\r\n\nt2,\"doe, j\",2,dev\nt3,jim,,\"dev,ops\"\nt4,quo\xc3\xa9,4,\"a \"\"b\"\"\"\nt5,x,5,\n",
        )
        .unwrap();
        for (token, user) in [
            ("t1", Some("jane/1/system:authenticated")),
            ("t2", Some("doe, j/2/dev+system:authenticated")),
            ("t3", Some("jim//dev+ops+system:authenticated")),
            ("t4", Some("quoé/4/a \"b\"+system:authenticated")),
            ("t5", Some("x/5/system:authenticated")),
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
    fn a_doubtful_file_is_refused_with_its_line() {
        for (text, message) in [
            ("a,b", "line 1: expected at least 3 columns (token, user name, user id), found 2"),
            ("# comment", "line 1: expected at least 3 columns (token, user name, user id), found 1"),
            (
                "t,u,1,g1,g2",
                "line 1: expected at most 4 columns, found 5; several groups go into one column in double quotes",
            ),
            ("t,u,1\n\n,u,2", "line 3: the token is empty"),
            ("t,,1", "line 1: the user name is empty"),
            ("t,u,1,\"a,,b\"", "line 1: a group is empty"),
            (
                "t t,u,1",
                "line 1: the token holds a space or another character that cannot stand in a bearer token",
            ),
            ("a,u,1\nb,v,2\na,w,3", "line 3: the token was already given on line 1"),
            ("a,u\"v,1", "line 1: a double quote inside a field that does not begin with one"),
            ("a,u,1\nb,\"v\"x,2", "line 2: text after the closing double quote of a field"),
            ("a,u,1\nb,\"v,2\n\n", "line 2: a double quote is never closed"),
            ("a,\"u\n\nv\",1,\"x\"y", "line 3: text after the closing double quote of a field"),
        ] {
            assert_eq!(StaticTokens::parse(text.as_bytes()).unwrap_err().to_string(), message, "{text:?}");
        }
        assert_eq!(StaticTokens::parse(b"a,b,c\n\xff").unwrap_err().to_string(), "line 2: not UTF-8 text");
    }
}
