//! The grammar, one function per rule.
//!
//! ```text
//! expr      : or ('?' or ':' expr)?
//! or        : and ('||' and)*
//! and       : relation ('&&' relation)*
//! relation  : calc (('<'|'<='|'>='|'>'|'=='|'!='|'in') relation)*
//! calc      : unary (('*'|'/'|'%') calc)* | calc (('+'|'-') calc)*
//! unary     : member | '!'+ member | '-'+ member
//! member    : primary ('.' '?'? name | '.' IDENTIFIER '(' args? ')' | '[' '?'? expr ']')*
//! primary   : '.'? IDENTIFIER ('(' args? ')')? | '(' expr ')' | '[' list? ','? ']' | '{' map? ','? '}'
//!           | '.'? IDENTIFIER ('.' IDENTIFIER)* '{' fields? ','? '}' | literal
//! literal   : '-'? NUM_INT | NUM_UINT | '-'? NUM_FLOAT | STRING | BYTES | 'true' | 'false' | 'null'
//! ```
//!
//! After a syntax error, a rule keeps the nodes that it parsed, recovers and returns normally, so that its
//! callers continue. Only exceeded limits end the parse.

use super::Syntax;
use super::builder::{Builder, Entry, Subtree, WrittenName};
use super::lexer::tokenize;
use super::recovery::{Abort, GrammarPoint, Next, Recovery, Rule, Stop};
use super::token::{Token, TokenKind as T, TokenSet};
use crate::ast::Ast;
use crate::error::Issue;
use crate::source::Source;

/// Tokens that may start a member expression.
const MEMBER: TokenSet = TokenSet::new(&[
    T::LeftBracket,
    T::LeftBrace,
    T::LeftParen,
    T::Dot,
    T::Minus,
    T::True,
    T::False,
    T::Null,
    T::Float,
    T::Int,
    T::Uint,
    T::String,
    T::Bytes,
    T::Identifier,
]);
/// Tokens that may start an expression.
const EXPR: TokenSet = MEMBER.with(T::Exclamation);
/// Tokens that may start an element of a list.
const ELEMENT: TokenSet = EXPR.with(T::Question);
const NAME: TokenSet = TokenSet::new(&[T::Identifier, T::EscapedIdentifier]);
const FIELD: TokenSet = NAME.with(T::Question);
const RELATIONS: TokenSet =
    TokenSet::new(&[T::Equals, T::NotEquals, T::In, T::Less, T::LessEquals, T::GreaterEquals, T::Greater]);
const CALCULATIONS: TokenSet = TokenSet::new(&[T::Minus, T::Plus, T::Star, T::Slash, T::Percent]);

/// The rules of binary operators from the outermost to the innermost, with the tokens that may follow an
/// operand.
const OPERATORS: [(Rule, Next); 4] = [
    (Rule::Or, Next::or_end(TokenSet::new(&[T::Or]))),
    (Rule::And, Next::or_end(TokenSet::new(&[T::And]))),
    (Rule::Relation, Next::or_end(RELATIONS)),
    (Rule::Calc, Next::or_end(CALCULATIONS)),
];
/// Indexes of the rules in [`OPERATORS`].
const OR: usize = 0;
const AND: usize = 1;
const RELATION: usize = 2;
const CALC: usize = 3;

const RULE_END: Next = Next::or_end(TokenSet::EMPTY);
const AFTER_PRIMARY: Next = Next::or_end(TokenSet::new(&[T::LeftBracket, T::Dot]));
const AFTER_ELEMENT: Next = Next::or_end(TokenSet::new(&[T::Comma]));
const START_EXPR: Next = Next::only(EXPR);

/// Points in the grammar where the parser decides how to continue.
mod point {
    use super::*;

    const fn at(id: u8, tokens: TokenSet) -> GrammarPoint {
        GrammarPoint { id, next: Next::only(tokens) }
    }

