//! Cost limits of the rules of a definition: for each rule, and for all rules together.
//!
//! ```text
//! cost of a rule = cost of one evaluation × number of values of its node that an object can have
//! ```
//!
//! The number of values is the product of the limits (`maxItems`, `maxProperties`) of the lists and maps that
//! contain the node. For a list or map without a limit, the product uses the bound that the compiler derives from the
//! maximum size of a request. The product saturates at the maximum of the integer type.

use super::extension_names::ExtensionNames;
use super::internal;
use crate::custom::definition::rules::{CompiledRule, MessageExpression, RuleError};
use crate::custom::schema::{Schema, SchemaRule};
use crate::validation::path::FieldPath;
use values::field::FieldError;

/// Maximum cost of one expression.
const EXPRESSION_MAX: u64 = 10_000_000;

/// Maximum total cost of all expressions of a schema.
const SCHEMA_MAX: u64 = 100_000_000;

/// Maximum number of expressions that the error lists if the total cost is too high.
const NAMED_MAX: usize = 4;

/// Number of values of a node that an object can have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cardinality {
    /// The number is at most the contained number.
    AtMost(u64),
    /// The schema declares no limit.
    Unbounded,
}

impl Cardinality {
    pub(super) const ONE: Cardinality = Cardinality::AtMost(1);
}

/// Returns the cardinality of the values directly below a node with `schema`.
pub(super) fn below(cardinality: Option<Cardinality>, schema: &Schema) -> Option<Cardinality> {
    let most = match schema.kind.as_str() {
        "object" if schema.additional_properties.is_some() => schema.max_properties,
        "array" => schema.max_items,
        _ => return cardinality,
    };
    cardinality.map(|cardinality| match (cardinality, most) {
        (Cardinality::AtMost(outer), Some(most)) => {
            Cardinality::AtMost(outer.saturating_mul(u64::try_from(most).unwrap_or(0)))
        }
        _ => Cardinality::Unbounded,
    })
}

/// Total cost of the expressions, and the most expensive expressions.
#[derive(Debug, Default)]
pub(super) struct TotalCost {
    total: u64,
    /// Paths and costs of the most expensive expressions, in descending order of cost.
    most_expensive: Vec<(String, u64)>,
}

impl TotalCost {
    fn add(&mut self, path: FieldPath, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_MAX / 100 {
            return;
        }
        let at = self.most_expensive.partition_point(|(_, other)| *other >= cost);
        if at < NAMED_MAX {
            self.most_expensive.insert(at, (path.to_string(), cost));
            self.most_expensive.truncate(NAMED_MAX);
        }
    }

    /// Returns the errors if the total cost is too high. `path` is the path of the schema.
    pub(super) fn errors(self, path: &FieldPath, words: &ExtensionNames) -> Vec<FieldError> {
        if self.total <= SCHEMA_MAX {
            return Vec::new();
        }
        let detail =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let named = self.most_expensive.into_iter();
        let mut errors: Vec<FieldError> =
            named.map(|(path, _)| FieldError::forbidden(path, detail)).collect();
        let what = format!("{} estimated rule cost total for entire OpenAPIv3 schema", words.validations);
        errors.push(FieldError::forbidden(path, exceeds(&what, self.total, SCHEMA_MAX)));
        errors
    }
}

/// A compiled rule with its context.
pub(super) struct RuleInContext<'r> {
    pub(super) rule: &'r SchemaRule,
    pub(super) compiled: &'r CompiledRule,
    pub(super) cardinality: Cardinality,
    /// Whether the limit of a single expression applies.
    pub(super) limits_each: bool,
    pub(super) uncorrelatable: Option<&'r FieldPath<'r>>,
}

