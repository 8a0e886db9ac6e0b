//! Type checks of webhook responses. The first member with a wrong type makes the response invalid; error
//! messages have the wording of the reference server's decoder.

use values::base64_text;
use values::json::{Object, Value};

/// Type of a member.
#[derive(Clone, Copy)]
enum Form {
    Flag,
    /// A string, with the name of its Go type.
    Text(&'static str),
    /// A 32-bit integer.
    Number,
    /// A 64-bit integer.
    LongNumber,
    Bytes,
    Texts,
    /// A list of arbitrary objects.
    Objects,
    TextMap,
    Struct(&'static str, &'static [(&'static str, Form)]),
    Structs(&'static str, &'static [(&'static str, Form)]),
}

const ADMISSION: &[(&str, Form)] = &[
    ("uid", Form::Text("types.UID")),
    ("allowed", Form::Flag),
    ("status", Form::Struct("Status", STATUS)),
    ("patch", Form::Bytes),
    ("patchType", Form::Text("PatchType")),
    ("auditAnnotations", Form::TextMap),
    ("warnings", Form::Texts),
];

const STATUS: &[(&str, Form)] = &[
    ("kind", Form::Text("string")),
    ("apiVersion", Form::Text("string")),
    ("metadata", Form::Struct("ListMeta", LIST_META)),
    ("status", Form::Text("string")),
    ("message", Form::Text("string")),
    ("reason", Form::Text("v1.StatusReason")),
    ("details", Form::Struct("StatusDetails", DETAILS)),
    ("code", Form::Number),
];

const LIST_META: &[(&str, Form)] = &[
    ("selfLink", Form::Text("string")),
    ("resourceVersion", Form::Text("string")),
    ("continue", Form::Text("string")),
    ("remainingItemCount", Form::LongNumber),
];

const DETAILS: &[(&str, Form)] = &[
    ("name", Form::Text("string")),
    ("group", Form::Text("string")),
    ("kind", Form::Text("string")),
    ("uid", Form::Text("types.UID")),
    ("causes", Form::Structs("StatusCause", CAUSE)),
    ("retryAfterSeconds", Form::Number),
];

const CAUSE: &[(&str, Form)] = &[
    ("reason", Form::Text("v1.CauseType")),
    ("message", Form::Text("string")),
    ("field", Form::Text("string")),
];

const CONVERSION: &[(&str, Form)] = &[
    ("uid", Form::Text("types.UID")),
    ("convertedObjects", Form::Objects),
    ("result", Form::Struct("Status", STATUS)),
];

const IMAGES: &[(&str, Form)] =
    &[("allowed", Form::Flag), ("reason", Form::Text("string")), ("auditAnnotations", Form::TextMap)];

/// The part of a review that contains the response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReviewResponse {
    /// The `response` of an admission review.
    Admission,
    /// The `response` of a conversion review.
    Conversion,
    /// The `status` of an image review.
    Images,
}

impl ReviewResponse {
    /// Checks the response in a review of `version`. An absent response is valid.
    ///
    /// # Errors
    /// The message describes the first member of a wrong type.
    pub fn check(self, response: Option<&Value>, version: &str) -> Result<(), String> {
        let (holder, member, form) = match self {
            ReviewResponse::Admission => {
                ("AdmissionReview", "response", Form::Struct("AdmissionResponse", ADMISSION))
            }
            ReviewResponse::Conversion => {
                ("ConversionReview", "response", Form::Struct("ConversionResponse", CONVERSION))
            }
            ReviewResponse::Images => ("ImageReview", "status", Form::Struct("ImageReviewStatus", IMAGES)),
        };
        let place = Place { holder, fields: member.to_owned(), version };
        place.check(response.unwrap_or(&Value::Null), form)
    }
}

/// Location of a value.
struct Place<'p> {
    /// Name of the struct that has the member.
    holder: &'static str,
    /// Path of member names to the value.
    fields: String,
    version: &'p str,
}

impl Place<'_> {
    fn check(&self, value: &Value, form: Form) -> Result<(), String> {
        match (value, form) {
            (Value::Null, _) | (Value::Bool(_), Form::Flag) | (Value::String(_), Form::Text(_)) => Ok(()),
            (Value::Int(_), Form::LongNumber) | (Value::Array(_), Form::Objects) => Ok(()),
            (Value::Int(number), Form::Number) if i32::try_from(*number).is_ok() => Ok(()),
            (Value::String(text), Form::Bytes) => base64_text::canonical(text).map(drop),
            (Value::Array(items), Form::Bytes) => items.iter().try_for_each(|item| match item {
                Value::Null => Ok(()),
                Value::Int(number) if u8::try_from(*number).is_ok() => Ok(()),
                other => Err(self.wrong(other, "uint8")),
            }),
            (Value::Array(items), Form::Texts) => self.texts(items.iter()),
            (Value::Object(members), Form::TextMap) => self.texts(members.iter().map(|(_, value)| value)),
            (Value::Object(members), Form::Struct(name, forms)) => self.members(members, name, forms),
            (Value::Array(items), Form::Structs(name, forms)) => {
                items.iter().try_for_each(|item| self.check(item, Form::Struct(name, forms)))
            }
            (other, form) => Err(self.wrong(other, &self.name(form))),
        }
    }

    fn members(&self, members: &Object, holder: &'static str, forms: &[(&str, Form)]) -> Result<(), String> {
        for (name, value) in members.iter() {
            let Some((_, form)) = forms.iter().find(|(known, _)| *known == name) else { continue };
            let fields = format!("{}.{name}", self.fields);
            Place { holder, fields, version: self.version }.check(value, *form)?;
        }
        Ok(())
    }

    fn texts<'v>(&self, mut values: impl Iterator<Item = &'v Value>) -> Result<(), String> {
        values.try_for_each(|value| self.check(value, Form::Text("string")))
    }

    /// Returns the Go name of a type.
    fn name(&self, form: Form) -> String {
        match form {
            Form::Flag => "bool".to_owned(),
            Form::Text("PatchType") => format!("{}.PatchType", self.version),
            Form::Text(name) => name.to_owned(),
            Form::Number => "int32".to_owned(),
            Form::LongNumber => "int64".to_owned(),
            Form::Bytes => "[]uint8".to_owned(),
            Form::Texts => "[]string".to_owned(),
            Form::Objects => "[]runtime.RawExtension".to_owned(),
            Form::TextMap => "map[string]string".to_owned(),
            Form::Struct(name @ ("AdmissionResponse" | "ConversionResponse" | "ImageReviewStatus"), _) => {
                format!("{}.{name}", self.version)
            }
            Form::Struct(name, _) => format!("v1.{name}"),
            Form::Structs(name, _) => format!("[]v1.{name}"),
        }
    }

    fn wrong(&self, value: &Value, wanted: &str) -> String {
        let is_number = wanted.starts_with("int") || wanted.starts_with("uint");
        let found = match value {
            Value::Int(number) if is_number => format!("number {number}"),
            Value::Float(number) if is_number => format!("number {number}"),
            other => other.go_kind().to_owned(),
        };
        let Place { holder, fields, .. } = self;
        go::json::unfit_member(&found, &format!("{holder}.{fields}"), wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    #[test]
    fn the_first_member_of_another_type_is_named() {
        for (response, want) in [
            (r#"{"uid":"u","allowed":true,"warnings":["a",null],"more":1}"#, ""),
            (
                r#"{"uid":1,"allowed":"x"}"#,
                "number into Go struct field AdmissionResponse.response.uid of type types.UID",
            ),
            (
                r#"{"allowed":"x","uid":1}"#,
                "string into Go struct field AdmissionResponse.response.allowed of type bool",
            ),
            (
                r#"{"warnings":["a",1]}"#,
                "number into Go struct field AdmissionResponse.response.warnings of type string",
            ),
            (
                r#"{"auditAnnotations":{"a":true}}"#,
                "bool into Go struct field AdmissionResponse.response.auditAnnotations of type string",
            ),
            (
                r#"{"auditAnnotations":["a"]}"#,
                "array into Go struct field AdmissionResponse.response.auditAnnotations of type map[string]string",
            ),
            (
                r#"{"status":"no"}"#,
                "string into Go struct field AdmissionResponse.response.status of type v1.Status",
            ),
            (
                r#"{"status":{"code":"403"}}"#,
                "string into Go struct field Status.response.status.code of type int32",
            ),
            (
                r#"{"status":{"code":40.5}}"#,
                "number 40.5 into Go struct field Status.response.status.code of type int32",
            ),
            (
                r#"{"status":{"details":{"causes":[{"reason":5}]}}}"#,
                "number into Go struct field StatusCause.response.status.details.causes.reason of type v1.CauseType",
            ),
            (
                r#"{"patch":[{}]}"#,
                "object into Go struct field AdmissionResponse.response.patch of type uint8",
            ),
            (
                r#"{"patchType":{}}"#,
                "object into Go struct field AdmissionResponse.response.patchType of type v1.PatchType",
            ),
            (r#""yes""#, "string into Go struct field AdmissionReview.response of type v1.AdmissionResponse"),
            ("null", ""),
        ] {
            let want = if want.is_empty() { Ok(()) } else { Err(format!("json: cannot unmarshal {want}")) };
            let response_value = parse(response.as_bytes()).unwrap();
            assert_eq!(ReviewResponse::Admission.check(Some(&response_value), "v1"), want, "{response}");
        }
        let patch = parse(br#"{"patch":"***"}"#).unwrap();
        let wrong = "illegal base64 data at input byte 0".to_owned();
        assert_eq!(ReviewResponse::Admission.check(Some(&patch), "v1"), Err(wrong));
        let objects = parse(br#"{"convertedObjects":{}}"#).unwrap();
        let wrong = "json: cannot unmarshal object into Go struct field ConversionResponse.response.convertedObjects of type \
                     []runtime.RawExtension";
        assert_eq!(ReviewResponse::Conversion.check(Some(&objects), "v1beta1"), Err(wrong.to_owned()));
        for (status, wrong) in [
            (
                r#"{"allowed":"yes"}"#,
                "string into Go struct field ImageReviewStatus.status.allowed of type bool",
            ),
            ("[]", "array into Go struct field ImageReview.status of type v1alpha1.ImageReviewStatus"),
        ] {
            let status = parse(status.as_bytes()).unwrap();
            let wrong = format!("json: cannot unmarshal {wrong}");
            assert_eq!(ReviewResponse::Images.check(Some(&status), "v1alpha1"), Err(wrong));
        }
    }
}