    pub const UNARY: GrammarPoint = at(0, EXPR);
    pub const NOT_LOOP: GrammarPoint = at(1, EXPR);
    pub const MINUS_LOOP: GrammarPoint = at(2, MEMBER);
    pub const PRIMARY: GrammarPoint = at(3, MEMBER);
    pub const LITERAL: GrammarPoint = at(
        4,
        TokenSet::new(&[
            T::Minus,
            T::True,
            T::False,
            T::Null,
            T::Float,
            T::Int,
            T::Uint,
            T::String,
            T::Bytes,
        ]),
    );
    pub const SELECT: GrammarPoint = at(5, FIELD);
    pub const INDEX: GrammarPoint = at(6, ELEMENT);
    pub const ARGS: GrammarPoint = at(7, EXPR.with(T::RightParen));
    pub const LIST: GrammarPoint = at(8, ELEMENT.with(T::Comma).with(T::RightBracket));
    pub const LIST_END: GrammarPoint = at(9, TokenSet::new(&[T::Comma, T::RightBracket]));
    pub const MAP: GrammarPoint = at(10, ELEMENT.with(T::Comma).with(T::RightBrace));
    pub const BRACE_END: GrammarPoint = at(11, TokenSet::new(&[T::Comma, T::RightBrace]));
    pub const FIELDS: GrammarPoint = at(12, FIELD.with(T::Comma).with(T::RightBrace));
    pub const OPT_EXPR: GrammarPoint = at(13, ELEMENT);
    pub const OPT_FIELD: GrammarPoint = at(14, FIELD);
    pub const NAME_START: GrammarPoint = at(15, NAME);
    pub const MEMBER_ALTERNATIVE: u8 = 16;
}

/// Numbers of the points where one token is matched.
mod matching {
    pub const END: u8 = 20;
    pub const CONDITIONAL_COLON: u8 = 21;
    pub const CALL_PAREN: u8 = 22;
    pub const ARGS_PAREN: u8 = 23;
    pub const NESTED_PAREN: u8 = 24;
    pub const INDEX_BRACKET: u8 = 25;
    pub const LIST_BRACKET: u8 = 26;
    pub const MAP_BRACE: u8 = 27;
    pub const STRUCT_BRACE: u8 = 28;
    pub const MAP_COLON: u8 = 29;
    pub const FIELD_COLON: u8 = 30;
    pub const MEMBER_IDENTIFIER: u8 = 31;
    pub const PRIMARY_IDENTIFIER: u8 = 32;
}

/// Parses a whole expression.
pub(super) fn parse(source: &Source, syntax: Syntax) -> Result<Ast, Vec<Issue>> {
    let (tokens, errors) = tokenize(source.text());
    let mut parser =
        Parser { input: Recovery::new(source, tokens, errors), builder: Builder::new(source, syntax) };
    let root = parser.start();
    let Parser { input, builder } = parser;
    match root {
        Ok(root) => builder.finish(root, input.issues),
        Err(_) => Err(input.issues),
    }
}

struct Parser<'s> {
    input: Recovery<'s>,
    builder: Builder,
}

type Parsed = Result<Subtree, Abort>;

impl<'s> Parser<'s> {
    /// Runs one rule. `body` stores its result in the output, even if it stops early.
    fn rule<O: Default>(
        &mut self,
        rule: Rule,
        follow: Next,
        body: fn(&mut Self, &mut O) -> Result<(), Stop>,
    ) -> Result<O, Abort> {
        let mut out = O::default();
        self.input.enter(rule, follow)?;
        let outcome = body(self, &mut out);
        self.input.exit(rule, outcome)?;
        Ok(out)
    }

    fn is(&self, kind: T) -> bool {
        self.input.kind() == kind
    }

    fn next_in(&self, set: TokenSet) -> bool {
        set.contains(self.input.kind())
    }

    fn take_if(&mut self, kind: T) -> Option<Token> {
        self.is(kind).then(|| self.input.take())
    }

