//! Reading again only what changed gives what reading all of it gives.

use super::*;
use crate::codec::protobuf::generate;
use crate::naming::KUBERNETES;
use crate::schema::builtin;
use crate::testing::Random;

#[test]
fn what_changed_conforms_as_the_whole_does() {
    let (mut random, mut failed) = (Random(11), 0);
    for message in builtin::messages(&KUBERNETES) {
        for at in 0..24 {
            let made = generate::object(&mut random, message, 0);
            let known = conform(message, made.into()).unwrap().object;
            let mut changed = Value::Object(known.clone());
            for _ in 0..at % 4 {
                generate::disturb(&mut random, &mut changed);
            }
            let Value::Object(changed) = changed else { continue };
            let want = conform(message, changed.clone().into()).map(|decoded| decoded.object);
            failed += usize::from(want.is_err());
            let got = conform_changes(message, changed.clone(), &known);
            assert_eq!(got, want, "{}: {changed:?}", message.name);
            assert_eq!(conform_changes(message, changed, &Object::new()), want, "{}", message.name);
        }
    }
    assert!(failed > 100, "{failed}");
}
