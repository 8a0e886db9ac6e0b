//! The standard library's declarations: operators, conversions, sizes, text and time functions, optionals,
//! and the function behind the macros that create maps.
//!
//! The evaluator computes all these functions itself. The overload ids come from the language definition.

use super::{Function, Library, Overload, Version, constants};
use crate::types::Type;

/// First version with comparisons between `int`, `uint` and `double`.
const CROSS_TYPE_COMPARISON: (u32, u32) = (1, 28);
/// First version with optionals.
const OPTIONALS: (u32, u32) = (1, 28);
/// First version that checks constant durations, timestamps and regular expressions.
const CONSTANT_CHECKS: (u32, u32) = (1, 29);
/// First version with two-variable macros.
const TWO_VARIABLES: (u32, u32) = (1, 32);

/// Returns the declarations of the standard library.
pub fn library() -> Library {
    let mut functions = logic();
    functions.extend(arithmetic());
    functions.extend(comparisons());
    functions.extend(collections());
    functions.extend(conversions());
    functions.extend(text());
    functions.extend(time());
    functions.extend(optionals());
    functions.push(map_insert());
    let optional = (Type::opaque("optional_type"), Version::new(OPTIONALS.0, OPTIONALS.1));
    let types = [
        Type::Bool,
        Type::Bytes,
        Type::Double,
        Type::Duration,
        Type::Int,
        Type::list(Type::param("A")),
        Type::map(Type::param("A"), Type::param("B")),
        Type::Null,
        Type::String,
        Type::Timestamp,
        Type::Type(None),
        Type::Uint,
    ];
    let types = types.into_iter().map(|t| (t, Version::FIRST)).chain([optional]).collect();
    Library { functions, types }
}

fn a() -> Type {
    Type::param("A")
}

fn list() -> Type {
    Type::list(a())
}

fn map() -> Type {
    Type::map(a(), Type::param("B"))
}

/// Declares a function with one overload.
fn single<const N: usize>(name: &'static str, id: &'static str, params: [Type; N], result: Type) -> Function {
    Function::new(name, [Overload::function(id, params, result)])
}

