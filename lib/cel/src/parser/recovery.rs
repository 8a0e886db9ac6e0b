//! The parser's position in the grammar, the tokens expected there, and recovery after a syntax error.
//!
//! The messages and the recovery follow an ANTLR parser with its default error strategy, because the
//! reference is such a parser and users read these messages. In short, at a decision or at a token that does
//! not match, the parser does the following:
//!
//! ```text
//! the next token matches                          ─► "extraneous input": drop the current token
//! the current token may follow the expected token ─► "missing": continue as if the expected token were present
//! neither                                         ─► "mismatched input" or "no viable alternative": leave the rule,
//!                                                    and skip to a token that may follow any open rule
//! ```
//!
//! After a report the parser stays silent until a token matches. See the ANTLR 4 reference, "Automatic Error
//! Recovery".

use super::lexer::LexError;
use super::token::{Token, TokenKind, TokenSet};
use crate::error::Issue;
use crate::source::{Location, Source};

/// Maximum nesting depth of a grammar rule within itself.
const DEPTH_MAX: u16 = 250;
/// Maximum number of reported syntax errors before the parser gives up.
const SYNTAX_ERRORS_MAX: usize = 100;
/// Maximum number of recoveries before the parser gives up.
const RECOVERIES_MAX: usize = 30;
/// Maximum number of tokens that one recovery may skip.
const SKIPPED_MAX: usize = 256;

/// The rules of the grammar whose depth is counted.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Rule {
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    ExprList,
    ListInit,
    OptExpr,
    MapInit,
    FieldInit,
    OptField,
    EscapeIdent,
    Literal,
}

const RULES: usize = Rule::Literal as usize + 1;

/// The tokens that may come next at a point in a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub tokens: TokenSet,
    /// Whether the rule may end here.
    pub end: bool,
}

impl Next {
    pub const fn only(tokens: TokenSet) -> Self {
        Self { tokens, end: false }
    }

    pub const fn or_end(tokens: TokenSet) -> Self {
        Self { tokens, end: true }
    }
}

/// A point in the grammar: its unique number, and the tokens that may come there.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrammarPoint {
    pub id: u8,
    pub next: Next,
}

/// The reason why a rule ended early.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// A syntax error at this point.
    Mismatch(GrammarPoint),
    /// No alternative matches the tokens from index `start` to index `offending`.
    NoViable { point: u8, start: usize, offending: usize },
    /// The whole parse ends.
    Abort,
}

/// The end of the whole parse; the issues contain the reason. Rules recover from all other errors, so a rule
/// returns no other error. The error is a type of its own without fields, so that results take less stack
/// space in recursive calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abort;

impl From<Abort> for Stop {
    fn from(_: Abort) -> Self {
        Self::Abort
    }
}

/// The token stream with the state of error recovery.
pub(super) struct Recovery<'s> {
    pub source: &'s Source,
    pub issues: Vec<Issue>,
    tokens: Vec<Token>,
    lex_errors: Vec<LexError>,
    at: usize,
    /// For each rule being parsed, the tokens that may follow it in its caller.
    follow: Vec<Next>,
    depth: [u16; RULES],
    recovering: bool,
    last_error: Option<usize>,
    last_points: u128,
    syntax_errors: usize,
    recoveries: usize,
}

impl<'s> Recovery<'s> {
    pub fn new(source: &'s Source, tokens: Vec<Token>, lex_errors: Vec<LexError>) -> Self {
        Self {
            source,
            issues: Vec::new(),
            tokens,
            lex_errors,
            at: 0,
            follow: Vec::new(),
            depth: [0; RULES],
            recovering: false,
            last_error: None,
            last_points: 0,
            syntax_errors: 0,
            recoveries: 0,
        }
    }

    /// Reports the lexer's errors, in order.
    pub fn report_lex_errors(&mut self) -> Result<(), Abort> {
        for index in 0..self.lex_errors.len() {
            let LexError { offset, start, end } = self.lex_errors[index];
            let message = format!("token recognition error at: '{}'", &self.source.text()[start..end]);
            self.report(offset, &message)?;
        }
        Ok(())
    }

    /// Returns the token that is `ahead` tokens after the current token, or the last token if there are fewer
    /// tokens.
    pub fn peek(&self, ahead: usize) -> Token {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    pub fn kind(&self) -> TokenKind {
        self.peek(0).kind
    }

    /// Returns the index of the current token.
    pub fn index(&self) -> usize {
        self.at
    }

    /// Returns the text of a token.
    pub fn text(&self, token: Token) -> &'s str {
        &self.source.text()[token.start as usize..token.end as usize]
    }

