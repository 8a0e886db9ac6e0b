//! Compiles an expression for the types that its place takes.

use std::fmt;
use std::sync::LazyLock;

use cel::environment::{Environment, Origin};
use cel::evaluation::Program;
use cel::library::{Library, Version, extensions, standard};
use cel::types::Type;

use crate::values::cancellation;

/// The compatibility version: expressions that are new may use what it has.
const VERSION: Version = Version::new(1, 35);

static NEW: LazyLock<Environment> = LazyLock::new(|| make(Origin::New));
static STORED: LazyLock<Environment> = LazyLock::new(|| make(Origin::Stored));

fn make(origin: Origin) -> Environment {
    let libraries: Vec<Library> = [standard::library()].into_iter().chain(extensions()).collect();
    Environment::new(&libraries, VERSION, origin)
}

/// Levels of the deepest expression that the parser accepts.
const DEPTH_MAX: usize = 250;

/// Returns the functions that every expression may use; without variables.
pub fn base(origin: Origin) -> &'static Environment {
    match origin {
        Origin::New => &NEW,
        Origin::Stored => &STORED,
    }
}

/// An expression of an object or a file.
#[derive(Debug)]
pub struct Expression {
    /// The text, as it was written.
    pub text: String,
    program: Result<Compiled, Refusal>,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    of: Type,
    /// Nodes of its tree: its evaluation nests no deeper.
    nodes: usize,
}

/// Why an expression is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// Problems of syntax and types, one after the other.
    Issues(String),
    /// Its type is not one that its place takes.
    Result(String),
    /// A constant part of it fails.
    Program(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Issues(issues) => write!(f, "compilation failed: {issues}"),
            Refusal::Result(why) => f.write_str(why),
            Refusal::Program(why) => write!(f, "program instantiation failed: {why}"),
        }
    }
}

impl Expression {
    /// Compiles `text`, whose value must be of one of the types `wanted`; of any type if there is none.
    pub fn new(text: &str, environment: &Environment, wanted: &[Type]) -> Expression {
        // A policy may have thousands of expressions, and each is compiled beside the declarations of those before it.
        cancellation::check();
        Expression { text: text.to_owned(), program: compile(text, environment, wanted) }
    }

    /// Returns the program.
    ///
    /// # Errors
    /// Why there is none.
    pub fn program(&self) -> Result<&Program, &Refusal> {
        self.program.as_ref().map(|compiled| &compiled.program)
    }

    /// Returns why it is refused, if it is.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.program.as_ref().err()
    }

    /// Returns the type of its value; `None` for a refused one.
    pub fn result_type(&self) -> Option<&Type> {
        self.program.as_ref().ok().map(|compiled| &compiled.of)
    }

    /// Returns an upper bound of how deep its evaluation nests.
    pub fn depth(&self) -> usize {
        self.program.as_ref().map_or(0, |compiled| compiled.nodes.min(DEPTH_MAX))
    }

    /// Returns whether it reads the variable, or something of it that is declared as a variable of its own.
    pub fn reads(&self, variable: &str) -> bool {
        let variables = self.program.as_ref().map_or(&[][..], |compiled| compiled.program.variables());
        variables.iter().any(|name| {
            name.strip_prefix(variable).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

fn compile(text: &str, environment: &Environment, wanted: &[Type]) -> Result<Compiled, Refusal> {
    let checked = environment.compile(text).map_err(|error| Refusal::Issues(error.to_string()))?;
    let of = checked.result_type().clone();
    if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted.is_exactly(&of)) {
        let of = of.declared();
        return Err(Refusal::Result(match wanted {
            [one] => format!("must evaluate to {} but got {of}", one.declared()),
            several => {
                let several: Vec<String> = several.iter().map(|one| one.declared().to_string()).collect();
                format!("must evaluate to one of [{}] but got {of}", several.join(" "))
            }
        }));
    }
    let program = Program::new(&checked, environment).map_err(|error| Refusal::Program(error.to_string()))?;
    Ok(Compiled { program, of, nodes: checked.types.len() })
}
