//! Property tests of apply on random configurations. Scenarios with requests are in `tests/it/scenario`.

use super::*;
use crate::apply::fixture::{Fixture, writer};
use crate::apply::updated;
use testkit::Random;
use types::schema::conform::conform;
use types::schema::decode::decode;
use types::schema::decode_form::zero_object;
use types::schema::encode::encode;
use types::schema::generate;
use values::json::Value;
use values::object::meta;
use values::testing::{object, object_text as text};

/// The time of all writes.
const NOW: &str = "2024-01-01T00:00:00Z";

/// Returns a configuration of a deployment with a random subset of fields: maps, keyed lists, sets, atomic
/// values and scalars. Names end with `suffix`, so that two managers can use different names.
fn config(random: &mut Random, suffix: &str) -> Object {
    let mut text = String::from(r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d""#);
    let some = |random: &mut Random, names: &[&str], make: &dyn Fn(&mut Random, &str) -> String| -> String {
        let mut made = Vec::new();
        for name in names {
            if random.one_in(2) {
                made.push(make(random, &format!("{name}{suffix}")));
            }
        }
        made.join(",")
    };
    let labels = some(random, &["a", "b", "c"], &|random, name| format!(r#""{name}":"{}""#, random.index(3)));
    if !labels.is_empty() {
        // An empty map would be a separate field with all appliers as owners.
        text.push_str(&format!(r#","labels":{{{labels}}}"#));
    }
    text.push_str(r#","finalizers":["#);
    text.push_str(&some(random, &["x/a", "x/b", "x/c"], &|_, name| format!(r#""{name}""#)));
    text.push_str(r#"]},"spec":{"template":{"spec":{"containers":["#);
    text.push_str(&some(random, &["web", "log"], &|random, name| {
        let image =
            if random.one_in(2) { format!(r#","image":"i{}""#, random.index(3)) } else { String::new() };
        let command =
            if random.one_in(2) { format!(r#","command":["c{}"]"#, random.index(3)) } else { String::new() };
        let port = if random.one_in(2) {
            format!(r#","ports":[{{"containerPort":{}}}]"#, 80 + random.index(2))
        } else {
            String::new()
        };
        format!(r#"{{"name":"{name}"{image}{command}{port}}}"#)
    }));
    text.push_str("]}}}}");
    object(&text)
}

fn deployments() -> Fixture {
    Fixture::new("apps", "deployments")
}

impl Fixture {
    fn apply(
        &self,
        live: &Object,
        manager: &str,
        config: &Object,
        force: bool,
    ) -> Result<Object, ApplyError> {
        let applied = apply(&self.versions(), &writer(manager, NOW), &self.reset(), live, config, force)?;
        Ok(self.stored_object(&applied.conformed(self.message(), live).unwrap()))
    }

    /// Returns the object as the next request reads it from the store.
    fn stored_object(&self, object: &Object) -> Object {
        let mut bytes = Vec::new();
        encode(self.message(), object, &mut bytes);
        decode(self.message(), &bytes).unwrap().object
    }

    fn nothing(&self) -> Object {
        zero_object(self.message())
    }

    fn fields(&self, config: &Object) -> FieldSet<'static> {
        self.reset().owned(field_set(self.message(), config)).into_owned()
    }
}

fn owned(object: &Object, manager: &str) -> FieldSet<'static> {
    let managed = Managed::stored(object);
    let entry = managed.entries().iter().find(|entry| entry.manager.name == manager);
    entry.map(|entry| entry.set().into_owned().into_owned()).unwrap_or_default()
}

/// Returns the result of an apply in a form that can be compared.
fn outcome(applied: &Result<Object, ApplyError>) -> String {
    applied.as_ref().map_or_else(|error| format!("{error:?}"), text)
}

#[test]
fn a_second_identical_apply_changes_nothing() {
    let (fixture, mut random) = (deployments(), Random(1));
    for _ in 0..400 {
        let (first, second) = (config(&mut random, ""), config(&mut random, ""));
        let live = fixture.apply(&fixture.nothing(), "one", &first, false).unwrap();
        let once = fixture.apply(&live, "two", &second, true).unwrap();
        let twice = fixture.apply(&once, "two", &second, false).unwrap();
        assert_eq!(text(&twice), text(&once), "{} then {}", text(&first), text(&second));
    }
}

#[test]
fn an_apply_owns_exactly_its_configuration_and_takes_changed_fields_from_other_managers() {
    let (fixture, mut random) = (deployments(), Random(2));
    for _ in 0..400 {
        let (first, second) = (config(&mut random, ""), config(&mut random, ""));
        let live = fixture.apply(&fixture.nothing(), "one", &first, false).unwrap();
        assert_eq!(owned(&live, "one"), fixture.fields(&first));
        let forced = fixture.apply(&live, "two", &second, true).unwrap();
        assert_eq!(owned(&forced, "two"), fixture.fields(&second));
        let left = owned(&forced, "one");
        assert!(left.clone().difference(&owned(&live, "one")).is_empty(), "others get no fields");
        // Without force, the apply either conflicts exactly about the fields that it would take over, or
        // takes over no fields.
        match fixture.apply(&live, "two", &second, false) {
            Err(ApplyError::Conflicts(conflicts)) => {
                assert_eq!(conflicts.fields(), owned(&live, "one").difference(&left));
            }
            Ok(unforced) => assert_eq!(text(&unforced), text(&forced)),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn disjoint_applies_commute_and_an_empty_apply_leaves_the_other_manager_unchanged() {
    let (fixture, mut random) = (deployments(), Random(3));
    for _ in 0..400 {
        let (first, second) = (config(&mut random, "1"), config(&mut random, "2"));
        let one = fixture.apply(&fixture.nothing(), "one", &first, false).unwrap();
        let both = fixture.apply(&one, "two", &second, false).unwrap();
        let two = fixture.apply(&fixture.nothing(), "two", &second, false).unwrap();
        let other = fixture.apply(&two, "one", &first, false).unwrap();
        // The order of elements depends on the order of the applies; content and ownership do not.
        let sorted = |object: &Object| {
            let mut bytes = text(object).into_bytes();
            bytes.sort_unstable();
            bytes
        };
        assert_eq!(sorted(&both), sorted(&other), "{} and {}", text(&first), text(&second));
        for manager in ["one", "two"] {
            assert_eq!(owned(&both, manager), owned(&other, manager));
        }
        let bare = object(r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"}}"#);
        let left = fixture.apply(&both, "two", &bare, false).unwrap();
        assert!(owned(&left, "two").is_empty());
        assert_eq!(owned(&left, "one"), fixture.fields(&first));
        let alone = fixture.apply(&fixture.nothing(), "one", &first, false).unwrap();
        assert_eq!(text(&left), text(&alone), "{} without {}", text(&first), text(&second));
    }
}

#[test]
fn an_apply_that_changes_nothing_has_no_time_in_its_managed_fields_entry() {
    let fixture = deployments();
    let bare =
        object(r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","labels":{"a":"1"}}}"#);
    let more = object(
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","labels":{"a":"1"}},"spec":{"paused":true}}"#,
    );
    let times = |object: &Object| -> Vec<bool> {
        let managed = Managed::stored(object);
        ["one", "two"]
            .iter()
            .flat_map(|name| managed.entries().iter().filter(move |entry| entry.manager.name == *name))
            .map(|entry| !entry.time.is_empty())
            .collect()
    };
    let one = fixture.apply(&fixture.nothing(), "one", &bare, false).unwrap();
    assert_eq!(times(&one), [true], "a creation is a change");
    let same = fixture.apply(&one, "two", &bare, false).unwrap();
    assert_eq!(times(&same), [true, false], "an apply of equal values is not a change");
    let changed = fixture.apply(&same, "two", &more, false).unwrap();
    assert_eq!(times(&changed), [true, true]);
}

impl Fixture {
    /// Applies without shortcuts: parses and builds every field set, removes and restores all fields of the
    /// previous apply, and decodes the whole object.
    fn apply_plainly(
        &self,
        live: &Object,
        manager: &str,
        config: &Object,
        force: bool,
    ) -> Result<Object, ApplyError> {
        let (versions, message, reset) = (self.versions(), self.message(), self.reset());
        let writer = writer(manager, NOW);
        let errors = check(message, config);
        if !errors.is_empty() {
            return Err(ApplyError::Configuration(join(&errors)));
        }
        let first = if Managed::stored(live).is_empty() {
            before_first_apply(&versions, &writer, &reset, live)
        } else {
            live.clone()
        };
        let mut managed = Managed::stored(&first);
        for entry in managed.entries_mut() {
            let set = reconcile(message, entry.set().into_owned());
            entry.set_fields(set);
        }
        let mut merged = merge(message, live, config).map_err(|error| ApplyError::Live(error.to_string()))?;
        crate::apply::take_managed_fields(&mut merged);
        let manager = writer.manager(ManagerOperation::Apply, versions.own.api_version);
        let last = managed.take(&manager);
        let last_time = last.as_ref().map(|last| last.time.clone()).unwrap_or_default();
        let set = reset.applied(field_set(message, config));
        managed.put(Entry::new(manager.clone(), writer.now.into(), set));
        if let Some(last) = &last {
            merged = prune(&versions, merged, &managed, last);
        }
        let mut entry = managed.take(&manager).unwrap();
        let value = {
            let mut changes = TrackedChanges::new(versions, &reset, live, &merged);
            if !force && let Some(conflicts) = conflicts(&managed, &mut changes) {
                return Err(ApplyError::Conflicts(conflicts));
            }
            if changes.own.is_same() && !meta(live, "name").is_empty() {
                entry.time = last_time;
            }
            take_back(&mut managed, &mut changes, None);
            let owned = reset.owned(entry.set().into_owned());
            if !owned.is_empty() {
                entry.set_fields(owned);
                managed.put(entry);
            }
            managed.into_value()
        };
        put_managed_fields(&mut merged, value);
        Ok(self.stored_object(&conform(message, merged.into()).unwrap().object))
    }

    /// Updates the object as a manager that does not apply.
    fn update(&self, live: &Object, manager: &str, mut new: Object) -> Object {
        updated(&self.versions(), &writer(manager, NOW), &self.reset(), live, &mut new);
        self.stored_object(&new)
    }
}

#[test]
fn the_fast_path_of_apply_gives_the_same_result_as_the_general_path() {
    let (fixture, mut random, mut made) = (deployments(), Random(4), Random(5));
    let message = fixture.message();
    let (mut applied, mut refused, mut updates, mut contended) = (0, 0, 0, 0);
    for _ in 0..200 {
        let mut live = fixture.nothing();
        for _ in 0..8 {
            let mut configuration = Value::Object(config(&mut random, ""));
            // Some configurations are unusual: they have repeated elements or null members, or are not
            // derived from the live object.
            match random.index(8) {
                0 => configuration = generate::object(&mut made, message, 1).into(),
                1 | 2 => generate::disturb(&mut made, &mut configuration),
                3 => generate::thin(&mut made, &mut configuration),
                _ => {}
            }
            let Value::Object(mut configuration) = configuration else { continue };
            if let Some(Value::Object(metadata)) = configuration.get_mut("metadata") {
                metadata.remove("managedFields");
            }
            let manager = random.pick(&["one", "two", "three"]);
            if random.index(4) == 0 {
                let Ok(new) = merge(message, &live, &configuration) else { continue };
                let Ok(new) = conform(message, new.into()) else { continue };
                live = fixture.update(&live, manager, new.object);
                updates += 1;
                continue;
            }
            let force = random.one_in(2);
            if check(message, &configuration).is_empty()
                && merge(message, &live, &configuration)
                    .is_ok_and(|new| conform(message, new.into()).is_err())
            {
                continue; // the types of the manager refuse the result
            }
            let plainly = fixture.apply_plainly(&live, manager, &configuration, force);
            let got = fixture.apply(&live, manager, &configuration, force);
            assert_eq!(outcome(&got), outcome(&plainly), "{} over {}", text(&configuration), text(&live));
            match got {
                Ok(got) => {
                    // Repeating an apply does not change the object. The second apply conflicts only about an
                    // empty map that belongs to another manager. The first apply dropped the empty map, because an
                    // empty map equals an absent map.
                    let again = fixture.apply(&got, manager, &configuration, false);
                    let plainly = fixture.apply_plainly(&got, manager, &configuration, false);
                    assert_eq!(
                        outcome(&again),
                        outcome(&plainly),
                        "{} twice over {}",
                        text(&configuration),
                        text(&got)
                    );
                    contended += usize::from(again.is_err());
                    live = again.unwrap_or(got);
                    applied += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(applied > 600 && refused > 50 && updates > 100, "{applied}, {refused}, {updates}");
    assert!(contended * 50 < applied, "{contended} of {applied}");
}