    fn consume(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    /// Enters a rule. `follow` has the tokens that may come after the rule in its caller.
    pub fn enter(&mut self, rule: Rule, follow: Next) -> Result<(), Abort> {
        let depth = &mut self.depth[rule as usize];
        *depth += 1;
        if *depth > DEPTH_MAX {
            return Err(self.abort(format!("expression recursion limit exceeded: {DEPTH_MAX}")));
        }
        self.follow.push(follow);
        Ok(())
    }

    /// Leaves a rule. Reports a syntax error, if `outcome` has one, and skips to a token at which a caller
    /// can continue.
    pub fn exit(&mut self, rule: Rule, outcome: Result<(), Stop>) -> Result<(), Abort> {
        if let Err(stop) = outcome {
            self.handle(stop)?;
        }
        self.leave(rule);
        Ok(())
    }

    /// Leaves a rule without a syntax error.
    pub fn leave(&mut self, rule: Rule) {
        self.follow.pop();
        self.depth[rule as usize] -= 1;
    }

    /// Reports a syntax error and skips to a token at which a caller of the current rule can continue.
    pub fn handle(&mut self, stop: Stop) -> Result<(), Abort> {
        if let Stop::Abort = stop {
            return Err(Abort);
        }
        self.report_stop(stop)?;
        self.recover(stop)
    }

    /// Takes the current token, which the caller has checked.
    pub fn take(&mut self) -> Token {
        let token = self.peek(0);
        self.matched();
        self.consume();
        token
    }

    fn matched(&mut self) {
        self.recovering = false;
        self.last_error = None;
        self.last_points = 0;
    }

    /// Matches one token. `after` are the tokens that may come after it. Returns the token. If the token is
    /// missing, the current token is a placeholder for it.
    pub fn expect(&mut self, id: u8, kind: TokenKind, after: Next) -> Result<Token, Stop> {
        if self.kind() == kind {
            return Ok(self.take());
        }
        self.count_recovery()?;
        let point = GrammarPoint { id, next: Next::only(TokenSet::new(&[kind])) };
        if self.delete_token(point)? {
            return Ok(self.take());
        }
        if self.expected(after).contains(self.kind()) {
            if !self.recovering {
                self.recovering = true;
                let found = self.display(self.peek(0));
                let message = format!("missing {} at {found}", point.next.tokens.display());
                self.report(self.peek(0).offset, &message)?;
            }
            return Ok(self.peek(0));
        }
        Err(Stop::Mismatch(point))
    }

    /// Checks before a decision that the current token matches. Drops the current token if only the next
    /// token matches.
    pub fn sync(&mut self, point: GrammarPoint) -> Result<(), Stop> {
        if self.recovering || point.next.end || point.next.tokens.contains(self.kind()) {
            return Ok(());
        }
        if self.delete_token(point)? { Ok(()) } else { Err(Stop::Mismatch(point)) }
    }

    /// Checks that the current token may follow the element of a repetition that was just parsed. Skips
    /// tokens that neither continue nor end the repetition.
    pub fn sync_loop(&mut self, point: GrammarPoint) -> Result<(), Abort> {
        if self.recovering || point.next.tokens.contains(self.kind()) {
            return Ok(());
        }
        self.report_unwanted(point.next)?;
        let stop = self.expected(point.next).union(self.recovery_set());
        while self.kind() != TokenKind::End && !stop.contains(self.kind()) {
            self.consume();
        }
        Ok(())
    }

    /// Returns the tokens that may come at a point. If the rule may end there, the tokens that may follow in
    /// the callers are included.
    fn expected(&self, mut next: Next) -> TokenSet {
        let mut tokens = next.tokens;
        for follow in self.follow.iter().rev() {
            if !next.end {
                return tokens;
            }
            next = *follow;
            tokens = tokens.union(next.tokens);
        }
        if next.end { tokens.with(TokenKind::End) } else { tokens }
    }

    /// Returns the tokens that may follow any of the rules being parsed.
    fn recovery_set(&self) -> TokenSet {
        self.follow.iter().fold(TokenSet::EMPTY, |set, follow| set.union(follow.tokens))
    }

    /// Drops the current token if the next token matches.
    fn delete_token(&mut self, point: GrammarPoint) -> Result<bool, Abort> {
        if !self.expected(point.next).contains(self.peek(1).kind) {
            return Ok(false);
        }
        self.report_unwanted(point.next)?;
        self.consume();
        self.matched();
        Ok(true)
    }

    fn report_unwanted(&mut self, next: Next) -> Result<(), Abort> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        let token = self.peek(0);
        let message =
            format!("extraneous input {} expecting {}", self.display(token), self.expected(next).display());
        self.report(token.offset, &message)
    }