    fn no_viable(&self, point: u8, length: usize) -> Stop {
        let start = self.input.index();
        Stop::NoViable { point, start, offending: start + length }
    }

    fn start(&mut self) -> Parsed {
        self.input.report_lex_errors()?;
        let root = self.expr(Next::only(TokenSet::new(&[T::End])))?;
        if let Err(stop) = self.input.expect(matching::END, T::End, RULE_END) {
            self.input.handle(stop)?;
        }
        Ok(root)
    }

    fn expr(&mut self, follow: Next) -> Parsed {
        self.rule(Rule::Expr, follow, |p, out| {
            *out = p.operators(OR, Next::or_end(TokenSet::new(&[T::Question])))?;
            if p.is(T::Question) { p.conditional(out) } else { Ok(()) }
        })
    }

    /// Parses the rest of a conditional after its condition.
    fn conditional(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        let op = self.input.take();
        let then = self.operators(OR, Next::only(TokenSet::new(&[T::Colon])))?;
        self.input.expect(matching::CONDITIONAL_COLON, T::Colon, START_EXPR)?;
        let otherwise = self.expr(RULE_END)?;
        *out = self.builder.operator(op.offset, "_?_:_", vec![*out, then, otherwise]);
        Ok(())
    }

    /// Parses an operand and the binary operators after it. `outer` is the index in [`OPERATORS`] of the first
    /// rule.
    ///
    /// The rules of all binary operators share one stack frame, because each parenthesis nests all these
    /// rules. These rules detect no syntax errors themselves, so they need no recovery: they return an error
    /// only if the whole parse ends.
    fn operators(&mut self, outer: usize, follow: Next) -> Parsed {
        let mut follow = follow;
        for (rule, next) in &OPERATORS[outer..] {
            self.input.enter(*rule, follow)?;
            follow = *next;
        }
        let mut out = self.unary(follow)?;
        for (rule, _) in OPERATORS[outer..].iter().rev() {
            match rule {
                Rule::Or => self.logic(&mut out, T::Or, "_||_", AND)?,
                Rule::And => self.logic(&mut out, T::And, "_&&_", RELATION)?,
                Rule::Relation => self.relations(&mut out)?,
                _ => self.arithmetic(&mut out, 1)?,
            }
            self.input.leave(*rule);
        }
        Ok(out)
    }

    /// Parses the rest of a chain of one logical operator; `inner` is the first rule of its terms.
    fn logic(&mut self, out: &mut Subtree, kind: T, function: &str, inner: usize) -> Result<(), Abort> {
        if !self.is(kind) {
            return Ok(());
        }
        let (mut terms, mut ops) = (vec![*out], Vec::new());
        while let Some(op) = self.take_if(kind) {
            ops.push(op.offset);
            terms.push(self.operators(inner, OPERATORS[inner - 1].1)?);
        }
        *out = self.builder.logic(function, &terms, &ops);
        Ok(())
    }

    /// Parses the rest of a chain of relations.
    fn relations(&mut self, out: &mut Subtree) -> Result<(), Abort> {
        while self.next_in(RELATIONS) {
            let op = self.input.take();
            self.input.enter(Rule::Relation, Next::or_end(RELATIONS))?;
            let right = self.operators(CALC, Next::or_end(RELATIONS))?;
            self.input.leave(Rule::Relation);
            *out = self.builder.operator(op.offset, operator(op.kind), vec![*out, right]);
        }
        Ok(())
    }

    /// Parses the rest of an arithmetic expression. `level` 1 allows all operators, 2 allows only the
    /// multiplicative operators, and 3 allows no operators.
    fn arithmetic(&mut self, out: &mut Subtree, level: u8) -> Result<(), Abort> {
        while self.next_in(CALCULATIONS) {
            let op_level = if matches!(self.input.kind(), T::Plus | T::Minus) { 1 } else { 2 };
            if op_level < level {
                break;
            }
            let op = self.input.take();
            self.input.enter(Rule::Calc, Next::or_end(CALCULATIONS))?;
            let mut right = self.unary(Next::or_end(CALCULATIONS))?;
            self.arithmetic(&mut right, op_level + 1)?;
            self.input.leave(Rule::Calc);
            *out = self.builder.operator(op.offset, operator(op.kind), vec![*out, right]);
        }
        Ok(())
    }

