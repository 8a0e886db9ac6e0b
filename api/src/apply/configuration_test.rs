//! The laws of applying, on random configurations. Stories are told in `tests/it/scenario`.

use super::*;
use crate::apply::scene::{Scene, writer};
use crate::apply::updated;
use crate::codec::protobuf::generate;
use crate::json::Value;
use crate::schema::conform::conform;
use crate::schema::decode_form::zero_object;
use crate::testing::{Random, object, object_text as text};

/// When everything is written.
const NOW: &str = "2024-01-01T00:00:00Z";

/// A configuration of a deployment with some of what there is: maps, keyed lists, sets, atomics, scalars. Names end
/// with `suffix`, so that two managers can be kept apart.
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
    let labels = some(random, &["a", "b", "c"], &|random, name| format!(r#""{name}":"{}""#, random.below(3)));
    if !labels.is_empty() {
        // An empty map would be a field of its own, the same for all who apply it.
        text.push_str(&format!(r#","labels":{{{labels}}}"#));
    }
    text.push_str(r#","finalizers":["#);
    text.push_str(&some(random, &["x/a", "x/b", "x/c"], &|_, name| format!(r#""{name}""#)));
    text.push_str(r#"]},"spec":{"template":{"spec":{"containers":["#);
    text.push_str(&some(random, &["web", "log"], &|random, name| {
        let image =
            if random.one_in(2) { format!(r#","image":"i{}""#, random.below(3)) } else { String::new() };
        let command =
            if random.one_in(2) { format!(r#","command":["c{}"]"#, random.below(3)) } else { String::new() };
        let port = if random.one_in(2) {
            format!(r#","ports":[{{"containerPort":{}}}]"#, 80 + random.below(2))
        } else {
            String::new()
        };
        format!(r#"{{"name":"{name}"{image}{command}{port}}}"#)
    }));
    text.push_str("]}}}}");
    object(&text)
}

fn deployments() -> Scene {
    Scene::of("apps", "deployments")
}

impl Scene {
    fn apply(
        &self,
        live: &Object,
        manager: &str,
        config: &Object,
        force: bool,
    ) -> Result<Object, ApplyError> {
        let applied = apply(&self.versions(), &writer(manager, NOW), &self.reset(), live, config, force)?;
        Ok(applied.conformed(self.message(), live).unwrap())
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

/// What came of an apply, to be compared.
fn outcome(applied: &Result<Object, ApplyError>) -> String {
    applied.as_ref().map_or_else(|error| format!("{error:?}"), text)
}

#[test]
fn applying_twice_is_applying_once() {
    let (scene, mut random) = (deployments(), Random(1));
    for _ in 0..400 {
        let (first, second) = (config(&mut random, ""), config(&mut random, ""));
        let live = scene.apply(&scene.nothing(), "one", &first, false).unwrap();
        let once = scene.apply(&live, "two", &second, true).unwrap();
        let twice = scene.apply(&once, "two", &second, false).unwrap();
        assert_eq!(text(&twice), text(&once), "{} then {}", text(&first), text(&second));
    }
}

#[test]
fn a_manager_owns_exactly_what_it_applied_and_others_only_what_it_did_not_change() {
    let (scene, mut random) = (deployments(), Random(2));
    for _ in 0..400 {
        let (first, second) = (config(&mut random, ""), config(&mut random, ""));
        let live = scene.apply(&scene.nothing(), "one", &first, false).unwrap();
        assert_eq!(owned(&live, "one"), scene.fields(&first));
        let forced = scene.apply(&live, "two", &second, true).unwrap();
        assert_eq!(owned(&forced, "two"), scene.fields(&second));
        let left = owned(&forced, "one");
        assert!(left.clone().difference(&owned(&live, "one")).is_empty(), "nothing is given to others");
        // Without force it either conflicts about exactly what was taken, or nothing was taken.
        match scene.apply(&live, "two", &second, false) {
            Err(ApplyError::Conflicts(conflicts)) => {
                assert_eq!(conflicts.fields(), owned(&live, "one").difference(&left));
            }
            Ok(unforced) => assert_eq!(text(&unforced), text(&forced)),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn disjoint_applies_commute_and_giving_up_everything_leaves_the_other_alone() {
    let (scene, mut random) = (deployments(), Random(3));
    for _ in 0..400 {
        let (first, second) = (config(&mut random, "1"), config(&mut random, "2"));
        let one = scene.apply(&scene.nothing(), "one", &first, false).unwrap();
        let both = scene.apply(&one, "two", &second, false).unwrap();
        let two = scene.apply(&scene.nothing(), "two", &second, false).unwrap();
        let other = scene.apply(&two, "one", &first, false).unwrap();
        // The order of elements follows who came first; what there is and whose it is does not.
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
        let left = scene.apply(&both, "two", &bare, false).unwrap();
        assert!(owned(&left, "two").is_empty());
        assert_eq!(owned(&left, "one"), scene.fields(&first));
        let alone = scene.apply(&scene.nothing(), "one", &first, false).unwrap();
        assert_eq!(text(&left), text(&alone), "{} without {}", text(&first), text(&second));
    }
}

impl Scene {
    /// An apply as it is described: every set is read and made, everything of the last time is taken out and put back,
    /// and the whole object is brought into the form of its type.
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
        let first = match Managed::stored(live).is_empty() {
            true => before_first_apply(&versions, &writer, &reset, live),
            false => live.clone(),
        };
        let mut managed = Managed::stored(&first);
        for entry in managed.entries_mut() {
            let set = reconcile(message, entry.manager.operation, entry.set().into_owned(), live);
            entry.set_fields(set);
        }
        let mut merged = merge(message, live, config).map_err(|error| ApplyError::Live(error.to_string()))?;
        crate::apply::take_managed_fields(&mut merged);
        let manager = writer.manager(Operation::Apply, versions.own.api_version);
        let last = managed.take(&manager);
        let wanted = reset.applied(field_set(message, config));
        managed.put(Entry::new(manager.clone(), writer.now.into(), wanted));
        if let Some(last) = &last {
            merged = prune(&versions, merged, &managed, last);
        }
        let mut entry = managed.take(&manager).unwrap();
        let value = {
            let mut changes = Changes::new(versions, &reset, live, &merged);
            if !force && let Some(conflicts) = conflicts(&managed, &mut changes) {
                return Err(ApplyError::Conflicts(conflicts));
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
        Ok(conform(message, merged.into()).unwrap().object)
    }

    /// An update by a manager that is no applier.
    fn update(&self, live: &Object, manager: &str, mut new: Object) -> Object {
        updated(&self.versions(), &writer(manager, NOW), &self.reset(), live, &mut new);
        new
    }
}

#[test]
fn what_an_apply_leaves_out_makes_no_difference() {
    let (scene, mut random, mut made) = (deployments(), Random(4), Random(5));
    let message = scene.message();
    let (mut applied, mut refused, mut updates, mut contended) = (0, 0, 0, 0);
    for _ in 0..200 {
        let mut live = scene.nothing();
        for _ in 0..8 {
            let mut wanted = Value::Object(config(&mut random, ""));
            // Some configurations are odd: they repeat things, set them to nothing, or have nothing to do with it.
            match random.below(8) {
                0 => wanted = generate::object(&mut made, message, 1).into(),
                1 | 2 => generate::disturb(&mut made, &mut wanted),
                3 => generate::thin(&mut made, &mut wanted),
                _ => {}
            }
            let Value::Object(mut wanted) = wanted else { continue };
            if let Some(Value::Object(metadata)) = wanted.get_mut("metadata") {
                metadata.remove("managedFields");
            }
            let manager = random.pick(&["one", "two", "three"]);
            if random.below(4) == 0 {
                let Ok(new) = merge(message, &live, &wanted) else { continue };
                let Ok(new) = conform(message, new.into()) else { continue };
                live = scene.update(&live, manager, new.object);
                updates += 1;
                continue;
            }
            let force = random.one_in(2);
            if check(message, &wanted).is_empty()
                && merge(message, &live, &wanted).is_ok_and(|new| conform(message, new.into()).is_err())
            {
                continue; // refused by its types
            }
            let plainly = scene.apply_plainly(&live, manager, &wanted, force);
            let got = scene.apply(&live, manager, &wanted, force);
            assert_eq!(outcome(&got), outcome(&plainly), "{} over {}", text(&wanted), text(&live));
            match got {
                Ok(got) => {
                    // Who repeats what they said changes nothing, and conflicts only where an empty map was dropped
                    // because it is the same as none, and is somebody else's.
                    let again = scene.apply(&got, manager, &wanted, false);
                    let plainly = scene.apply_plainly(&got, manager, &wanted, false);
                    assert_eq!(
                        outcome(&again),
                        outcome(&plainly),
                        "{} twice over {}",
                        text(&wanted),
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
