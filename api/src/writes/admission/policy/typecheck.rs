//! Type checks of validating policies. The expressions of a policy are compiled again for each kind that the
//! policy names, with the fields that the kind declares. Type errors become warnings in the status of the
//! policy, and never cause a refusal.

use cel::environment::Origin;
use cel::types::Type;
use hashbrown::HashMap;

use super::validation::{declared, pairs};
use cel::identifier::{escape, is_selectable_word};
use objects::custom::limits_of;
use objects::expression::policy::environment::{Declarations, KnownTypes, OptionalVariables};
use objects::expression::types::Types;
use objects::expression::{Expression, Refusal};
use types::schema::limits::Limits;
use types::schema::registry::{Registry, Resource};
use types::schema::table::{Kind, Message};
use values::json::Value;

/// Maximum number of kinds for which one policy is checked.
const KINDS_MAX: usize = 10;

/// The type errors in one expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TypeWarning {
    /// Path of the expression in the policy.
    pub field: String,
    /// The type errors, one line for each kind.
    pub text: String,
}

/// Checks the types in the spec of a policy.
pub fn check(spec: &Value, registry: &Registry) -> Vec<TypeWarning> {
    let kinds = kinds(spec, registry);
    let has_params = spec.get("paramKind").is_some_and(|kind| !kind.is_null());
    let extent = OptionalVariables { params: has_params, authorizer: true };
    let declarations: Vec<(String, Declarations)> = kinds
        .iter()
        .map(|resource| {
            let mut types = Types::default();
            let object = declare(&mut types, resource);
            let params = parameters(spec, registry).map_or(Type::Dyn, |kind| declare(&mut types, kind));
            let (declarations, _) = declared(spec, Origin::New, KnownTypes { object, params, types }, extent);
            (gvk(resource), declarations)
        })
        .collect();
    let mut warnings = Vec::new();
    for (at, (expression, message)) in
        pairs(spec, "validations", "expression", "messageExpression").enumerate()
    {
        for (member, text) in [("expression", expression), ("messageExpression", message)] {
            if text.is_empty() {
                continue;
            }
            let found: String = declarations
                .iter()
                .filter_map(|(kind, declarations)| {
                    let compiled = Expression::new(text, &declarations.environment(extent), &[]);
                    Some(match compiled.refusal()? {
                        Refusal::Issues(issues) => format!("{kind}: {issues}\n"),
                        other => format!("{kind}: type checking error: {other}\n"),
                    })
                })
                .collect();
            if !found.is_empty() {
                warnings.push(TypeWarning { field: format!("spec.validations[{at}].{member}"), text: found });
            }
        }
    }
    warnings
}

fn gvk(resource: &Resource) -> String {
    format!("{}/{}, Kind={}", resource.group, resource.version, resource.table.kind)
}

/// Returns the resources that the rules of a policy name without wildcards, in order.
fn kinds<'r>(spec: &Value, registry: &'r Registry) -> Vec<&'r Resource> {
    let rules = spec.at(&["matchConstraints", "resourceRules"]).and_then(Value::as_array).unwrap_or_default();
    let mut kinds: Vec<&Resource> = Vec::new();
    for rule in rules {
        let texts = |name: &str| -> Vec<&str> {
            rule.get(name)
                .and_then(Value::as_array)
                .unwrap_or_default()
                .iter()
                .filter_map(Value::as_str)
                .collect()
        };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let resources = texts("resources").into_iter().filter(|resource| !resource.contains(['*', '/']));
        for resource in resources {
            for (group, version) in
                groups.iter().flat_map(|group| versions.iter().map(move |version| (group, version)))
            {
                let Some(found) = registry.resource(group, version, resource) else { continue };
                if kinds.len() < KINDS_MAX && !kinds.iter().any(|known| gvk(known) == gvk(found)) {
                    kinds.push(found);
                }
            }
        }
    }
    kinds.sort_by_key(|resource| {
        (resource.group.clone(), resource.version.clone(), resource.table.kind.clone())
    });
    kinds
}

/// Returns the resource of a policy's parameters.
pub(super) fn parameters<'r>(spec: &Value, registry: &'r Registry) -> Option<&'r Resource> {
    let kind = spec.get("paramKind")?;
    let api_version = kind.str_at(&["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    registry.by_kind(group, version, kind.str_at(&["kind"])).map(|resource| &**resource)
}

/// Declares the types of a kind and of its fields.
fn declare(types: &mut Types, resource: &Resource) -> Type {
    let mut walk = Walk { types, seen: HashMap::new() };
    walk.message(&resource.table.message, &resource.table.kind)
}

/// The state of a declaration. Each struct is declared only once, because some structs contain themselves.
struct Walk<'t> {
    types: &'t mut Types,
    /// The types that are already declared, by the address of the message.
    seen: HashMap<*const Message, Type>,
}

impl Walk<'_> {
    fn message(&mut self, message: &Message, name: &str) -> Type {
        if let Some(known) = self.seen.get(&std::ptr::from_ref(message)) {
            return known.clone();
        }
        let of = self.types.declare(name, []);
        self.seen.insert(std::ptr::from_ref(message), of.clone());
        for field in message.fields.iter() {
            let Some(identifier) = escape(&field.name) else { continue };
            let below = format!("{name}.{identifier}");
            let limits = limits_of(&field.kind, field.limits.as_deref());
            if let Some(of) = self.kind(&field.kind, limits, &below) {
                if is_selectable_word(&field.name) {
                    self.types.set_field(name, &field.name, of.clone());
                }
                self.types.set_field(name, &identifier, of);
            }
        }
        of
    }

    /// Returns the type of a field with this kind of values. Returns `None` if expressions cannot access the
    /// field.
    fn kind(&mut self, kind: &Kind, limits: Option<&Limits>, name: &str) -> Option<Type> {
        Some(match kind {
            Kind::Bool => Type::Bool,
            Kind::Int32 | Kind::Int64 => Type::Int,
            Kind::Double => Type::Double,
            Kind::String => match limits.map_or("", |limits| &*limits.format) {
                "date" | "date-time" => Type::Timestamp,
                "duration" => Type::Duration,
                "byte" => Type::Bytes,
                _ => Type::String,
            },
            Kind::Duration => Type::String,
            Kind::Bytes => Type::Bytes,
            Kind::Time | Kind::MicroTime => Type::Timestamp,
            Kind::IntOrString => Type::Dyn,
            Kind::Message(message) => self.message(message, name),
            Kind::RawExtension | Kind::FieldsV1 => self.types.declare(name, []),
            Kind::List(list) => {
                let limits = limits_of(&list.item.kind, list.item.limits.as_deref());
                Type::list(self.kind(&list.item.kind, limits, &format!("{name}.@idx"))?)
            }
            Kind::Map(map) => {
                let limits = limits_of(&map.value.kind, map.value.limits.as_deref());
                Type::map(Type::String, self.kind(&map.value.kind, limits, &format!("{name}.@elem"))?)
            }
            Kind::Quantity
            | Kind::Json
            | Kind::SchemaOrArray(_)
            | Kind::SchemaOrBool(_)
            | Kind::SchemaOrStrings(_) => return None,
        })
    }
}
