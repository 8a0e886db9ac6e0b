//! Selectors in the form that authorization uses: the requirements of a request's selectors, and of the
//! selectors in a review.
//!
//! Each requirement only narrows the request, so authorization may use fewer requirements than the request
//! has. Requirements that cannot be read are therefore omitted, and reviews report the omission.

use auth::{FieldRequirement, LabelRequirement, Selectors};

use super::field::FieldTerms;
use super::label::{LabelSelector, Operator, Requirement};
use values::json::Value;

/// The requirements that could be read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Requirements {
    fields: Vec<FieldRequirement>,
    labels: Vec<LabelRequirement>,
}

/// The part of a selector that could be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Readable {
    /// The whole selector was read.
    Whole,
    /// Some requirements of the selector were read.
    Partly,
    /// No requirement of the selector was read.
    Not,
}

impl Requirements {
    /// Returns the requirements of the selectors in a query. A malformed selector has no requirements.
    pub fn of_query(fields: Option<&str>, labels: Option<&str>) -> Requirements {
        Requirements {
            fields: fields.and_then(fields_of_text).unwrap_or_default(),
            labels: labels.and_then(labels_of_text).unwrap_or_default(),
        }
    }

    /// Returns the requirements of `fieldSelector` and `labelSelector` in a review's attributes, and how much
    /// of each selector could be read.
    pub fn of_review(attributes: &Value) -> (Requirements, Readable, Readable) {
        let (fields, fields_read) = read(attributes.get("fieldSelector"), fields_of_text, field);
        let (labels, labels_read) = read(attributes.get("labelSelector"), labels_of_text, label);
        (Requirements { fields, labels }, fields_read, labels_read)
    }

    /// Returns the requirements in the form for authorizers.
    pub fn selectors(&self) -> Selectors<'_> {
        Selectors { fields: &self.fields, labels: &self.labels }
    }
}

fn fields_of_text(text: &str) -> Option<Vec<FieldRequirement>> {
    let terms = FieldTerms::parse(text).ok()?;
    let each = terms.terms().iter().map(|term| FieldRequirement {
        field: term.label.clone(),
        is_equal: term.equals,
        value: term.value.clone(),
    });
    Some(each.collect())
}

fn labels_of_text(text: &str) -> Option<Vec<LabelRequirement>> {
    Some(LabelSelector::parse(text).ok()?.requirements().iter().filter_map(of_label).collect())
}

/// Converts a requirement; `None` for comparisons of numbers, which a review cannot express.
fn of_label(requirement: &Requirement) -> Option<LabelRequirement> {
    let operator = match requirement.operator() {
        Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
        Operator::NotEquals | Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::GreaterThan | Operator::LessThan => return None,
    };
    Some(LabelRequirement {
        key: requirement.key().to_owned(),
        operator,
        values: requirement.values().to_vec(),
    })
}

/// Reads a selector of a review from its requirements, or from its text if there are no requirements.
fn read<R>(
    selector: Option<&Value>,
    of_text: impl Fn(&str) -> Option<Vec<R>>,
    of_requirement: impl Fn(&Value) -> Option<R>,
) -> (Vec<R>, Readable) {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return (Vec::new(), Readable::Whole);
    };
    let given = selector.get("requirements").and_then(Value::as_array).unwrap_or_default();
    if given.is_empty() {
        return match of_text(selector.str_at(&["rawSelector"])) {
            Some(requirements) => (requirements, Readable::Whole),
            None => (Vec::new(), Readable::Not),
        };
    }
    let requirements: Vec<R> = given.iter().filter_map(of_requirement).collect();
    let readable = match requirements.len() {
        count if count == given.len() => Readable::Whole,
        0 => Readable::Not,
        _ => Readable::Partly,
    };
    (requirements, readable)
}

fn values(requirement: &Value) -> Vec<String> {
    let values = requirement.get("values").and_then(Value::as_array).unwrap_or_default();
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Converts a field requirement. Returns `None` if the requirement does not have exactly one value.
fn field(requirement: &Value) -> Option<FieldRequirement> {
    let is_equal = match requirement.str_at(&["operator"]) {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    let [value] = <[String; 1]>::try_from(values(requirement)).ok()?;
    Some(FieldRequirement { field: requirement.str_at(&["key"]).to_owned(), is_equal, value })
}

fn label(requirement: &Value) -> Option<LabelRequirement> {
    let operator = match requirement.str_at(&["operator"]) {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    of_label(&Requirement::new(requirement.str_at(&["key"]), operator, values(requirement)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    fn requirements_text(requirements: &Requirements) -> String {
        let fields = requirements.fields.iter().map(|field| {
            let operator = if field.is_equal { "=" } else { "!=" };
            format!("{}{operator}{}", field.field, field.value)
        });
        let labels = requirements.labels.iter().map(|label| {
            format!("{} {} {}", label.key, label.operator, label.values.join("+")).trim_end().to_owned()
        });
        fields.chain(labels).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn selectors_of_a_query_become_authorization_requirements() {
        for (fields, labels, want) in [
            (Some("spec.nodeName=n,metadata.name!=x"), None, "metadata.name!=x, spec.nodeName=n"),
            (None, Some("a in (c,b),d,!e,f!=g,h>1"), "a In b+c, d Exists, e DoesNotExist, f NotIn g"),
            (Some("a"), Some("a===b"), ""),
            (None, None, ""),
        ] {
            assert_eq!(requirements_text(&Requirements::of_query(fields, labels)), want);
        }
    }

    #[test]
    fn selectors_of_an_access_review_are_parsed_as_far_as_possible() {
        use Readable::{Not, Partly, Whole};
        for (attributes, want, fields, labels) in [
            ("{}", "", Whole, Whole),
            (r#"{"fieldSelector":{"rawSelector":"a=b,c!=d"}}"#, "a=b, c!=d", Whole, Whole),
            (
                r#"{"fieldSelector":{"rawSelector":"a"},"labelSelector":{"rawSelector":"b"}}"#,
                "b Exists",
                Not,
                Whole,
            ),
            (
                r#"{"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},
                    {"key":"c","operator":"Exists"},{"key":"d","operator":"NotIn","values":["e","f"]}]},
                    "labelSelector":{"requirements":[{"key":"a","operator":"In","values":["c","b"]},
                    {"key":"d","operator":"Exists"}]}}"#,
                "a=b, a In b+c, d Exists",
                Partly,
                Whole,
            ),
            (
                r#"{"labelSelector":{"requirements":[{"key":"a","operator":"Like","values":["b"]}]}}"#,
                "",
                Whole,
                Not,
            ),
        ] {
            let (requirements, fields_read, labels_read) =
                Requirements::of_review(&parse(attributes.as_bytes()).unwrap());
            assert_eq!(
                (requirements_text(&requirements).as_str(), fields_read, labels_read),
                (want, fields, labels)
            );
        }
    }
}