/// Declares the overloads of a binary operator whose operands and result have the same type.
fn same_type<const N: usize>(overloads: [(&'static str, Type); N]) -> impl Iterator<Item = Overload> {
    overloads.into_iter().map(|(id, t)| Overload::function(id, [t.clone(), t.clone()], t))
}

fn logic() -> Vec<Function> {
    use Type::Bool;
    vec![
        single("_?_:_", "conditional", [Bool, a(), a()], a()),
        single("_&&_", "logical_and", [Bool, Bool], Bool),
        single("_||_", "logical_or", [Bool, Bool], Bool),
        single("!_", "logical_not", [Bool], Bool),
        single("@not_strictly_false", "not_strictly_false", [Bool], Bool),
        single("_==_", "equals", [a(), a()], Bool),
        single("_!=_", "not_equals", [a(), a()], Bool),
    ]
}

fn arithmetic() -> Vec<Function> {
    use Type::{Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let mixed = |id, left, right, result| Overload::function(id, [left, right], result);
    let add = same_type([("add_bytes", Bytes), ("add_double", Double), ("add_duration_duration", Duration)])
        .chain([
            mixed("add_duration_timestamp", Duration, Timestamp, Timestamp),
            mixed("add_timestamp_duration", Timestamp, Duration, Timestamp),
        ])
        .chain(same_type([
            ("add_int64", Int),
            ("add_list", list()),
            ("add_string", String),
            ("add_uint64", Uint),
        ]));
    let subtract = same_type([
        ("subtract_double", Double),
        ("subtract_duration_duration", Duration),
        ("subtract_int64", Int),
    ])
    .chain([
        mixed("subtract_timestamp_duration", Timestamp, Duration, Timestamp),
        mixed("subtract_timestamp_timestamp", Timestamp, Timestamp, Duration),
    ])
    .chain(same_type([("subtract_uint64", Uint)]));
    vec![
        Function::new("_+_", add),
        Function::new("_-_", subtract),
        Function::new(
            "_*_",
            same_type([("multiply_double", Double), ("multiply_int64", Int), ("multiply_uint64", Uint)]),
        ),
        Function::new(
            "_/_",
            same_type([("divide_double", Double), ("divide_int64", Int), ("divide_uint64", Uint)]),
        ),
        Function::new("_%_", same_type([("modulo_int64", Int), ("modulo_uint64", Uint)])),
        Function::new(
            "-_",
            [
                Overload::function("negate_double", [Double], Double),
                Overload::function("negate_int64", [Int], Int),
            ],
        ),
    ]
}

/// Declares a comparison. The ids of the overloads consist of the prefix of the operator and the operand
/// types.
macro_rules! comparison {
    ($name:literal, $prefix:literal) => {{
        use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
        let same = |id, t: Type| Overload::function(id, [t.clone(), t], Bool);
        let cross = |id, left, right| {
            Overload::function(id, [left, right], Bool)
                .since(CROSS_TYPE_COMPARISON.0, CROSS_TYPE_COMPARISON.1)
        };
        Function::new(
            $name,
            [
                same(concat!($prefix, "_bool"), Bool),
                same(concat!($prefix, "_int64"), Int),
                cross(concat!($prefix, "_int64_double"), Int, Double),
                cross(concat!($prefix, "_int64_uint64"), Int, Uint),
                same(concat!($prefix, "_uint64"), Uint),
                cross(concat!($prefix, "_uint64_double"), Uint, Double),
                cross(concat!($prefix, "_uint64_int64"), Uint, Int),
                same(concat!($prefix, "_double"), Double),
                cross(concat!($prefix, "_double_int64"), Double, Int),
                cross(concat!($prefix, "_double_uint64"), Double, Uint),
                same(concat!($prefix, "_string"), String),
                same(concat!($prefix, "_bytes"), Bytes),
                same(concat!($prefix, "_timestamp"), Timestamp),
                same(concat!($prefix, "_duration"), Duration),
            ],
        )
    }};
}

fn comparisons() -> Vec<Function> {
    vec![
        comparison!("_<_", "less"),
        comparison!("_<=_", "less_equals"),
        comparison!("_>_", "greater"),
        comparison!("_>=_", "greater_equals"),
    ]
}

fn collections() -> Vec<Function> {
    use Type::{Bool, Bytes, Int, String};
    let sized = [
        ("size_bytes", "bytes_size", Bytes),
        ("size_list", "list_size", list()),
        ("size_map", "map_size", map()),
        ("size_string", "string_size", String),
    ];
    let size = sized.into_iter().flat_map(|(global, member, t)| {
        [Overload::function(global, [t.clone()], Int), Overload::member(member, [t], Int)]
    });
    let since = |overload: Overload| overload.since(OPTIONALS.0, OPTIONALS.1);
    vec![
        Function::new(
            "_[_]",
            [
                Overload::function("index_list", [list(), Int], a()),
                Overload::function("index_map", [map(), a()], Type::param("B")),
                since(Overload::function(
                    "optional_list_index_int",
                    [Type::optional(list()), Int],
                    Type::optional(a()),
                )),
                since(Overload::function(
                    "optional_map_index_value",
                    [Type::optional(map()), a()],
                    Type::optional(Type::param("B")),
                )),
            ],
        ),
        Function::new(
            "@in",
            [
                Overload::function("in_list", [a(), list()], Bool),
                Overload::function("in_map", [a(), map()], Bool),
            ],
        ),
        Function::new("size", size),
    ]
}

fn conversions() -> Vec<Function> {
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, String, Timestamp, Uint};
    let to = |name, result: Type, from: Vec<(&'static str, Type)>| {
        Function::new(name, from.into_iter().map(move |(id, t)| Overload::function(id, [t], result.clone())))
    };
    vec![
        single("type", "type", [a()], Type::type_of(a())),
        single("dyn", "to_dyn", [a()], Dyn),
        to("bool", Bool, vec![("bool_to_bool", Bool), ("string_to_bool", String)]),
        to("bytes", Bytes, vec![("bytes_to_bytes", Bytes), ("string_to_bytes", String)]),
        to(
            "double",
            Double,
            vec![
                ("double_to_double", Double),
                ("int64_to_double", Int),
                ("string_to_double", String),
                ("uint64_to_double", Uint),
            ],
        ),
        to(
            "duration",
            Duration,
            vec![
                ("duration_to_duration", Duration),
                ("int64_to_duration", Int),
                ("string_to_duration", String),
            ],
        )
        .checked_by(CONSTANT_CHECKS.0, CONSTANT_CHECKS.1, constants::duration),
        to(
            "int",
            Int,
            vec![
                ("int64_to_int64", Int),
                ("double_to_int64", Double),
                ("duration_to_int64", Duration),
                ("string_to_int64", String),
                ("timestamp_to_int64", Timestamp),
                ("uint64_to_int64", Uint),
            ],
        ),
        to(
            "string",
            String,
            vec![
                ("string_to_string", String),
                ("bool_to_string", Bool),
                ("bytes_to_string", Bytes),
                ("double_to_string", Double),
                ("duration_to_string", Duration),
                ("int64_to_string", Int),
                ("timestamp_to_string", Timestamp),
                ("uint64_to_string", Uint),
            ],
        ),
        to(
            "timestamp",
            Timestamp,
            vec![
                ("timestamp_to_timestamp", Timestamp),
                ("int64_to_timestamp", Int),
                ("string_to_timestamp", String),
            ],
        )
        .checked_by(CONSTANT_CHECKS.0, CONSTANT_CHECKS.1, constants::timestamp),
        to(
            "uint",
            Uint,
            vec![
                ("uint64_to_uint64", Uint),
                ("double_to_uint64", Double),
                ("int64_to_uint64", Int),
                ("string_to_uint64", String),
            ],
        ),
    ]
}

fn text() -> Vec<Function> {
    use Type::{Bool, String};
    let member = |name, id| Function::new(name, [Overload::member(id, [String, String], Bool)]);
    vec![
        member("contains", "contains_string"),
        member("endsWith", "ends_with_string"),
        member("startsWith", "starts_with_string"),
        Function::new(
            "matches",
            [
                Overload::function("matches", [String, String], Bool),
                Overload::member("matches_string", [String, String], Bool),
            ],
        )
        .checked_by(CONSTANT_CHECKS.0, CONSTANT_CHECKS.1, constants::matches),
    ]
}

/// Declares the fields of a timestamp, in UTC or in a time zone, and of a duration.
fn time() -> Vec<Function> {
    use Type::{Duration, Int, String, Timestamp};
    let parts = [
        ("getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz", None),
        ("getMonth", "timestamp_to_month", "timestamp_to_month_with_tz", None),
        ("getDayOfYear", "timestamp_to_day_of_year", "timestamp_to_day_of_year_with_tz", None),
        ("getDayOfMonth", "timestamp_to_day_of_month", "timestamp_to_day_of_month_with_tz", None),
        ("getDate", "timestamp_to_day_of_month_1_based", "timestamp_to_day_of_month_1_based_with_tz", None),
        ("getDayOfWeek", "timestamp_to_day_of_week", "timestamp_to_day_of_week_with_tz", None),
        ("getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz", Some("duration_to_hours")),
        ("getMinutes", "timestamp_to_minutes", "timestamp_to_minutes_with_tz", Some("duration_to_minutes")),
        // The language definition misspells the ids with a time zone.
        ("getSeconds", "timestamp_to_seconds", "timestamp_to_seconds_tz", Some("duration_to_seconds")),
        (
            "getMilliseconds",
            "timestamp_to_milliseconds",
            "timestamp_to_milliseconds_with_tz",
            Some("duration_to_milliseconds"),
        ),
    ];
    parts
        .into_iter()
        .map(|(name, utc, zone, duration)| {
            let timestamp =
                [Overload::member(utc, [Timestamp], Int), Overload::member(zone, [Timestamp, String], Int)];
            let duration = duration.map(|id| Overload::member(id, [Duration], Int));
            Function::new(name, timestamp.into_iter().chain(duration))
        })
        .collect()
}

fn optionals() -> Vec<Function> {
    use Type::{Bool, Dyn, Int, String};
    let value = || Type::param("V");
    let optional = || Type::optional(value());
    let values = || Type::list(value());
    let entries = || Type::map(Type::param("K"), value());
    let since = |overload: Overload| overload.since(OPTIONALS.0, OPTIONALS.1);
    let function = |name, overload| Function::new(name, [since(overload)]);
    let index = [
        Overload::function("list_optindex_optional_int", [values(), Int], optional()),
        Overload::function(
            "optional_list_optindex_optional_int",
            [Type::optional(values()), Int],
            optional(),
        ),
        Overload::function("map_optindex_optional_value", [entries(), Type::param("K")], optional()),
        Overload::function(
            "optional_map_optindex_optional_value",
            [Type::optional(entries()), Type::param("K")],
            optional(),
        ),
    ];
    vec![
        function("optional.of", Overload::function("optional_of", [value()], optional())),
        function(
            "optional.ofNonZeroValue",
            Overload::function("optional_ofNonZeroValue", [value()], optional()),
        ),
        function("optional.none", Overload::function("optional_none", [], optional())),
        function("value", Overload::member("optional_value", [optional()], value())),
        function("hasValue", Overload::member("optional_hasValue", [optional()], Bool)),
        function("or", Overload::member("optional_or_optional", [optional(), optional()], optional())),
        function("orValue", Overload::member("optional_orValue_value", [optional(), value()], value())),
        function("_?._", Overload::function("select_optional_field", [Dyn, String], optional())),
        Function::new("_[?_]", index.map(since)),
        function(
            "optional.unwrap",
            Overload::function("optional_unwrap", [Type::list(optional())], values()),
        ),
        function("unwrapOpt", Overload::member("optional_unwrapOpt", [Type::list(optional())], values())),
        function("first", Overload::member("list_first", [values()], optional())),
        function("last", Overload::member("list_last", [values()], optional())),
    ]
}

fn map_insert() -> Function {
    let map = || Type::map(Type::param("K"), Type::param("V"));
    let since = |overload: Overload| overload.since(TWO_VARIABLES.0, TWO_VARIABLES.1);
    Function::new(
        "cel.@mapInsert",
        [
            since(Overload::function(
                "@mapInsert_map_key_value",
                [map(), Type::param("K"), Type::param("V")],
                map(),
            )),
            since(Overload::function("@mapInsert_map_map", [map(), map()], map())),
        ],
    )
}
