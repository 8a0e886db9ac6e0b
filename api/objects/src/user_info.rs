//! Representation of users in objects.

use auth::identity::User;

use values::json::{Object, Value};

/// Returns a user as in `userInfo` of reviews and in `user` of audit events, without empty fields.
pub fn info(user: &User) -> Object {
    let mut members = Object::with_capacity(4);
    for (name, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            members.push(name, text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        members.push("groups", user.groups.as_slice().into());
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone().into(), values.as_slice().into()));
        members.push("extra", Value::Object(extra.collect()));
    }
    members
}
