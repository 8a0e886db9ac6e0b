//! Visits all schemas in a schema: the schemas of nested values and the schemas in logical keywords.

use std::ops::ControlFlow;

use crate::custom::schema::{Additional, Dependency, Items, Schema};

/// Returns whether `predicate` is true for the schema or any schema below it.
pub fn any(schema: &Schema, mut predicate: impl FnMut(&Schema) -> bool) -> bool {
    let found = visit(schema, &mut |node| {
        if predicate(node) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found.is_break()
}

/// Calls `see` for the schema and every schema below it.
pub fn each(schema: &Schema, mut see: impl FnMut(&Schema)) {
    let _ = visit(schema, &mut |node| {
        see(node);
        ControlFlow::Continue(())
    });
}

/// Visits schemas in the order of the reference server: the schema itself, the schemas of elements, the
/// logical keywords, and the schemas of members.
fn visit(schema: &Schema, see: &mut dyn FnMut(&Schema) -> ControlFlow<()>) -> ControlFlow<()> {
    see(schema)?;
    let items: &[Schema] = match &schema.items {
        Some(Items::All(item)) => std::slice::from_ref(item),
        Some(Items::Each(items)) => items,
        None => &[],
    };
    let logic = [&schema.all_of, &schema.any_of, &schema.one_of].into_iter().flatten();
    for inner in items
        .iter()
        .chain(logic)
        .chain(schema.not.as_deref())
        .chain(schema.properties.values().map(|inner| &**inner))
    {
        visit(inner, see)?;
    }
    if let Some(Additional::Schema(inner)) = &schema.additional_properties {
        visit(inner, see)?;
    }
    for inner in schema.pattern_properties.values() {
        visit(inner, see)?;
    }
    if let Some(Additional::Schema(inner)) = &schema.additional_items {
        visit(inner, see)?;
    }
    for inner in schema.definitions.values() {
        visit(inner, see)?;
    }
    for dependency in schema.dependencies.values() {
        if let Dependency::Schema(inner) = dependency {
            visit(inner, see)?;
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn every_schema_is_visited_in_order() {
        let schema = r#"{"title":"root","properties":{"p":{"title":"p"}},"items":{"title":"i","items":[{"title":"0"}]},
            "not":{"title":"not"},"allOf":[{"title":"all"}],"anyOf":[{"title":"any"}],"oneOf":[{"title":"one"}],
            "additionalProperties":{"title":"+p"},"patternProperties":{"x":{"title":"/p"}},
            "additionalItems":{"title":"+i"},"definitions":{"d":{"title":"d"}},
            "dependencies":{"a":{"title":"dep"},"b":["c"]}}"#;
        let schema = Schema::read(&object(schema).into());
        let mut titles = Vec::new();
        each(&schema, |node| titles.push(node.title.clone()));
        assert_eq!(titles.join(" "), "root i 0 all any one not p +p /p +i d dep");
        assert!(any(&schema, |node| node.title == "dep"));
        assert!(!any(&schema, |node| node.title == "c"));
    }
}