    fn unary(&mut self, follow: Next) -> Parsed {
        self.rule(Rule::Unary, follow, |p, out| {
            *out = p.builder.error_literal(p.input.peek(0).offset);
            p.input.sync(point::UNARY)?;
            match p.input.kind() {
                T::Exclamation => p.negation(out),
                T::Minus => p.minus(out),
                _ if p.next_in(MEMBER) => p.unsigned(out),
                _ => Err(p.no_viable(point::UNARY.id, 0)),
            }
        })
    }

    fn unsigned(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        *out = self.member(RULE_END)?;
        Ok(())
    }

    fn negation(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        let op = self.input.take();
        let mut count = 1;
        self.input.sync_loop(point::NOT_LOOP)?;
        while self.take_if(T::Exclamation).is_some() {
            count += 1;
            self.input.sync_loop(point::NOT_LOOP)?;
        }
        self.signed(out, op, "!_", count)
    }

    fn minus(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        if self.signed_number(point::UNARY.id)? {
            return self.unsigned(out);
        }
        let op = self.input.take();
        let mut count = 1;
        self.input.sync_loop(point::MINUS_LOOP)?;
        while self.is(T::Minus) {
            self.signed_number(point::MINUS_LOOP.id)?;
            self.input.take();
            count += 1;
            self.input.sync_loop(point::MINUS_LOOP)?;
        }
        self.signed(out, op, "-_", count)
    }

    /// Applies `count` repetitions of the same unary operator (`!` or `-`) to an operand; an even count has
    /// no effect.
    fn signed(&mut self, out: &mut Subtree, op: Token, function: &str, count: u32) -> Result<(), Stop> {
        let operand = self.member(RULE_END)?;
        *out = if count.is_multiple_of(2) {
            operand
        } else {
            self.builder.operator(op.offset, function, vec![operand])
        };
        Ok(())
    }

    /// Returns whether the minus at the cursor is the sign of a number. A minus is an error if neither a
    /// number nor an operand follows.
    fn signed_number(&mut self, point: u8) -> Result<bool, Stop> {
        match self.input.peek(1).kind {
            T::Int | T::Float => {
                // The reference decides between the alternatives only after the member accesses that follow
                // the number, so an error in these accesses is reported here.
                let optional = usize::from(self.input.peek(3).kind == T::Question);
                let dot = self.input.peek(2).kind == T::Dot;
                if dot && !NAME.contains(self.input.peek(3 + optional).kind) {
                    return Err(self.no_viable(point, 3 + optional));
                }
                Ok(true)
            }
            kind if MEMBER.contains(kind) => Ok(false),
            _ => Err(self.no_viable(point, 1)),
        }
    }

    fn member(&mut self, follow: Next) -> Parsed {
        self.rule(Rule::Member, follow, |p, out| {
            let start = p.input.peek(0).offset;
            *out = p.primary(AFTER_PRIMARY)?;
            p.accesses(out, start)
        })
    }

    /// Parses the selections, indexes and calls after an operand.
    fn accesses(&mut self, out: &mut Subtree, start: u32) -> Result<(), Stop> {
        loop {
            match self.input.kind() {
                T::LeftBracket => self.index(out, start)?,
                T::Dot => match (self.input.peek(1).kind, self.input.peek(2).kind) {
                    (T::Identifier, T::LeftParen) => self.member_call(out, start)?,
                    (T::Identifier | T::EscapedIdentifier | T::Question, _) => self.select(out, start)?,
                    _ => return Err(self.no_viable(point::MEMBER_ALTERNATIVE, 1)),
                },
                _ => return Ok(()),
            }
        }
    }

