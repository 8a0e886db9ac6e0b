//! Reads the modules, imports and paths of one source file, without its tests. This module processes one file
//! at a time.

use std::collections::BTreeSet;

use crate::lexer::{is_word, tokens};

/// The names that a source file declares and mentions. A scope is the path of an inline module within the file.
#[derive(Default)]
pub struct Source {
    /// Modules that have a file of their own, with the scope of the declaration.
    pub declared: Vec<Scoped>,
    /// Inline modules, with their own name as the last segment of the scope.
    pub inline: Vec<Vec<String>>,
    /// Imports, one for each name.
    pub imports: Vec<Import>,
    /// Paths of two or more segments outside imports.
    pub mentions: Vec<Scoped>,
    /// All words outside imports.
    pub words: BTreeSet<String>,
}

/// A path, and the scope that contains it.
pub struct Scoped {
    pub scope: Vec<String>,
    pub path: Vec<String>,
}

/// A name that a `use` declaration brings into a scope.
pub struct Import {
    /// The name in the scope, or `*`.
    pub name: String,
    /// The path that the name refers to, without the `*`.
    pub target: Scoped,
    /// Whether other modules may import the name from here.
    pub is_public: bool,
}

/// A position in the tokens of a file, and what was read before it.
struct Reader<'t> {
    tokens: Vec<&'t str>,
    at: usize,
    scope: Vec<String>,
    /// The number of open braces at which each inline module ends.
    ends: Vec<usize>,
    depth: usize,
    source: Source,
}

/// Reads a source file. Items for tests only are skipped.
pub fn read(code: &str) -> Source {
    let mut reader = Reader {
        tokens: tokens(code).map(|token| token.text).collect(),
        at: 0,
        scope: Vec::new(),
        ends: Vec::new(),
        depth: 0,
        source: Source::default(),
    };
    while reader.at < reader.tokens.len() {
        reader.step();
    }
    reader.source
}

impl<'t> Reader<'t> {
    fn peek(&self, distance: usize) -> &'t str {
        self.tokens.get(self.at + distance).copied().unwrap_or_default()
    }

    fn begins_with(&self, tokens: &[&str]) -> bool {
        self.tokens[self.at..].starts_with(tokens)
    }

    fn step(&mut self) {
        if self.begins_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
            self.at += 7;
            return self.skip_item();
        }
        match self.peek(0) {
            "mod" if self.peek(1).starts_with(is_word) => self.read_module(),
            "use" => self.read_use(),
            "{" => self.depth += 1,
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                if self.ends.last() == Some(&self.depth) {
                    self.ends.pop();
                    self.scope.pop();
                }
            }
            word if word.starts_with(is_word) => self.read_path(),
            _ => {}
        }
        self.at += 1;
    }

    /// Skips an item, a field or a statement, with its attributes, to its last token.
    fn skip_item(&mut self) {
        let mut open = 0_usize;
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "(" | "[" | "{" => open += 1,
                "}" if open == 0 => return,
                token @ (")" | "]" | "}") => {
                    open = open.saturating_sub(1);
                    if token == "}" && open == 0 {
                        self.at += 1;
                        return;
                    }
                }
                ";" | "," if open == 0 => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Reads `mod name;` or `mod name {`, and stays at its last token.
    fn read_module(&mut self) {
        let name = self.peek(1).to_owned();
        match self.peek(2) {
            ";" => {
                self.source.declared.push(Scoped { scope: self.scope.clone(), path: vec![name] });
                self.at += 2;
            }
            "{" => {
                self.ends.push(self.depth);
                self.depth += 1;
                self.scope.push(name);
                self.source.inline.push(self.scope.clone());
                self.at += 2;
            }
            _ => {}
        }
    }

    /// Reads a `use` declaration, and stays at its semicolon.
    fn read_use(&mut self) {
        // Precise capturing, `impl Trait + use<'a>`, imports nothing.
        if self.peek(1) == "<" {
            return;
        }
        let before = self.at.checked_sub(1).map(|at| self.tokens[at]);
        let is_public = matches!(before, Some("pub" | ")"));
        self.at += 1;
        self.read_tree(&mut Vec::new(), is_public);
    }

    /// Reads a tree such as `a::{b, c as d, e::*}`, and stays at the token after it.
    fn read_tree(&mut self, path: &mut Vec<String>, is_public: bool) {
        let outer = path.len();
        loop {
            match self.peek(0) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(0), "}" | "") {
                        self.read_tree(path, is_public);
                        self.at += usize::from(self.peek(0) == ",");
                    }
                    self.at += 1;
                    path.truncate(outer);
                    return;
                }
                "*" => {
                    self.at += 1;
                    self.import("*", path, is_public);
                    break;
                }
                word if word.starts_with(is_word) => {
                    path.push(word.to_owned());
                    self.at += 1;
                    if self.peek(0) != "::" {
                        self.read_leaf(path, is_public);
                        break;
                    }
                }
                _ => break,
            }
        }
        path.truncate(outer);
    }

    /// Reads the optional `as name` after a path.
    fn read_leaf(&mut self, path: &mut Vec<String>, is_public: bool) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.peek(0) == "as" {
            self.peek(1).clone_into(&mut name);
            self.at += 2;
        }
        self.import(&name, path, is_public);
    }

    fn import(&mut self, name: &str, path: &[String], is_public: bool) {
        let target = Scoped { scope: self.scope.clone(), path: path.to_vec() };
        self.source.imports.push(Import { name: name.to_owned(), target, is_public });
    }

    /// Reads a path in an expression or a type, and stays at its last segment.
    fn read_path(&mut self) {
        let mut path = vec![self.peek(0).to_owned()];
        while self.peek(1) == "::" && self.peek(2).starts_with(is_word) {
            path.push(self.peek(2).to_owned());
            self.at += 2;
        }
        self.source.words.extend(path.first().cloned());
        if path.len() > 1 {
            self.source.mentions.push(Scoped { scope: self.scope.clone(), path });
        }
    }
}

#[test]
fn imports_and_modules_are_parsed_without_tests_and_literals() {
    let source = read(concat!(
        "//! use crate::not;\nmod a;\npub use self::a::{B as C, d::{self, E}};\n",
        "#[cfg(test)]\n#[path = \"x.rs\"]\nmod t;\nuse crate::f::*;\n",
        "mod inner { use super::G; fn f<'a>() -> [char; 2] { let _ = r#\"mod \" x;\"#; ['\\'', '\"'] } }\n",
        "fn g() -> impl Sized + use<> { h::i::<j::K>(); \"use crate::not;\" }\n#[cfg(test)]\nmod tests { use crate::l; }",
    ));
    let imports: Vec<String> = source
        .imports
        .iter()
        .map(|import| {
            let is_public = if import.is_public { "pub " } else { "" };
            format!("{is_public}{} = {}", import.name, import.target.path.join("::"))
        })
        .collect();
    let expected =
        ["pub C = self::a::B", "pub d = self::a::d", "pub E = self::a::d::E", "* = crate::f", "G = super::G"];
    assert_eq!(imports, expected);
    let mentions: Vec<String> = source.mentions.iter().map(|mention| mention.path.join("::")).collect();
    assert_eq!(mentions, ["h::i", "j::K"]);
    assert_eq!(source.declared.len(), 1);
    assert_eq!(source.inline, [["inner"]]);
    assert!(!source.words.contains("not") && source.words.contains("g"));
}
