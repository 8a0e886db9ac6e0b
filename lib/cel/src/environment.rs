//! Environments: the variables, functions and types that an expression may use.
//!
//! An environment is built once for each set of variables and compatibility version, and then shared by
//! [`Arc`].

use std::sync::Arc;

use hashbrown::HashMap;

use crate::ast::{Constant, Name};
use crate::library::{CallCheck, Library, Overload, Version};
use crate::parser::Syntax;
use crate::types::{Type, TypeProvider};

/// Whether an expression is new or was stored by an earlier server. Stored expressions may use everything
/// that this version of the server supports, so that a rollback does not invalidate them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Origin {
    /// A new expression: only declarations of the compatibility version are allowed.
    New,
    /// An expression read from storage.
    Stored,
}

/// Declarations that expressions are checked against.
#[derive(Clone)]
pub struct Environment {
    version: Version,
    origin: Origin,
    variables: HashMap<Name, Type>,
    functions: HashMap<&'static str, Vec<Arc<Overload>>>,
    types: HashMap<Name, Type>,
    constants: HashMap<Name, Constant>,
    checks: Vec<(&'static str, CallCheck)>,
    provider: Option<Arc<dyn TypeProvider>>,
    bindings: bool,
}

impl Environment {
    /// Creates an environment with those declarations of `libraries` that expressions of `version` and
    /// `origin` may use.
    pub fn new(libraries: &[Library], version: Version, origin: Origin) -> Self {
        let mut environment = Self {
            version,
            origin,
            variables: HashMap::new(),
            functions: HashMap::new(),
            types: HashMap::new(),
            constants: HashMap::new(),
            checks: Vec::new(),
            provider: None,
            bindings: false,
        };
        libraries.iter().for_each(|library| environment.add(library));
        environment
    }

    fn add(&mut self, library: &Library) {
        let (version, origin) = (self.version, self.origin);
        let visible = |since: Version| origin == Origin::Stored || since <= version;
        for function in &library.functions {
            self.checks.extend(
                function.check.filter(|(since, _)| visible(*since)).map(|(_, check)| (function.name, check)),
            );
            let visible_overloads =
                function.overloads.iter().filter(|overload| visible(overload.since)).cloned();
            let mut visible_overloads = visible_overloads.peekable();
            if visible_overloads.peek().is_some() {
                self.functions.entry(function.name).or_default().extend(visible_overloads);
            }
        }
        for (r#type, since) in &library.types {
            if visible(*since) {
                self.types.insert(Name::from(r#type.runtime_name()), r#type.clone());
            }
        }
    }

    /// Adds those functions and types of another library that expressions of this environment may use.
    pub fn with_library(mut self, library: &Library) -> Self {
        self.add(library);
        self
    }

    /// Adds the macro `cel.bind(name, value, result)`.
    pub fn with_bindings(mut self) -> Self {
        self.bindings = true;
        self
    }

    /// Adds a variable. The name of the variable may be qualified (`request.user`).
    pub fn with_variable(mut self, name: &str, of: Type) -> Self {
        self.variables.insert(name.into(), of);
        self
    }

    /// Adds a named constant, such as an enum value.
    pub fn with_constant(mut self, name: &str, value: Constant) -> Self {
        self.constants.insert(name.into(), value);
        self
    }

    /// Sets the provider of the host's object types.
    pub fn with_types(mut self, provider: Arc<dyn TypeProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Returns the compatibility version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns whether the environment is for new or for stored expressions.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns whether an expression may use features that `since` introduced.
    pub fn has_version(&self, since: Version) -> bool {
        self.origin == Origin::Stored || since <= self.version
    }

    /// Returns the enabled syntax extensions.
    pub fn syntax(&self) -> Syntax {
        Syntax {
            optionals: self.has_version(Version::new(1, 28)),
            two_variables: self.has_version(Version::new(1, 32)),
            sort_by: self.has_version(Version::new(1, 34)),
            bindings: self.bindings,
        }
    }

    /// Returns a named constant by its full name.
    pub fn constant(&self, name: &str) -> Option<&Constant> {
        self.constants.get(name)
    }

    /// Returns the checks of calls, with the names of the functions that they apply to.
    pub fn checks(&self) -> &[(&'static str, CallCheck)] {
        &self.checks
    }

    /// Returns the type of a variable by its full name.
    pub fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    /// Returns the overloads of a function; empty if the function is unknown.
    pub fn function(&self, name: &str) -> &[Arc<Overload>] {
        self.functions.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the type that `name` denotes as a value.
    pub fn named_type(&self, name: &str) -> Option<&Type> {
        self.types.get(name)
    }

    /// Returns the provider of the host's object types.
    pub fn provider(&self) -> Option<&dyn TypeProvider> {
        self.provider.as_deref()
    }
}
