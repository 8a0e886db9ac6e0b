//! Round trips of every built-in type through every encoding.

use super::cbor;
use testkit::Random;
use types::schema::conform::conform;
use types::schema::generate::object;
use types::schema::{builtin, decode, encode};
use values::json::{self, Value};
use values::naming;
use values::yaml;

#[test]
fn every_type_survives_a_round_trip_through_json_yaml_and_cbor() {
    for naming in naming::ALL {
        let mut compared = 0;
        for message in builtin::messages(naming) {
            for seed in 20..26 {
                let object = object(&mut Random(seed), message, 0);
                let shown = format!("{} {seed}", message.name);
                let mut text = Vec::new();
                encode::encode(message, &object, &mut text);
                let from_json = decode::decode(message, &text).unwrap();
                assert_eq!(from_json.object, object, "{shown}: JSON");

                let tree = json::parse(&text).unwrap();
                let mut yaml_text = Vec::new();
                yaml::write(&tree, &mut yaml_text);
                let document = yaml::parse(&yaml_text).unwrap_or_else(|error| {
                    panic!("{shown}: {error}: {}", String::from_utf8_lossy(&yaml_text))
                });
                assert_eq!(document.duplicates, [""; 0], "{shown}");
                let from_yaml = conform(message, document.value).unwrap();
                assert_eq!(from_yaml.object, object, "{shown}: {}", String::from_utf8_lossy(&yaml_text));

                let mut item = cbor::SELF_DESCRIBED.to_vec();
                cbor::encode(message, &object, &mut item);
                let from_cbor = conform(message, cbor::parse(&item).unwrap()).unwrap();
                assert_eq!(from_cbor.object, object, "{shown}: CBOR");
                assert_eq!(from_cbor.strict, [""; 0], "{shown}");
                // Without the schema, byte fields are encoded as text, which must read back equal.
                let mut plain = Vec::new();
                cbor::write(&Value::Object(object.clone()), &mut plain);
                assert_eq!(conform(message, cbor::parse(&plain).unwrap()).unwrap().object, object, "{shown}");
                compared += 1;
            }
        }
        assert!(compared > 3000, "{compared}");
    }
}
