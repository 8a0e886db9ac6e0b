//! Type checks of webhook responses. The first member with a wrong type makes the response invalid; error
//! messages have the wording of the reference server's decoder.

use values::base64_text;
use values::json::{Object, Value};

/// Type of a member.
#[derive(Clone, Copy)]
enum MemberType {
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
    Struct(&'static str, &'static [(&'static str, MemberType)]),
    Structs(&'static str, &'static [(&'static str, MemberType)]),
}

const ADMISSION: &[(&str, MemberType)] = &[
    ("uid", MemberType::Text("types.UID")),
    ("allowed", MemberType::Flag),
    ("status", MemberType::Struct("Status", STATUS)),
    ("patch", MemberType::Bytes),
    ("patchType", MemberType::Text("PatchType")),
    ("auditAnnotations", MemberType::TextMap),
    ("warnings", MemberType::Texts),
];

const STATUS: &[(&str, MemberType)] = &[
    ("kind", MemberType::Text("string")),
    ("apiVersion", MemberType::Text("string")),
    ("metadata", MemberType::Struct("ListMeta", LIST_META)),
    ("status", MemberType::Text("string")),
    ("message", MemberType::Text("string")),
    ("reason", MemberType::Text("v1.StatusReason")),
    ("details", MemberType::Struct("StatusDetails", DETAILS)),
    ("code", MemberType::Number),
];

const LIST_META: &[(&str, MemberType)] = &[
    ("selfLink", MemberType::Text("string")),
    ("resourceVersion", MemberType::Text("string")),
    ("continue", MemberType::Text("string")),
    ("remainingItemCount", MemberType::LongNumber),
];

const DETAILS: &[(&str, MemberType)] = &[
    ("name", MemberType::Text("string")),
    ("group", MemberType::Text("string")),
    ("kind", MemberType::Text("string")),
    ("uid", MemberType::Text("types.UID")),
    ("causes", MemberType::Structs("StatusCause", CAUSE)),
    ("retryAfterSeconds", MemberType::Number),
];

const CAUSE: &[(&str, MemberType)] = &[
    ("reason", MemberType::Text("v1.CauseType")),
    ("message", MemberType::Text("string")),
    ("field", MemberType::Text("string")),
];

const CONVERSION: &[(&str, MemberType)] = &[
    ("uid", MemberType::Text("types.UID")),
    ("convertedObjects", MemberType::Objects),
    ("result", MemberType::Struct("Status", STATUS)),
];

const IMAGES: &[(&str, MemberType)] = &[
    ("allowed", MemberType::Flag),
    ("reason", MemberType::Text("string")),
    ("auditAnnotations", MemberType::TextMap),
];

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
        let (holder, member, member_type) = match self {
            ReviewResponse::Admission => {
                ("AdmissionReview", "response", MemberType::Struct("AdmissionResponse", ADMISSION))
            }
            ReviewResponse::Conversion => {
                ("ConversionReview", "response", MemberType::Struct("ConversionResponse", CONVERSION))
            }
            ReviewResponse::Images => {
                ("ImageReview", "status", MemberType::Struct("ImageReviewStatus", IMAGES))
            }
        };
        let location = MemberLocation { holder, fields: member.to_owned(), version };
        location.check(response.unwrap_or(&Value::Null), member_type)
    }
}

/// Location of a value.
struct MemberLocation<'p> {
    /// Name of the struct that has the member.
    holder: &'static str,
    /// Path of member names to the value.
    fields: String,
    version: &'p str,
}

impl MemberLocation<'_> {
    fn check(&self, value: &Value, member_type: MemberType) -> Result<(), String> {
        match (value, member_type) {
            (Value::Null, _)
            | (Value::Bool(_), MemberType::Flag)
            | (Value::String(_), MemberType::Text(_)) => Ok(()),
            (Value::Int(_), MemberType::LongNumber) | (Value::Array(_), MemberType::Objects) => Ok(()),
            (Value::Int(number), MemberType::Number) if i32::try_from(*number).is_ok() => Ok(()),
            (Value::String(text), MemberType::Bytes) => base64_text::canonical(text).map(drop),
            (Value::Array(items), MemberType::Bytes) => items.iter().try_for_each(|item| match item {
                Value::Null => Ok(()),
                Value::Int(number) if u8::try_from(*number).is_ok() => Ok(()),
                other => Err(self.wrong(other, "uint8")),
            }),
            (Value::Array(items), MemberType::Texts) => self.texts(items.iter()),
            (Value::Object(members), MemberType::TextMap) => {
                self.texts(members.iter().map(|(_, value)| value))
            }
            (Value::Object(members), MemberType::Struct(name, types)) => self.members(members, name, types),
            (Value::Array(items), MemberType::Structs(name, types)) => {
                items.iter().try_for_each(|item| self.check(item, MemberType::Struct(name, types)))
            }
            (other, member_type) => Err(self.wrong(other, &self.name(member_type))),
        }
    }

    fn members(
        &self,
        members: &Object,
        holder: &'static str,
        types: &[(&str, MemberType)],
    ) -> Result<(), String> {
        for (name, value) in members.iter() {
            let Some((_, member_type)) = types.iter().find(|(known, _)| *known == name) else { continue };
            let fields = format!("{}.{name}", self.fields);
            MemberLocation { holder, fields, version: self.version }.check(value, *member_type)?;
        }
        Ok(())
    }

    fn texts<'v>(&self, mut values: impl Iterator<Item = &'v Value>) -> Result<(), String> {
        values.try_for_each(|value| self.check(value, MemberType::Text("string")))
    }

    /// Returns the Go name of a type.
    fn name(&self, member_type: MemberType) -> String {
        match member_type {
            MemberType::Flag => "bool".to_owned(),
            MemberType::Text("PatchType") => format!("{}.PatchType", self.version),
            MemberType::Text(name) => name.to_owned(),
            MemberType::Number => "int32".to_owned(),
            MemberType::LongNumber => "int64".to_owned(),
            MemberType::Bytes => "[]uint8".to_owned(),
            MemberType::Texts => "[]string".to_owned(),
            MemberType::Objects => "[]runtime.RawExtension".to_owned(),
            MemberType::TextMap => "map[string]string".to_owned(),
            MemberType::Struct(
                name @ ("AdmissionResponse" | "ConversionResponse" | "ImageReviewStatus"),
                _,
            ) => {
                format!("{}.{name}", self.version)
            }
            MemberType::Struct(name, _) => format!("v1.{name}"),
            MemberType::Structs(name, _) => format!("[]v1.{name}"),
        }
    }

    fn wrong(&self, value: &Value, expected: &str) -> String {
        let is_number = expected.starts_with("int") || expected.starts_with("uint");
        let found = match value {
            Value::Int(number) if is_number => format!("number {number}"),
            Value::Float(number) if is_number => format!("number {number}"),
            other => other.go_kind().to_owned(),
        };
        let MemberLocation { holder, fields, .. } = self;
        go::json::unfit_member(&found, &format!("{holder}.{fields}"), expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    #[test]
    fn a_review_error_names_the_first_member_of_a_wrong_type() {
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
