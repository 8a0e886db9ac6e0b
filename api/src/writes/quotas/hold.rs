//! A stored quota: the limits, the usage, and the check whether the quota allows more usage.

use quantity::Quantity;

use super::inputs::QuotaRequest;
use super::usage::{QuotaScope, Usage};
use crate::writes::pod::{self, Amounts};
use values::json::{Object, Value};
use values::object::{at, meta};

/// A resource quota, read from its object.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Name of the quota object.
    pub name: String,
    /// Uid of the quota. If the quota is deleted and created again under the same name, the new quota has
    /// another uid. The usage of the new quota does not contain the amounts of the deleted quota.
    pub uid: String,
    /// The limits in effect, from the status. Limits in the specification take effect once their usage has
    /// been counted.
    pub hard: Amounts,
    /// Usage of the resources in `hard`.
    pub used: Amounts,
    scopes: Vec<QuotaScope>,
}

impl Quota {
    /// Reads a quota from its object.
    pub fn parse(object: &Object) -> Quota {
        Quota {
            name: meta(object, "name").to_owned(),
            uid: meta(object, "uid").to_owned(),
            hard: pod::amounts(at(object, "status.hard")),
            used: pod::amounts(at(object, "status.used")),
            scopes: QuotaScope::all_of(object),
        }
    }

    /// Returns whether the quota covers the object with this usage.
    pub fn covers(&self, usage: &Usage) -> bool {
        self.hard.keys().any(|name| usage.concerns(name))
            && self.scopes.iter().all(|scope| usage.is_in(scope))
    }

    /// Returns whether the quota has no scopes, so that it covers objects regardless of scopes.
    pub fn has_no_scopes(&self) -> bool {
        self.scopes.is_empty()
    }

    /// Returns the scopes of the quota that contain the object.
    pub fn scopes_of<'q>(&'q self, usage: &Usage) -> impl Iterator<Item = &'q QuotaScope> {
        self.scopes.iter().filter(|scope| usage.is_in(scope))
    }

    /// Checks that the object sets all sizes that the quota counts, and that the usage of the quota is known.
    ///
    /// # Errors
    /// Returns the message for the client.
    pub fn check(&self, usage: &Usage) -> Result<(), String> {
        let counted: Vec<&str> =
            self.hard.keys().map(String::as_str).filter(|name| usage.concerns(name)).collect();
        if let Some(missing) = usage.unnamed_sizes(counted.iter().copied()) {
            return Err(format!("failed quota: {}: must specify {missing}", self.name));
        }
        if counted.iter().any(|name| !self.used.contains_key(*name)) {
            return Err(format!("status unknown for quota: {}, resources: {}", self.name, counted.join(",")));
        }
        Ok(())
    }

    /// Returns the amounts by which the write changes the usage of this quota. If the quota covers the stored
    /// object but not the new object, the result is empty, and the next recount corrects the usage. A
    /// subtraction before the commit would be wrong: the write may still fail, and other writes could exceed
    /// the quota in the meantime.
    pub fn change(&self, ask: &QuotaRequest) -> Amounts {
        if !self.covers(&ask.usage) {
            return Amounts::new();
        }
        let before = ask.before.as_ref().filter(|before| self.covers(before));
        let mut change = ask.usage.amounts.clone();
        if let Some(before) = before {
            let less = before.amounts.iter().map(|(name, amount)| (name.clone(), amount.negated())).collect();
            pod::add(&mut change, &less);
        }
        change.retain(|name, amount| !amount.is_zero() && self.hard.contains_key(name));
        change
    }

    /// Removes the resources that this quota does not count from `used`, and raises negative amounts to 0.
    pub fn bounded(&self, used: &mut Amounts) {
        used.retain(|name, _| self.hard.contains_key(name));
        used.values_mut().filter(|amount| amount.is_negative()).for_each(|amount| *amount = Quantity::ZERO);
    }

    /// Adds a [`change`](Quota::change) to the usage of the quota.
    ///
    /// # Errors
    /// Fails if the quota does not allow these amounts. The usage then stays unchanged.
    pub fn take(&mut self, change: &Amounts) -> Result<(), String> {
        let mut next = self.used.clone();
        pod::add(&mut next, change);
        let is_over = |name: &&String| {
            let is_more = change.get(*name).is_some_and(|amount| !amount.is_negative());
            is_more && next[*name] > self.hard[*name]
        };
        let over: Vec<&String> = change.keys().filter(is_over).collect();
        if !over.is_empty() {
            let shown = |amounts: &Amounts| {
                let pairs = over.iter().filter_map(|name| Some((name, amounts.get(*name)?)));
                pairs
                    .map(|(name, amount)| format!("{name}={}", amount.to_text()))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                self.name,
                shown(change),
                shown(&self.used),
                shown(&self.hard)
            ));
        }
        self.used = next;
        Ok(())
    }

    /// Subtracts amounts that were taken before.
    pub fn give_back(&mut self, taken: &Amounts) {
        for (name, amount) in taken {
            if let Some(used) = self.used.get_mut(name) {
                let left = used.minus(*amount);
                *used = if left.is_negative() { Quantity::ZERO } else { left };
            }
        }
    }
}

/// Converts amounts to a value of an object.
pub fn to_value(amounts: &Amounts) -> Value {
    let members = amounts.iter().map(|(name, amount)| (name.clone().into(), amount.to_text().into()));
    Value::Object(Object::from_iter(members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn a_quota_accepts_amounts_up_to_its_total() {
        let amounts = |text: &str| -> Amounts {
            let value = Value::Object(object(text));
            pod::amounts(Some(&value))
        };
        for (used, delta, want) in [
            (r#"{"cpu":"1"}"#, r#"{"cpu":"1"}"#, Ok(r#"{"cpu":"2"}"#)),
            (r#"{"cpu":"1"}"#, r#"{"cpu":"500m"}"#, Ok(r#"{"cpu":"1500m"}"#)),
            (
                r#"{"cpu":"1"}"#,
                r#"{"cpu":"1001m"}"#,
                Err("exceeded quota: q, requested: cpu=1001m, used: cpu=1, limited: cpu=2"),
            ),
            // If the limit of a quota was lowered below the usage, updates that reduce the usage are still
            // allowed.
            (r#"{"cpu":"5"}"#, r#"{"cpu":"-1"}"#, Ok(r#"{"cpu":"4"}"#)),
        ] {
            let text =
                format!(r#"{{"metadata":{{"name":"q"}},"status":{{"hard":{{"cpu":"2"}},"used":{used}}}}}"#);
            let mut quota = Quota::parse(&object(&text));
            let got = quota.take(&amounts(delta)).map(|_| values::testing::text(&to_value(&quota.used)));
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{used} {delta}");
        }
    }
}