    fn report_stop(&mut self, stop: Stop) -> Result<(), Abort> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        match stop {
            Stop::Mismatch(point) => {
                let token = self.peek(0);
                let expected = self.expected(point.next).display();
                self.report(
                    token.offset,
                    &format!("mismatched input {} expecting {expected}", self.display(token)),
                )
            }
            Stop::NoViable { start, offending, .. } => {
                let (start, offending) = (self.tokens[start], self.tokens[offending]);
                let input = self.input(start, offending);
                // As in the reference, keywords used as field names have their own message.
                let keyword =
                    |word: &&str| input.strip_suffix(*word).is_some_and(|rest| rest.chars().count() == 1);
                let message = match ["true", "false", "null"].iter().find(|word| keyword(word)) {
                    Some(word) => format!("mismatched input '{word}' expecting IDENTIFIER"),
                    None => format!("no viable alternative at input {}", quote(&input)),
                };
                self.report(offending.offset, &message)
            }
            Stop::Abort => Err(Abort),
        }
    }

    /// Returns the text from one token to another token, without text that the lexer refused.
    fn input(&self, from: Token, to: Token) -> String {
        if from.kind == TokenKind::End {
            return "<EOF>".to_owned();
        }
        let mut input = String::new();
        let mut at = from.start as usize;
        for error in
            self.lex_errors.iter().filter(|error| (from.start..to.end).contains(&(error.start as u32)))
        {
            input.push_str(&self.source.text()[at..error.start]);
            at = error.end;
        }
        input.push_str(&self.source.text()[at..(to.end as usize).max(at)]);
        input
    }

    fn recover(&mut self, stop: Stop) -> Result<(), Abort> {
        self.count_recovery()?;
        let point = match stop {
            Stop::Mismatch(point) => point.id,
            Stop::NoViable { point, .. } => point,
            Stop::Abort => return Err(Abort),
        };
        let mut skipped = 0;
        if self.last_error == Some(self.at) && self.last_points & 1 << point != 0 {
            // The same error occurs again at the same token. The parser advances only if it skips the token.
            self.consume();
            skipped += 1;
        }
        self.last_error = Some(self.at);
        self.last_points |= 1 << point;
        let stop = self.recovery_set();
        while self.kind() != TokenKind::End && !stop.contains(self.kind()) {
            if skipped == SKIPPED_MAX {
                return Err(
                    self.abort(format!("error recovery token lookahead limit exceeded: {SKIPPED_MAX}"))
                );
            }
            self.consume();
            skipped += 1;
        }
        Ok(())
    }

    fn count_recovery(&mut self) -> Result<(), Abort> {
        if self.recoveries == RECOVERIES_MAX {
            let message = format!("error recovery attempt limit exceeded: {RECOVERIES_MAX}");
            self.report(self.peek(0).offset, &message)?;
            return Err(Abort);
        }
        self.recoveries += 1;
        Ok(())
    }

    fn report(&mut self, offset: u32, message: &str) -> Result<(), Abort> {
        let mut location = self.source.location(offset);
        if self.source.text().is_empty() {
            location.column = -1;
        }
        let full = self.syntax_errors == SYNTAX_ERRORS_MAX;
        let message = if full {
            format!("Syntax error: More than {SYNTAX_ERRORS_MAX} syntax errors")
        } else {
            format!("Syntax error: {message}")
        };
        self.issues.push(Issue { location, message });
        self.syntax_errors += 1;
        if full { Err(Abort) } else { Ok(()) }
    }

    fn abort(&mut self, message: String) -> Abort {
        self.issues.push(Issue { location: Location::NONE, message });
        Abort
    }

    fn display(&self, token: Token) -> String {
        match token.kind {
            TokenKind::End => "'<EOF>'".to_owned(),
            _ => quote(self.text(token)),
        }
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}
