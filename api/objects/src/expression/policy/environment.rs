//! Variables of the expressions in policies and in match conditions of webhooks.
//!
//! `object`, `oldObject` and `params` have no declared type: their fields are looked up when an expression is
//! evaluated. The request and the namespace have declared types. The type of `variables` has one field for
//! each variable that is declared before the expression.

use cel::environment::{Environment, Origin};
use cel::library::authorizer::{authorizer_type, resource_check_type};
use cel::types::Type;

use crate::expression::types::Types;
use crate::expression::{Expression, base};

/// Name of the type of `variables`.
const VARIABLES: &str = "kubernetes.variables";

/// Maximum total cost of all expressions of one policy for one object and one set of parameters.
pub const POLICY_COST_MAX: u64 = 10_000_000;

/// Optional variables that an expression can read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionalVariables {
    /// Whether `params` exists, because the policy has a parameter kind.
    pub params: bool,
    /// Whether `authorizer` and `authorizer.requestResource` exist.
    pub authorizer: bool,
}

/// Types of an object and its parameters that are known before the evaluation.
#[derive(Clone, Debug)]
pub struct KnownTypes {
    /// Type of `object` and `oldObject`.
    pub object: Type,
    /// Type of the variable `params`.
    pub params: Type,
    /// Object types that the other types refer to.
    pub types: Types,
}

/// The default has no known types.
impl Default for KnownTypes {
    fn default() -> Self {
        KnownTypes { object: Type::Dyn, params: Type::Dyn, types: Types::default() }
    }
}

/// A named expression that later expressions of a policy can read.
#[derive(Debug)]
pub struct Variable {
    /// Name of the variable below `variables`.
    pub name: String,
    /// Compiled expression of the variable.
    pub expression: Expression,
    /// Index among the variables of the policy.
    pub place: usize,
}

/// Environments of the expressions of one policy. Variables are added in order.
#[derive(Clone)]
pub struct Declarations {
    base: Environment,
    params: Type,
    types: Types,
    has_variables: bool,
}

impl Declarations {
    /// Creates declarations without variables. `origin` tells whether the expressions are new or stored.
    pub fn new(origin: Origin, known: KnownTypes) -> Declarations {
        let mut types = known.types;
        let request = declare_request(&mut types);
        let namespace = declare_namespace(&mut types);
        let base = base(origin)
            .clone()
            .with_variable("object", known.object.clone())
            .with_variable("oldObject", known.object)
            .with_variable("request", request)
            .with_variable("namespaceObject", namespace);
        Declarations { base, params: known.params, types, has_variables: false }
    }

    /// Returns the object types that are declared.
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// Declares `variables` without any fields.
    pub fn with_variables(mut self) -> Declarations {
        self.types.declare(VARIABLES, []);
        self.has_variables = true;
        self
    }

    /// Returns the environment of an expression that can read the variables in `extent`.
    pub fn environment(&self, extent: OptionalVariables) -> Environment {
        let mut environment = self.base.clone().with_types(Types::clone(&self.types).shared());
        if extent.params {
            environment = environment.with_variable("params", self.params.clone());
        }
        if extent.authorizer {
            environment = environment
                .with_variable("authorizer", authorizer_type())
                .with_variable("authorizer.requestResource", resource_check_type());
        }
        if self.has_variables {
            environment = environment.with_variable("variables", Type::object(VARIABLES));
        }
        environment
    }

    /// Compiles variables in order. The expression of a variable can read the variables before it. If the
    /// expression of a variable was refused, later expressions see the type `dyn` for this variable.
    pub fn compile_variables<'t>(
        &mut self,
        variables: impl IntoIterator<Item = (&'t str, &'t str)>,
        extent: OptionalVariables,
    ) -> Vec<Variable> {
        let mut compiled: Vec<Variable> = Vec::new();
        for (name, text) in variables {
            let expression = Expression::new(text, &self.environment(extent), &[]);
            let of = expression.result_type().map_or(Type::Dyn, as_field);
            self.types.set_field(VARIABLES, name, of);
            compiled.push(Variable { name: name.to_owned(), expression, place: compiled.len() });
        }
        compiled
    }
}

/// Returns the type of a field for values of type `of`. Only plain types, lists and maps are declared; all
/// other types become dynamic.
fn as_field(of: &Type) -> Type {
    match of {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => of.clone(),
        Type::List(item) => Type::list(as_field(item)),
        Type::Map(entry) => Type::map(as_field(&entry.0), as_field(&entry.1)),
        _ => Type::Dyn,
    }
}

fn declare_request(types: &mut Types) -> Type {
    use Type::{Bool, Dyn, String as Text};
    let kind =
        types.declare("kubernetes.GroupVersionKind", [("group", Text), ("version", Text), ("kind", Text)]);
    let resource = types
        .declare("kubernetes.GroupVersionResource", [("group", Text), ("version", Text), ("resource", Text)]);
    let user = types.declare(
        "kubernetes.UserInfo",
        [
            ("username", Text),
            ("uid", Text),
            ("groups", Type::list(Text)),
            ("extra", Type::map(Text, Type::list(Text))),
        ],
    );
    types.declare(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Text),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Text),
            ("name", Text),
            ("namespace", Text),
            ("operation", Text),
            ("userInfo", user),
            ("dryRun", Bool),
            ("options", Dyn),
        ],
    )
}

fn declare_namespace(types: &mut Types) -> Type {
    use Type::{Int, String as Text, Timestamp as Time};
    let texts = || Type::map(Text, Text);
    let metadata = types.declare(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Text),
            ("generateName", Text),
            ("namespace", Text),
            ("labels", texts()),
            ("annotations", texts()),
            ("UID", Text),
            ("creationTimestamp", Time),
            ("deletionGracePeriodSeconds", Int),
            ("deletionTimestamp", Time),
            ("generation", Int),
            ("resourceVersion", Text),
            ("finalizers", Type::list(Text)),
        ],
    );
    let spec = types.declare("kubernetes.NamespaceSpec", [("finalizers", Type::list(Text))]);
    let condition = types.declare(
        "kubernetes.NamespaceCondition",
        [("status", Text), ("type", Text), ("lastTransitionTime", Time), ("message", Text), ("reason", Text)],
    );
    let status =
        types.declare("kubernetes.NamespaceStatus", [("conditions", Type::list(condition)), ("phase", Text)]);
    types.declare("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
}