    fn index(&mut self, out: &mut Subtree, start: u32) -> Result<(), Stop> {
        let operand = std::mem::replace(out, self.builder.unspecified(start));
        let op = self.input.take();
        self.input.sync(point::INDEX)?;
        let optional = self.take_if(T::Question).is_some();
        let index = self.expr(Next::only(TokenSet::new(&[T::RightBracket])))?;
        *out = self.builder.index(op.offset, operand, index, optional);
        self.input.expect(matching::INDEX_BRACKET, T::RightBracket, AFTER_PRIMARY)?;
        Ok(())
    }

    fn member_call(&mut self, out: &mut Subtree, start: u32) -> Result<(), Stop> {
        let target = std::mem::replace(out, self.builder.unspecified(start));
        self.input.take();
        let open_next = Next::only(TokenSet::new(&[T::LeftParen]));
        let name = self.input.expect(matching::MEMBER_IDENTIFIER, T::Identifier, open_next)?;
        let open =
            self.input.expect(matching::CALL_PAREN, T::LeftParen, Next::only(EXPR.with(T::RightParen)))?;
        let (args, closed) = self.arguments()?;
        *out = self.builder.member_call(open.offset, self.input.text(name), target, args);
        closed?;
        self.input.expect(matching::ARGS_PAREN, T::RightParen, AFTER_PRIMARY)?;
        Ok(())
    }

    /// Parses the arguments after an opening parenthesis. The inner result says whether the closing
    /// parenthesis may be matched.
    fn arguments(&mut self) -> Result<(Vec<Subtree>, Result<(), Stop>), Abort> {
        match self.input.sync(point::ARGS) {
            Err(Stop::Abort) => return Err(Abort),
            Err(stop) => return Ok((Vec::new(), Err(stop))),
            Ok(()) => {}
        }
        if !self.next_in(EXPR) {
            return Ok((Vec::new(), Ok(())));
        }
        let follow = Next::only(TokenSet::new(&[T::RightParen]));
        let args = self.rule(Rule::ExprList, follow, |p, out: &mut Vec<Subtree>| {
            out.push(p.expr(AFTER_ELEMENT)?);
            while p.take_if(T::Comma).is_some() {
                out.push(p.expr(AFTER_ELEMENT)?);
            }
            Ok(())
        })?;
        Ok((args, Ok(())))
    }

    fn select(&mut self, out: &mut Subtree, start: u32) -> Result<(), Stop> {
        let operand = std::mem::replace(out, self.builder.unspecified(start));
        let op = self.input.take();
        self.input.sync(point::SELECT)?;
        let optional = self.take_if(T::Question).is_some();
        let name = self.field_name(AFTER_PRIMARY)?;
        *out = self.builder.select(op.offset, operand, name, optional);
        Ok(())
    }

