//! Rules for jobs and cron jobs (docs/api/validation.md#workloads).

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, is_same, names, scalar_formats};
use super::cron::Schedule;
use super::workload::{matching, refuse_labels};
use super::{StructView, common, selector, time_zone};
use types::schema::table::ValueFormat;
use values::field::FieldError;
use values::json::{Object, Value};

/// Maximum length of the name of a cron job. The names of the jobs of a cron job are eleven characters longer.
const CRON_JOB_NAME_MAX: usize = 52;

const FAILURE_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
const SUCCESS_RULES_MAX: usize = 20;
/// Limits of indexed jobs: parallelism and failed indexes, with lower limits for jobs with many completions.
const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const INDEXED_FAILED_MAX: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const PARALLELISM_OF_MANY_MAX: i64 = 10_000;
const FAILED_OF_MANY_MAX: i64 = 10_000;
/// Maximum length in bytes of the indexes of a success rule.
const INDEXES_BYTES_MAX: usize = 64 * 1024;
const MANAGER_MAX: usize = 63;

/// Checks a job as a whole.
pub(super) fn job(validator: &mut Validator, path: &FieldPath, job: StructView) {
    let spec = job.child("spec");
    let root = path.child("spec");
    let label_selector = spec.child("selector");
    if label_selector.is_there() {
        if selector::is_readable(label_selector) {
            matching(validator, &root.child("template"), label_selector, spec.child("template"));
        }
        if validator.is_create() {
            generated_selector(validator, &root, job);
        }
    } else {
        validator.required(root.child("selector"), "");
        let template = spec.child("template");
        refuse_labels(validator, &root.child("template"), template.child("metadata").child("labels"));
    }
    generated_labels_unchecked(validator, path, job);
    let name = job.child("metadata").text("name");
    if let Some(completions) = spec.int("completions").filter(|count| *count > 0)
        && spec.text("completionMode") == "Indexed"
        && validator.is_create()
    {
        let host = format!("{name}-{}", completions - 1);
        if !names::label(&host).is_empty() {
            let place = path.child("metadata");
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            validator.invalid(place.child("name"), name, detail);
        }
    }
}

/// Removes errors about labels of a new job that the server generated for the template of the job. The
/// reference server copies such labels to the job only when it reads the stored job.
fn generated_labels_unchecked(validator: &mut Validator, path: &FieldPath, job: StructView) {
    let metadata = path.child("metadata");
    let labels = job.child("metadata").child("labels");
    let batch = format!("batch.{}/", validator.naming.domain);
    let is_generated =
        |key: &str| matches!(key.strip_prefix(&batch).unwrap_or(key), "controller-uid" | "job-name");
    if validator.is_create() && labels.members().all(|(key, _)| is_generated(key)) {
        validator.forget(&metadata.child("labels"));
    }
}

