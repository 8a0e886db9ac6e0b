//! Compiles an expression. The location of the expression determines the permitted result types.

use std::fmt;
use std::sync::LazyLock;

use cel::environment::{Environment, Origin};
use cel::evaluation::Program;
use cel::library::{Library, Version, extensions, standard};
use cel::types::Type;

use values::cancellation;

/// Compatibility version: new expressions may use the features of this version.
const VERSION: Version = Version::new(1, 35);

/// The constant environments of new and of stored expressions, which take some time to build.
static NEW: LazyLock<Environment> = LazyLock::new(|| make(Origin::New));
static STORED: LazyLock<Environment> = LazyLock::new(|| make(Origin::Stored));

fn make(origin: Origin) -> Environment {
    let libraries: Vec<Library> = [standard::library()].into_iter().chain(extensions()).collect();
    Environment::new(&libraries, VERSION, origin)
}

/// Maximum number of levels of an expression that the parser accepts.
const DEPTH_MAX: usize = 250;

/// Returns the environment with the functions that every expression may use, and without variables.
pub fn base(origin: Origin) -> &'static Environment {
    match origin {
        Origin::New => &NEW,
        Origin::Stored => &STORED,
    }
}

/// A compiled or refused expression of an object or a file.
#[derive(Debug)]
pub struct Expression {
    /// Source text of the expression.
    pub text: String,
    program: Result<Compiled, Refusal>,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    of: Type,
    /// Number of nodes of the syntax tree, which limits the depth of an evaluation.
    nodes: usize,
}

/// Reason why an expression is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The expression has syntax or type errors, listed in order.
    Issues(String),
    /// The location of the expression does not permit its result type.
    Result(String),
    /// A constant part of the expression fails.
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
    /// Compiles `text`. The result type must be in `result_types`, except if `result_types` is empty.
    pub fn new(text: &str, environment: &Environment, result_types: &[Type]) -> Expression {
        // A policy may have thousands of expressions, and each compilation reads the declarations of the
        // previous expressions.
        cancellation::check();
        Expression { text: text.to_owned(), program: compile(text, environment, result_types) }
    }

    /// Returns the compiled program.
    ///
    /// # Errors
    /// Returns the reason if the expression is refused.
    pub fn program(&self) -> Result<&Program, &Refusal> {
        self.program.as_ref().map(|compiled| &compiled.program)
    }

    /// Returns the reason if the expression is refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.program.as_ref().err()
    }

    /// Returns the type of the expression's value; `None` if the expression is refused.
    pub fn result_type(&self) -> Option<&Type> {
        self.program.as_ref().ok().map(|compiled| &compiled.of)
    }

    /// Returns an upper bound of the recursion depth of an evaluation.
    pub fn depth(&self) -> usize {
        self.program.as_ref().map_or(0, |compiled| compiled.nodes.min(DEPTH_MAX))
    }

    /// Returns whether the expression reads `variable`, or a variable whose name begins with `variable` and a
    /// dot.
    pub fn reads(&self, variable: &str) -> bool {
        let variables = self.program.as_ref().map_or(&[][..], |compiled| compiled.program.variables());
        variables.iter().any(|name| {
            name.strip_prefix(variable).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

fn compile(text: &str, environment: &Environment, result_types: &[Type]) -> Result<Compiled, Refusal> {
    let checked = environment.compile(text).map_err(|error| Refusal::Issues(error.to_string()))?;
    let of = checked.result_type().clone();
    if !result_types.is_empty() && !result_types.iter().any(|result| result.is_exactly(&of)) {
        let of = of.declared();
        return Err(Refusal::Result(match result_types {
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