impl RuleInContext<'_> {
    /// Appends the errors of the rule at `path` and adds its cost to the total.
    pub(super) fn errors(&self, path: &FieldPath, total: &mut TotalCost, errors: &mut Vec<FieldError>) {
        let (rule, compiled) = (self.rule, self.compiled);
        let place = path.child("rule");
        let times = match self.cardinality {
            Cardinality::AtMost(most) => most,
            Cardinality::Unbounded => compiled.cardinality,
        };
        let cost = compiled.cost.saturating_mul(times);
        if self.limits_each && cost > EXPRESSION_MAX {
            let detail = exceeds("estimated rule cost", cost, EXPRESSION_MAX);
            errors.push(FieldError::forbidden(place, detail));
        }
        total.add(place, cost);
        match &compiled.error {
            Some(RuleError::Required(detail)) => errors.push(FieldError::required(place, detail)),
            Some(RuleError::Invalid(detail)) => {
                errors.push(FieldError::invalid(place, &internal::rule(rule), detail));
            }
            None => {}
        }
        let message = path.child("messageExpression");
        match &compiled.message {
            Some(MessageExpression::Refused(detail)) => {
                errors.push(FieldError::invalid(message, &internal::rule(rule), detail));
            }
            Some(MessageExpression::Cost(cost)) => {
                if self.limits_each && *cost > EXPRESSION_MAX {
                    let detail = exceeds("estimated messageExpression cost", *cost, EXPRESSION_MAX);
                    errors.push(FieldError::forbidden(message, detail));
                }
                total.add(message, *cost);
            }
            None => {}
        }
        if compiled.uses_old_self {
            if let Some(above) = self.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                );
                errors.push(FieldError::invalid(place, &rule.rule.as_str().into(), detail));
            }
        } else if let Some(optional) = rule.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(path.child("optionalOldSelf"), &optional.into(), detail));
        }
    }
}

/// Returns the message for a cost that exceeds its limit.
fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excess_cost_is_reported_as_a_factor_of_its_limit() {
        for (cost, want) in [
            (EXPRESSION_MAX + 1, "by factor of 1.000000x (try"),
            (14_999_999, "by factor of 1.500000x (try"),
            (15_000_000, "by factor of 1.5x (try"),
            (EXPRESSION_MAX * 100, "by factor of 100.0x (try"),
            (u64::MAX, "by factor of more than 100x (try"),
        ] {
            let text = exceeds("estimated rule cost", cost, EXPRESSION_MAX);
            assert!(text.contains(want), "{cost}: {text}");
        }
    }

    #[test]
    fn the_cardinality_of_a_node_is_the_product_of_the_limits_above_it() {
        let map = |max| Schema {
            kind: "object".to_owned(),
            additional_properties: Some(crate::custom::schema::Additional::Allowed(true)),
            max_properties: max,
            ..Schema::default()
        };
        let list = |max| Schema { kind: "array".to_owned(), max_items: max, ..Schema::default() };
        let at_most = |most| Some(Cardinality::AtMost(most));
        for (outer, schema, want) in [
            (at_most(3), map(Some(5)), at_most(15)),
            (at_most(3), list(Some(-1)), at_most(0)),
            (at_most(u64::MAX), list(Some(2)), at_most(u64::MAX)),
            (at_most(3), Schema { kind: "object".to_owned(), ..Schema::default() }, at_most(3)),
            (at_most(3), map(None), Some(Cardinality::Unbounded)),
            (Some(Cardinality::Unbounded), list(Some(2)), Some(Cardinality::Unbounded)),
            (None, list(Some(2)), None),
        ] {
            assert_eq!(below(outer, &schema), want, "{schema:?}");
        }
    }

    #[test]
    fn an_excess_of_the_total_cost_names_the_four_most_expensive_expressions() {
        let mut total = TotalCost::default();
        for (name, cost) in [("a", 1), ("b", 60), ("c", 0), ("d", 50), ("e", 60), ("f", 40), ("g", 70)] {
            total.add(FieldPath::ROOT.child(name), cost * SCHEMA_MAX / 100);
        }
        let words = ExtensionNames::new(&values::naming::KUBERNETES);
        let errors = total.errors(&FieldPath::ROOT.child("root"), &words);
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["g", "b", "e", "d", "root"]);
        let mut total = TotalCost::default();
        total.add(FieldPath::ROOT.child("a"), SCHEMA_MAX);
        assert!(total.errors(&FieldPath::ROOT, &words).is_empty());
    }
}