/// Checks that the generated selector matches the generated labels.
fn generated_selector(validator: &mut Validator, path: &FieldPath, job: StructView) {
    let spec = job.child("spec");
    if spec.is_true("manualSelector") || !spec.child("selector").is_there() {
        return;
    }
    let metadata = job.child("metadata");
    let template = path.child("template");
    let place = template.child("metadata");
    let labels_path = place.child("labels");
    let labels = spec.child("template").child("metadata").child("labels");
    let batch = format!("batch.{}", validator.naming.domain);
    let prefixed = [
        (format!("{batch}/controller-uid"), metadata.text("uid")),
        (format!("{batch}/job-name"), metadata.text("name")),
    ];
    // A stored job of an older release may lack the labels that have a prefix.
    let before = validator.before(&labels_path);
    let wants_prefixed = validator.is_create() || prefixed.iter().all(|(key, _)| before.has(key));
    let mut expected = vec![
        ("controller-uid".to_owned(), metadata.text("uid")),
        ("job-name".to_owned(), metadata.text("name")),
    ];
    if wants_prefixed {
        expected.extend(prefixed);
    }
    for (key, value) in &expected {
        match labels.get(key).and_then(Value::as_str) {
            None => validator.required(labels_path.key(key), &format!("must be '{value}'")),
            Some(found) if found != *value => {
                validator.invalid(labels_path.key(key), labels.to_value(), format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let set: Object = expected.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    let label_selector = spec.child("selector");
    if selector::is_readable(label_selector)
        && !selector::selects(label_selector, StructView::from_object(&set))
    {
        validator.invalid(path.child("selector"), label_selector.to_value(), "`selector` not auto-generated");
    }
}

/// Checks the specification of a job or of a job template.
pub(super) fn specification(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let refuse = |validator: &mut Validator, name: &str, detail: String| {
        validator.invalid(path.child(name), spec.int(name).unwrap_or(0), detail);
    };
    let (completions, parallelism) = (spec.int("completions"), spec.int("parallelism"));
    let failed = spec.int("maxFailedIndexes");
    let per_index = spec.has("backoffLimitPerIndex");
    if failed.is_some() && !per_index {
        validator.required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if spec.text("completionMode") == "Indexed" {
        if completions.is_none() {
            validator.required(path.child("completions"), "when completion mode is Indexed");
        }
        if parallelism.is_some_and(|count| count > INDEXED_PARALLELISM_MAX) {
            let detail = format!(
                "must be less than or equal to {INDEXED_PARALLELISM_MAX} when completion mode is Indexed"
            );
            refuse(validator, "parallelism", detail);
        }
        if let (Some(failed), Some(completions)) = (failed, completions)
            && failed > completions
        {
            refuse(validator, "maxFailedIndexes", "must be less than or equal to completions".to_owned());
        }
        if failed.is_some_and(|count| count > INDEXED_FAILED_MAX) {
            let detail = format!("must be less than or equal to {INDEXED_FAILED_MAX}");
            refuse(validator, "maxFailedIndexes", detail);
        }
        if per_index && completions.is_some_and(|count| count > MANY_COMPLETIONS) {
            let above = format!(
                "when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
            );
            if failed.is_none() {
                let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
                validator.required(path.child("maxFailedIndexes"), &detail);
            }
            for (name, value, max) in [
                ("parallelism", parallelism, PARALLELISM_OF_MANY_MAX),
                ("maxFailedIndexes", failed, FAILED_OF_MANY_MAX),
            ] {
                if value.is_some_and(|value| value > max) {
                    refuse(validator, name, format!("must be less than or equal to {max} {above}"));
                }
            }
        }
    } else {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.has(name) {
                refuse(validator, name, "requires indexed completion mode".to_owned());
            }
        }
    }
    failure_policy(validator, &path.child("podFailurePolicy"), spec);
    success_policy(validator, &path.child("successPolicy"), spec);
    replacement(validator, &path.child("podReplacementPolicy"), spec);
    if let Some(manager) = spec.get("managedBy").and_then(Value::as_str) {
        let place = path.child("managedBy");
        if manager.is_empty() {
            validator.required(place, "");
        }
        scalar_formats::text(ValueFormat::DomainPath, &place, manager, &mut validator.errors);
        if manager.len() > MANAGER_MAX {
            validator.errors.push(FieldError::too_long(place, MANAGER_MAX));
        }
    }
    restart_policy(validator, &path.child("template"), spec);
}

fn restart_policy(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let policy = spec.child("template").child("spec").text("restartPolicy");
    let pod = path.child("spec");
    let place = pod.child("restartPolicy");
    match policy {
        "Always" | "" => validator.required(place, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            validator.invalid(place, policy, detail);
        }
        "OnFailure" | "Never" => {}
        other => validator.not_supported(place, other, &["OnFailure", "Never"]),
    }
}

fn replacement(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) else { return };
    let supported: &[&str] =
        if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !supported.contains(&policy) {
        validator.not_supported(path, policy, supported);
    }
}

fn failure_policy(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let policy = spec.child("podFailurePolicy");
    if !policy.is_there() {
        return;
    }
    let list = path.child("rules");
    let rules = policy.structs("rules");
    if rules.len() > FAILURE_RULES_MAX {
        validator.errors.push(FieldError::too_many(list, rules.len(), FAILURE_RULES_MAX));
    }
    let pod = spec.child("template").child("spec");
    let containers: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod.structs(list))
        .map(|one| one.text("name"))
        .collect();
    for (at, rule) in rules.enumerate() {
        if validator.has_enough() {
            break;
        }
        failure_rule(validator, &list.index(at), rule, spec, &containers);
    }
}

fn failure_rule(
    validator: &mut Validator,
    path: &FieldPath,
    rule: StructView,
    spec: StructView,
    containers: &HashSet<&str>,
) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let place = path.child("action");
    match rule.text("action") {
        "" => validator.required(place, &format!("valid values: [\"{}\"]", ACTIONS.join("\" \""))),
        "FailIndex" if !spec.has("backoffLimitPerIndex") => {
            validator.invalid(place, "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        action if !ACTIONS.contains(&action) => validator.not_supported(place, action, &ACTIONS),
        _ => {}
    }
    let codes = rule.child("onExitCodes");
    let conditions = rule.structs("onPodConditions");
    if codes.is_there() {
        exit_codes(validator, &path.child("onExitCodes"), codes, containers);
    }
    let conditions_path = path.child("onPodConditions");
    if conditions.len() > CONDITIONS_MAX {
        validator.errors.push(FieldError::too_many(conditions_path, conditions.len(), CONDITIONS_MAX));
    }
    for (at, condition) in conditions.clone().enumerate() {
        if validator.has_enough() {
            return;
        }
        const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
        let place = conditions_path.index(at);
        let kind = condition.text("type");
        validator.refuse(&place.child("type"), kind, names::qualified(kind));
        match condition.text("status") {
            "" => validator.required(place.child("status"), "valid values: [\"False\" \"True\" \"Unknown\"]"),
            status if !STATUSES.contains(&status) => {
                validator.not_supported(place.child("status"), status, &STATUSES);
            }
            _ => {}
        }
    }
    let detail = match (codes.is_there(), conditions.len() > 0) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    validator.errors.push(common::invalid_without_value(path, detail));
}

fn exit_codes(validator: &mut Validator, path: &FieldPath, codes: StructView, containers: &HashSet<&str>) {
    let operator = codes.text("operator");
    match operator {
        "In" | "NotIn" => {}
        "" => validator.required(path.child("operator"), "valid values: [\"In\" \"NotIn\"]"),
        other => validator.not_supported(path.child("operator"), other, &["In", "NotIn"]),
    }
    if let Some(name) = codes.get("containerName").and_then(Value::as_str)
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        validator.invalid(path.child("containerName"), name, detail);
    }
    let list = path.child("values");
    let values = codes.items("values");
    let shown = || codes.get("values").cloned().unwrap_or_default();
    if values.is_empty() {
        validator.invalid(list, shown(), "at least one value is required");
    } else if values.len() > EXIT_CODES_MAX {
        validator.errors.push(FieldError::too_many(list, values.len(), EXIT_CODES_MAX));
    }
    let mut seen = HashSet::new();
    let mut last = i64::MIN;
    let mut is_ordered = true;
    for (at, code) in values.iter().enumerate().filter_map(|(at, code)| Some((at, code.as_i64()?))) {
        if validator.has_enough() {
            return;
        }
        if operator == "In" && code == 0 {
            validator.invalid(list.index(at), code, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            validator.duplicate(list.index(at), code);
        }
        is_ordered &= last <= code;
        last = code;
    }
    if !is_ordered {
        validator.invalid(list, shown(), "must be ordered");
    }
}

fn success_policy(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let policy = spec.child("successPolicy");
    if !policy.is_there() {
        return;
    }
    if spec.text("completionMode") != "Indexed" {
        return validator.invalid(path, policy.to_value(), "requires indexed completion mode");
    }
    let list = path.child("rules");
    let rules = policy.structs("rules");
    if rules.len() == 0 {
        validator.required(list, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > SUCCESS_RULES_MAX {
        validator.errors.push(FieldError::too_many(list, rules.len(), SUCCESS_RULES_MAX));
    }
    let completions = spec.int("completions").unwrap_or(0);
    for (at, rule) in rules.enumerate() {
        if validator.has_enough() {
            return;
        }
        success_rule(validator, &list.index(at), rule, completions);
    }
}

fn success_rule(validator: &mut Validator, path: &FieldPath, rule: StructView, completions: i64) {
    let (count, indexes) = (rule.int("succeededCount"), rule.get("succeededIndexes").and_then(Value::as_str));
    if count.is_none() && indexes.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        validator.required(path, detail);
    }
    let mut total = 0;
    if let Some(text) = indexes {
        let place = path.child("succeededIndexes");
        if text.len() > INDEXES_BYTES_MAX {
            validator.errors.push(FieldError::too_long(place, INDEXES_BYTES_MAX));
        }
        match count_indexes(text, completions) {
            Ok(found) => total = found,
            Err(fault) => {
                let detail = format!("error parsing succeededIndexes: {fault}");
                validator.invalid(place, text, detail);
            }
        }
    }
    let Some(count) = count else { return };
    let place = path.child("succeededCount");
    if count < 0 {
        validator.invalid(place, count, scalar_formats::NOT_NEGATIVE);
    }
    if count > completions {
        let detail =
            format!("must be less than or equal to {completions} (the number of specified completions)");
        validator.invalid(place, count, detail);
    }
    if indexes.is_some() && count > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        validator.invalid(place, count, detail);
    }
}

/// Returns the number of indexes in a text such as `0,2-5`. Indexes must ascend and be below `completions`.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None::<i64>);
    if text.is_empty() {
        return Ok(0);
    }
    for interval in text.split(',') {
        let (start, end) = index_interval(interval, completions)?;
        if last.is_some_and(|last| last >= start) {
            return Err(format!("non-increasing order, previous: {}, current: {start}", last.unwrap_or(0)));
        }
        total += end - start + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Returns the first and the last index of an interval such as `3` or `2-5`.
fn index_interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let number = |part: &str| -> Result<i64, String> {
        let found = part.parse::<i32>().map(i64::from);
        let found = found.map_err(|_| {
            format!("cannot convert string to integer for index: {}", values::field::go_quote(part))
        })?;
        if found >= completions {
            return Err(format!("too large index: {}", values::field::go_quote(part)));
        }
        Ok(found)
    };
    let mut ends = text.split('-');
    let (first, second, rest) = (ends.next().unwrap_or_default(), ends.next(), ends.next());
    if rest.is_some() {
        return Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            values::field::go_quote(text)
        ));
    }
    let start = number(first)?;
    let end = match second {
        None => start,
        Some(second) => {
            let end = number(second)?;
            if start >= end {
                return Err(format!("non-increasing order, previous: {start}, current: {end}"));
            }
            end
        }
    };
    Ok((start, end))
}

/// Returns the first index that both texts contain. Invalid intervals are skipped, because other checks
/// refuse them.
pub(super) fn first_common_index(a: &str, b: &str, completions: i64) -> Option<i64> {
    let mut intervals = [a, b].map(|text| {
        text.split(',').filter_map(|interval| index_interval(interval, completions).ok()).peekable()
    });
    loop {
        let [a, b] = &mut intervals;
        let (first, second) = (*a.peek()?, *b.peek()?);
        if first.0 <= second.1 && second.0 <= first.1 {
            return Some(first.0.max(second.0));
        }
        if first.0 <= second.0 {
            a.next()
        } else {
            b.next()
        };
    }
}

/// Checks that the template and the completions do not change. The template of a suspended job and the
/// completions of an indexed job may change.
pub(super) fn job_update(validator: &mut Validator, new: StructView, old: StructView) {
    // The reference server checks the specification twice, except for the generated parts.
    generated_selector(validator, &FieldPath::ROOT.child("spec"), new);
    let (spec, old_spec) = (new.child("spec"), old.child("spec"));
    if !is_same(spec.get("completions"), old_spec.get("completions")) {
        let value = spec.get("completions").cloned().unwrap_or_default();
        if spec.text("completionMode") != "Indexed" {
            validator.invalid("spec.completions", value, "field is immutable");
        } else if !value.is_null() && spec.int("completions") != spec.int("parallelism") {
            validator.invalid(
                "spec.completions",
                value,
                "can only be modified in tandem with spec.parallelism",
            );
        }
    }
    let (template, former) = (spec.child("template"), old_spec.child("template"));
    if old_spec.is_true("suspend") && is_at_rest(old.child("status")) {
        let pods = template.child("spec");
        if !same_but_directives(pods, former.child("spec")) {
            validator.invalid("spec.template.spec", pods.to_value(), "field is immutable");
        }
    } else if !is_same(spec.get("template"), old_spec.get("template")) {
        validator.invalid("spec.template", template.to_value(), "field is immutable");
    }
}

/// Returns whether a suspended job has no pods. The job has never had pods, or has the condition `Suspended`.
fn is_at_rest(status: StructView) -> bool {
    let is_mark =
        |condition: StructView| condition.text("type") == "Suspended" && condition.text("status") == "True";
    status.int("active").unwrap_or(0) == 0
        && (!status.has("startTime") || status.structs("conditions").any(is_mark))
}

/// Returns whether pods are equal except for scheduling and resources, which are mutable while a job is
/// suspended.
fn same_but_directives(new: StructView, old: StructView) -> bool {
    let strip = |pods: StructView| {
        let mut pods = pods.object().cloned().unwrap_or_default();
        pods.retain(|name, _| {
            !matches!(name, "nodeSelector" | "tolerations" | "schedulingGates" | "affinity")
        });
        for list in ["containers", "initContainers"] {
            let containers = pods.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                container.remove("resources");
            }
        }
        Value::Object(pods)
    };
    let others = |pods: StructView| {
        let mut affinity = pods.get("affinity").cloned();
        if let Some(affinity) = affinity.as_mut().and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
        }
        affinity.filter(|affinity| affinity.as_object().is_some_and(|members| !members.is_empty()))
    };
    is_same(Some(&strip(new)), Some(&strip(old))) && is_same(others(new).as_ref(), others(old).as_ref())
}

