//! Decides which of the requested names a definition gets.
//!
//! The plural, singular and short names of a group are unique, and the kinds and list kinds of a group are unique. The
//! definition that got a name first keeps the name. Each name is granted independently. If a requested name is in use,
//! the definition keeps its previous name.

use hashbrown::HashSet;

use super::{Condition, Definition, Names};
use values::field::go_quote;

/// Type of the condition that reports whether all requested names are granted.
pub const NAMES_ACCEPTED: &str = "NamesAccepted";

/// Type of the condition that reports whether the objects of the type are served.
pub const ESTABLISHED: &str = "Established";

/// Names in use in a group.
#[derive(Clone, Debug, Default)]
pub struct TakenNames {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl TakenNames {
    /// Adds names that are in use: the names of a built-in type, or the accepted names of a definition.
    pub fn add(&mut self, names: &Names) {
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        self.resources.extend(resources.cloned());
        self.kinds.extend([&names.kind, &names.list_kind].into_iter().cloned());
    }

    /// Returns the names of all definitions in the group. The result includes the names of the definition
    /// itself, so that its singular name cannot become equal to its plural name.
    pub fn by<'d>(definitions: impl IntoIterator<Item = &'d Definition>, group: &str) -> TakenNames {
        let mut taken = TakenNames::default();
        for definition in definitions.into_iter().filter(|definition| definition.group == group) {
            taken.add(&definition.accepted);
        }
        taken
    }
}

/// Returns the new names of a definition and the condition that reports them. Returns `None` if names and
/// condition are unchanged.
pub fn grant(definition: &Definition, taken: &TakenNames) -> Option<(Names, Condition)> {
    let (requested, accepted) = (&definition.names, &definition.accepted);
    if requested == accepted {
        return None;
    }
    let mut names = accepted.clone();
    let mut conflict: Option<(&str, String)> = None;
    let mut one = |name: &str, slot: &mut String, used: &HashSet<String>, reason: &'static str| {
        if name == slot.as_str() || !used.contains(name) {
            name.clone_into(slot);
        } else {
            conflict = Some((reason, in_use(name)));
        }
    };
    one(&requested.plural, &mut names.plural, &taken.resources, "PluralConflict");
    one(&requested.singular, &mut names.singular, &taken.resources, "SingularConflict");
    let short_names: HashSet<&String> = accepted.short_names.iter().collect();
    let own =
        |name: &String| short_names.contains(name) || *name == accepted.plural || *name == accepted.singular;
    let refused = requested
        .short_names
        .iter()
        .filter(|name| !own(name) && taken.resources.contains(*name))
        .map(|name| in_use(name));
    let mut other: Option<(&str, String)> = None;
    if let Some(text) = go::join_errors(refused) {
        other = Some(("ShortNamesConflict", text));
    } else {
        names.short_names.clone_from(&requested.short_names);
    }
    // If several names conflict, the last conflict is reported.
    conflict = other.or(conflict);
    let mut one = |name: &str, slot: &mut String, reason: &'static str| {
        if name == slot.as_str() || !taken.kinds.contains(name) {
            name.clone_into(slot);
        } else {
            conflict = Some((reason, in_use(name)));
        }
    };
    one(&requested.kind, &mut names.kind, "KindConflict");
    one(&requested.list_kind, &mut names.list_kind, "ListKindConflict");
    names.categories.clone_from(&requested.categories);
    let condition = match conflict {
        Some((reason, message)) => Condition::new(NAMES_ACCEPTED, "False", reason, message),
        None => Condition::new(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found"),
    };
    let is_same =
        definition.condition(NAMES_ACCEPTED).is_some_and(|old| old.is_same_except_times(&condition));
    (names != *accepted || !is_same).then_some((names, condition))
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", go_quote(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    fn definition(names: &str, accepted: &str) -> Definition {
        let text = format!(
            r#"{{"spec":{{"group":"g.example","names":{names}}},"status":{{"acceptedNames":{accepted}}}}}"#
        );
        Definition::read(&object(&text))
    }

    const REQUESTED: &str =
        r#"{"plural":"as","singular":"a","shortNames":["x","y"],"kind":"A","listKind":"AList"}"#;

    #[test]
    fn a_name_is_granted_to_the_first_definition_that_requests_it() {
        for (requested, accepted, others, reason, message) in [
            (REQUESTED, "{}", "{}", "NoConflicts", "no conflicts found"),
            (REQUESTED, "{}", r#"{"plural":"as"}"#, "PluralConflict", r#""as" is already in use"#),
            (REQUESTED, "{}", r#"{"singular":"as"}"#, "PluralConflict", r#""as" is already in use"#),
            (REQUESTED, "{}", r#"{"shortNames":["a"]}"#, "SingularConflict", r#""a" is already in use"#),
            (REQUESTED, "{}", r#"{"shortNames":["x"]}"#, "ShortNamesConflict", r#""x" is already in use"#),
            (
                REQUESTED,
                "{}",
                r#"{"shortNames":["x"],"plural":"y"}"#,
                "ShortNamesConflict",
                r#"["x" is already in use, "y" is already in use]"#,
            ),
            (REQUESTED, "{}", r#"{"plural":"as","kind":"A"}"#, "KindConflict", r#""A" is already in use"#),
            (REQUESTED, "{}", r#"{"kind":"AList"}"#, "ListKindConflict", r#""AList" is already in use"#),
            (
                REQUESTED,
                r#"{"shortNames":["x"]}"#,
                r#"{"shortNames":["x"]}"#,
                "NoConflicts",
                "no conflicts found",
            ),
            (REQUESTED, r#"{"plural":"x"}"#, r#"{"plural":"x"}"#, "NoConflicts", "no conflicts found"),
        ] {
            let definition = definition(requested, accepted);
            let mut taken = TakenNames::by([&definition], "g.example");
            taken.add(&Names::read(Some(&object(others).into())));
            let (_, condition) = grant(&definition, &taken).unwrap();
            assert_eq!(
                (condition.reason.as_str(), condition.message.as_str()),
                (reason, message),
                "{others}"
            );
        }
    }

    #[test]
    fn each_requested_name_is_granted_or_refused_separately() {
        let definition = definition(REQUESTED, r#"{"plural":"as","kind":"Old","shortNames":["z"]}"#);
        let mut taken = TakenNames::default();
        taken.add(&Names::read(Some(&object(r#"{"kind":"A","shortNames":["y"]}"#).into())));
        let (names, condition) = grant(&definition, &taken).unwrap();
        assert_eq!(condition.reason, "KindConflict");
        let want = r#"{"plural":"as","singular":"a","shortNames":["z"],"kind":"Old","listKind":"AList"}"#;
        assert_eq!(names.to_value(), object(want).into());
    }

    #[test]
    fn grant_returns_none_if_the_names_were_granted_or_refused_before() {
        assert!(grant(&definition(REQUESTED, REQUESTED), &TakenNames::default()).is_none());
        let mut refused = definition(REQUESTED, REQUESTED);
        refused.accepted.kind = "Old".to_owned();
        let mut taken = TakenNames::default();
        taken.add(&Names { kind: "A".to_owned(), ..Names::default() });
        let (_, condition) = grant(&refused, &taken).unwrap();
        refused.conditions.push(condition);
        assert!(grant(&refused, &taken).is_none());
    }
}
