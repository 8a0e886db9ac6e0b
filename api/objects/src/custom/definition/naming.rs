//! Decides which of its requested names a definition gets.
//!
//! Names are unique within a group: plural, singular and short names among each other, and kinds and list
//! kinds among each other. The definition that had a name first keeps it. Each name is granted independently.
//! If a definition does not get a requested name, it keeps its earlier one.

use hashbrown::HashSet;

use super::{Condition, Definition, Names};
use values::field::go_quote;

/// Type of the condition that all names are granted.
pub const NAMES_ACCEPTED: &str = "NamesAccepted";

/// Type of the condition that objects are served.
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

    /// Returns the names of all definitions in the group. This includes the definition itself, which cannot
    /// take its own plural as its singular while it has it.
    pub fn by<'d>(definitions: impl IntoIterator<Item = &'d Definition>, group: &str) -> TakenNames {
        let mut taken = TakenNames::default();
        for definition in definitions.into_iter().filter(|definition| definition.group == group) {
            taken.add(&definition.accepted);
        }
        taken
    }
}

/// Returns the names that a definition has from now on, with the condition about them; `None` if nothing
/// changes.
pub fn grant(definition: &Definition, taken: &TakenNames) -> Option<(Names, Condition)> {
    let (asked, accepted) = (&definition.names, &definition.accepted);
    if asked == accepted {
        return None;
    }
    let mut names = accepted.clone();
    let mut conflict: Option<(&str, String)> = None;
    let mut one = |asked: &str, slot: &mut String, used: &HashSet<String>, reason: &'static str| {
        if asked == slot.as_str() || !used.contains(asked) {
            asked.clone_into(slot);
        } else {
            conflict = Some((reason, in_use(asked)));
        }
    };
    one(&asked.plural, &mut names.plural, &taken.resources, "PluralConflict");
    one(&asked.singular, &mut names.singular, &taken.resources, "SingularConflict");
    let short_names: HashSet<&String> = accepted.short_names.iter().collect();
    let own =
        |name: &String| short_names.contains(name) || *name == accepted.plural || *name == accepted.singular;
    let refused = asked
        .short_names
        .iter()
        .filter(|name| !own(name) && taken.resources.contains(*name))
        .map(|name| in_use(name));
    let mut other: Option<(&str, String)> = None;
    if let Some(text) = go::join_errors(refused) {
        other = Some(("ShortNamesConflict", text));
    } else {
        names.short_names.clone_from(&asked.short_names);
    }
    // The last conflict is reported.
    conflict = other.or(conflict);
    let mut one = |asked: &str, slot: &mut String, reason: &'static str| {
        if asked == slot.as_str() || !taken.kinds.contains(asked) {
            asked.clone_into(slot);
        } else {
            conflict = Some((reason, in_use(asked)));
        }
    };
    one(&asked.kind, &mut names.kind, "KindConflict");
    one(&asked.list_kind, &mut names.list_kind, "ListKindConflict");
    names.categories.clone_from(&asked.categories);
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

    fn definition(asked: &str, accepted: &str) -> Definition {
        let text = format!(
            r#"{{"spec":{{"group":"g.example","names":{asked}}},"status":{{"acceptedNames":{accepted}}}}}"#
        );
        Definition::read(&object(&text))
    }

    const ASKED: &str =
        r#"{"plural":"as","singular":"a","shortNames":["x","y"],"kind":"A","listKind":"AList"}"#;

    #[test]
    fn names_go_to_the_first_who_asks() {
        for (asked, accepted, others, reason, message) in [
            (ASKED, "{}", "{}", "NoConflicts", "no conflicts found"),
            (ASKED, "{}", r#"{"plural":"as"}"#, "PluralConflict", r#""as" is already in use"#),
            (ASKED, "{}", r#"{"singular":"as"}"#, "PluralConflict", r#""as" is already in use"#),
            (ASKED, "{}", r#"{"shortNames":["a"]}"#, "SingularConflict", r#""a" is already in use"#),
            (ASKED, "{}", r#"{"shortNames":["x"]}"#, "ShortNamesConflict", r#""x" is already in use"#),
            (
                ASKED,
                "{}",
                r#"{"shortNames":["x"],"plural":"y"}"#,
                "ShortNamesConflict",
                r#"["x" is already in use, "y" is already in use]"#,
            ),
            (ASKED, "{}", r#"{"plural":"as","kind":"A"}"#, "KindConflict", r#""A" is already in use"#),
            (ASKED, "{}", r#"{"kind":"AList"}"#, "ListKindConflict", r#""AList" is already in use"#),
            (
                ASKED,
                r#"{"shortNames":["x"]}"#,
                r#"{"shortNames":["x"]}"#,
                "NoConflicts",
                "no conflicts found",
            ),
            (ASKED, r#"{"plural":"x"}"#, r#"{"plural":"x"}"#, "NoConflicts", "no conflicts found"),
        ] {
            let definition = definition(asked, accepted);
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
    fn each_name_is_granted_on_its_own() {
        let definition = definition(ASKED, r#"{"plural":"as","kind":"Old","shortNames":["z"]}"#);
        let mut taken = TakenNames::default();
        taken.add(&Names::read(Some(&object(r#"{"kind":"A","shortNames":["y"]}"#).into())));
        let (names, condition) = grant(&definition, &taken).unwrap();
        assert_eq!(condition.reason, "KindConflict");
        let want = r#"{"plural":"as","singular":"a","shortNames":["z"],"kind":"Old","listKind":"AList"}"#;
        assert_eq!(names.to_value(), object(want).into());
    }

    #[test]
    fn nothing_changes_when_the_names_are_granted_or_refused_already() {
        assert!(grant(&definition(ASKED, ASKED), &TakenNames::default()).is_none());
        let mut refused = definition(ASKED, ASKED);
        refused.accepted.kind = "Old".to_owned();
        let mut taken = TakenNames::default();
        taken.add(&Names { kind: "A".to_owned(), ..Names::default() });
        let (_, condition) = grant(&refused, &taken).unwrap();
        refused.conditions.push(condition);
        assert!(grant(&refused, &taken).is_none());
    }
}