pub(super) fn cron_job(validator: &mut Validator, path: &FieldPath, job: StructView) {
    let spec = job.child("spec");
    let root = path.child("spec");
    let name = job.child("metadata").text("name");
    if name.len() > CRON_JOB_NAME_MAX && validator.is_create() {
        let metadata = path.child("metadata");
        let detail = format!("must be no more than {CRON_JOB_NAME_MAX} characters");
        validator.invalid(metadata.child("name"), name, detail);
    }
    let old = validator.old.map(|old| old.child("spec"));
    schedule(validator, &root.child("schedule"), spec, old);
    let zone = spec.get("timeZone");
    if old.is_none_or(|old| !is_same(old.get("timeZone"), zone))
        && let Some(zone) = zone.and_then(Value::as_str)
    {
        zone_name(validator, &root.child("timeZone"), zone);
    }
    let template = spec.child("jobTemplate").child("spec");
    let template_path = root.child("jobTemplate");
    let place = template_path.child("spec");
    if template.has("selector") {
        let selector = template.child("selector").to_value();
        validator.invalid(place.child("selector"), selector, "`selector` will be auto-generated");
    }
    if template.is_true("manualSelector") {
        validator.not_supported(place.child("manualSelector"), true, &["nil", "false"]);
    }
}

fn schedule(validator: &mut Validator, path: &FieldPath, spec: StructView, old: Option<StructView>) {
    let schedule = spec.text("schedule");
    if schedule.is_empty() {
        return; // the schema refuses it
    }
    if let Err(fault) = Schedule::check(schedule) {
        validator.invalid(path, schedule, fault);
    }
    if !schedule.contains("TZ") {
        return;
    }
    // A stored schedule that contains a time zone may keep the time zone.
    let may_have_zone = old.is_some_and(|old| old.text("schedule").contains("TZ"));
    if !may_have_zone {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        validator.invalid(path, schedule, detail);
    } else if spec.has("timeZone") {
        let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        validator.invalid(path, schedule, detail);
    }
}

fn zone_name(validator: &mut Validator, path: &FieldPath, zone: &str) {
    if zone.is_empty() {
        return validator.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    let fits = |part: &str| {
        let is_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
        (1..=14).contains(&part.len())
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
            && part.bytes().all(is_char)
    };
    if !zone.split('/').all(fits) {
        return validator.invalid(path, zone, format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        validator.invalid(path, zone, detail);
    }
    if let Some(fault) = time_zone::fault(zone) {
        validator.invalid(path, zone, fault);
    }
}