    /// Parses a plain or back-quoted name.
    fn field_name(&mut self, follow: Next) -> Result<WrittenName<'s>, Abort> {
        let offset = self.input.peek(0).offset;
        let token = self.rule(Rule::EscapeIdent, follow, |p, out: &mut Option<Token>| {
            p.input.sync(point::NAME_START)?;
            if !p.next_in(NAME) {
                return Err(p.no_viable(point::NAME_START.id, 0));
            }
            *out = Some(p.input.take());
            Ok(())
        })?;
        Ok(WrittenName { offset, token: token.map(|token| (token.kind, self.input.text(token))) })
    }

    fn primary(&mut self, follow: Next) -> Parsed {
        self.rule(Rule::Primary, follow, |p, out| {
            *out = p.builder.nowhere();
            p.input.sync(point::PRIMARY)?;
            match p.input.kind() {
                T::Identifier | T::Dot => p.named(out),
                T::LeftParen => p.nested(out),
                T::LeftBracket => p.list(out),
                T::LeftBrace => p.map(out),
                _ if p.next_in(MEMBER) => p.literal(out),
                _ => Err(p.no_viable(point::PRIMARY.id, 0)),
            }
        })
    }

    /// Parses an expression in parentheses.
    fn nested(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        self.input.take();
        *out = self.expr(Next::only(TokenSet::new(&[T::RightParen])))?;
        self.input.expect(matching::NESTED_PAREN, T::RightParen, RULE_END).map(drop)
    }

    /// Parses a primary expression that starts with a name.
    fn named(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        if self.starts_struct()? { self.struct_literal(out) } else { self.identifier_or_call(out) }
    }

    /// Returns whether a brace follows a dotted name.
    fn starts_struct(&self) -> Result<bool, Stop> {
        let mut at = usize::from(self.is(T::Dot));
        if self.input.peek(at).kind != T::Identifier {
            return Err(self.no_viable(point::PRIMARY.id, at));
        }
        while self.input.peek(at + 1).kind == T::Dot && self.input.peek(at + 2).kind == T::Identifier {
            at += 2;
        }
        Ok(self.input.peek(at + 1).kind == T::LeftBrace)
    }

    fn identifier_or_call(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        let start = self.input.peek(0).offset;
        let dot = self.take_if(T::Dot).is_some();
        let after = Next::or_end(TokenSet::new(&[T::LeftParen]));
        *out = self.builder.unspecified(start);
        let name = self.input.expect(matching::PRIMARY_IDENTIFIER, T::Identifier, after)?;
        let text = self.input.text(name);
        if !self.is(T::LeftParen) {
            *out = self.builder.identifier(start, name.offset, dot, text);
            return Ok(());
        }
        let open = self.input.take();
        let mark = self.builder.mark();
        let (args, closed) = self.arguments()?;
        *out = self.builder.global_call(start, open.offset, dot, text, args, mark);
        closed?;
        self.input.expect(matching::CALL_PAREN, T::RightParen, RULE_END).map(drop)
    }

    fn list(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        let op = self.input.take();
        *out = self.builder.list(op.offset, Vec::new());
        self.input.sync(point::LIST)?;
        if self.next_in(ELEMENT) {
            let follow = Next::only(TokenSet::new(&[T::Comma, T::RightBracket]));
            let elements =
                self.rule(Rule::ListInit, follow, |p, out: &mut Vec<(Option<u32>, Subtree)>| {
                    out.push(p.optional_expr(AFTER_ELEMENT)?);
                    while p.is(T::Comma) && ELEMENT.contains(p.input.peek(1).kind) {
                        p.input.take();
                        out.push(p.optional_expr(AFTER_ELEMENT)?);
                    }
                    Ok(())
                })?;
            *out = self.builder.list(op.offset, elements);
        }
        self.input.sync(point::LIST_END)?;
        self.take_if(T::Comma);
        self.input.expect(matching::LIST_BRACKET, T::RightBracket, RULE_END).map(drop)
    }

    /// Parses an expression, and returns it with the offset of the question mark before it, if there is one.
    fn optional_expr(&mut self, follow: Next) -> Result<(Option<u32>, Subtree), Abort> {
        self.rule(Rule::OptExpr, follow, |p, out: &mut (Option<u32>, Subtree)| {
            out.1 = p.builder.nowhere();
            p.input.sync(point::OPT_EXPR)?;
            out.0 = p.take_if(T::Question).map(|question| question.offset);
            out.1 = p.expr(RULE_END)?;
            Ok(())
        })
    }

    fn map(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        let op = self.input.take();
        *out = self.builder.map(op.offset, Vec::new());
        self.input.sync(point::MAP)?;
        if self.next_in(ELEMENT) {
            let follow = Next::only(TokenSet::new(&[T::Comma, T::RightBrace]));
            let entries = self.rule(Rule::MapInit, follow, |p, out: &mut Vec<Entry<Subtree>>| {
                loop {
                    let (optional, key) = p.optional_expr(Next::only(TokenSet::new(&[T::Colon])))?;
                    let colon = p.input.expect(matching::MAP_COLON, T::Colon, START_EXPR)?;
                    let value = p.expr(AFTER_ELEMENT)?;
                    out.push(Entry { key, optional, colon: colon.offset, value });
                    if !(p.is(T::Comma) && ELEMENT.contains(p.input.peek(1).kind)) {
                        return Ok(());
                    }
                    p.input.take();
                }
            })?;
            *out = self.builder.map(op.offset, entries);
        }
        self.close_brace(matching::MAP_BRACE)
    }

    fn close_brace(&mut self, id: u8) -> Result<(), Stop> {
        self.input.sync(point::BRACE_END)?;
        self.take_if(T::Comma);
        self.input.expect(id, T::RightBrace, RULE_END).map(drop)
    }

    fn struct_literal(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        let mut name = String::new();
        while !self.is(T::LeftBrace) {
            let part = self.input.take();
            name.push_str(self.input.text(part));
        }
        let op = self.input.take();
        *out = self.builder.struct_literal(op.offset, &name, Vec::new());
        self.input.sync(point::FIELDS)?;
        if self.next_in(FIELD) {
            let follow = Next::only(TokenSet::new(&[T::Comma, T::RightBrace]));
            let fields = self.rule(Rule::FieldInit, follow, |p, out: &mut Vec<Entry<_>>| {
                loop {
                    let (optional, name) = p.optional_field()?;
                    let colon = p.input.expect(matching::FIELD_COLON, T::Colon, START_EXPR)?;
                    let name = p.builder.field_name(&name);
                    let value = p.expr(AFTER_ELEMENT)?;
                    out.push(Entry { key: name, optional, colon: colon.offset, value });
                    if !(p.is(T::Comma) && FIELD.contains(p.input.peek(1).kind)) {
                        return Ok(());
                    }
                    p.input.take();
                }
            })?;
            *out = self.builder.struct_literal(op.offset, &name, fields);
        }
        self.close_brace(matching::STRUCT_BRACE)
    }

    /// Parses a field name, and returns it with the offset of the question mark before it, if there is one.
    fn optional_field(&mut self) -> Result<(Option<u32>, WrittenName<'s>), Abort> {
        let follow = Next::only(TokenSet::new(&[T::Colon]));
        self.rule(Rule::OptField, follow, |p, out: &mut (Option<u32>, WrittenName<'s>)| {
            p.input.sync(point::OPT_FIELD)?;
            out.0 = p.take_if(T::Question).map(|question| question.offset);
            out.1 = p.field_name(RULE_END)?;
            Ok(())
        })
    }

    fn literal(&mut self, out: &mut Subtree) -> Result<(), Stop> {
        *out = self.rule(Rule::Literal, RULE_END, |p, out| {
            *out = p.builder.nowhere();
            p.input.sync(point::LITERAL)?;
            if p.is(T::Minus) && !matches!(p.input.peek(1).kind, T::Int | T::Float) {
                return Err(p.no_viable(point::LITERAL.id, 1));
            }
            let start = p.input.peek(0).offset;
            let negative = p.take_if(T::Minus).is_some();
            let token = p.input.take();
            let text = p.input.text(token);
            *out = p.builder.literal(start, token.kind, text, negative);
            Ok(())
        })?;
        Ok(())
    }
}

/// Returns the function that an operator calls.
fn operator(kind: T) -> &'static str {
    match kind {
        T::Equals => "_==_",
        T::NotEquals => "_!=_",
        T::In => "@in",
        T::Less => "_<_",
        T::LessEquals => "_<=_",
        T::GreaterEquals => "_>=_",
        T::Greater => "_>_",
        T::Plus => "_+_",
        T::Minus => "_-_",
        T::Star => "_*_",
        T::Slash => "_/_",
        _ => "_%_",
    }
}
