//! Evaluation of loops, to which `all`, `exists`, `map`, `filter` and similar macros expand.
//!
//! An error of the language becomes the value of the accumulator, so that a later element can absorb it. The
//! lists and maps of macros grow in place, which keeps the time of a loop linear.

use crate::error::EvalError;
use crate::evaluation::evaluator::{Evaluator, Outcome, SlotState, settle};
use crate::evaluation::plan::{ExpressionId, Fold, FoldVariables, Slot, Step};
use crate::evaluation::{dispatch, operators};
use crate::value::describe::{describe, kind_name};
use crate::value::{List, Object, Value};

/// Number of steps per iteration, in addition to the steps of its expressions.
const ITERATION_STEPS: usize = 10;
/// Cost of a call, or of reading an accumulator.
const STEP_COST: u64 = 1;

impl<'v> Evaluator<'_, 'v> {
    pub(super) fn fold(&mut self, fold: &Fold) -> Outcome<'v> {
        let mut range = self.evaluate(fold.range)?;
        let lazy = match &range {
            Value::Object(object) if object.is_lazy() => Some(object.clone()),
            _ => None,
        };
        if let Some(lazy) = &lazy {
            range = Value::list(lazy.elements());
        }
        self.set(fold.accumulator, SlotState::Unread(fold.init));
        let len = match (&range, fold.variables) {
            (Value::List(list), _) => list.len(),
            (Value::Map(map), _) => map.len(),
            (other, FoldVariables::One(_)) => {
                return Err(EvalError::new(format!("got '{}', expected iterable type", kind_name(other))));
            }
            (other, FoldVariables::Two(..)) => {
                return Err(EvalError::new(format!(
                    "unsupported comprehension range type: {}",
                    kind_name(other)
                )));
            }
        };
        for index in 0..len {
            self.steps().many(ITERATION_STEPS)?;
            let is_bound = match (&lazy, fold.variables) {
                (Some(lazy), FoldVariables::Two(key, element)) => {
                    self.bind_lazy(lazy, &range, index, key, element)
                }
                _ => self.bind(&range, index, fold.variables),
            };
            if !is_bound {
                break;
            }
            if let Ok(Value::Bool(false)) = settle(self.evaluate(fold.condition))? {
                break;
            }
            self.step(&fold.step, fold.accumulator)?;
        }
        self.evaluate(fold.result)
    }

    /// Sets the variables to the entry at `index`; returns false if there is no such entry.
    fn bind(&mut self, range: &Value<'v>, index: usize, variables: FoldVariables) -> bool {
        match (range, variables) {
            (Value::List(list), FoldVariables::One(element)) => {
                let Some(value) = list.get(index) else { return false };
                self.set(element, SlotState::Value(value.checked()));
            }
            (Value::List(list), FoldVariables::Two(key, element)) => {
                let Some(value) = list.get(index) else { return false };
                self.set(key, SlotState::Value(Ok(Value::Int(index as i64))));
                self.set(element, SlotState::Value(value.checked()));
            }
            (Value::Map(map), FoldVariables::One(element)) => {
                let Some(key) = map.key_at(index) else { return false };
                self.set(element, SlotState::Value(Ok(key)));
            }
            (Value::Map(map), FoldVariables::Two(first, second)) => {
                let Some((key, value)) = map.entry_at(index) else { return false };
                self.set(first, SlotState::Value(Ok(key)));
                self.set(second, SlotState::Value(value.checked()));
            }
            _ => return false,
        }
        true
    }

    /// Sets the variables to an element of a lazy object and to the value under that element.
    fn bind_lazy(
        &mut self,
        lazy: &Object<'v>,
        elements: &Value<'v>,
        index: usize,
        first: Slot,
        second: Slot,
    ) -> bool {
        let Value::List(elements) = elements else { return false };
        let Some(key) = elements.get(index) else { return false };
        let value = lazy.look_up(&key);
        self.set(first, SlotState::Value(key.checked()));
        self.set(second, SlotState::Value(value));
        true
    }

    fn set(&mut self, slot: Slot, state: SlotState<'v>) {
        self.slots[slot.0 as usize] = state;
    }

    /// Computes the next accumulator. The returned error ends the evaluation.
    fn step(&mut self, step: &Step, accumulator: Slot) -> Result<(), EvalError> {
        match step {
            Step::Append(list) => self.append(accumulator, *list),
            Step::Insert(key, value) => self.insert(accumulator, *key, *value),
            Step::InsertAll(entries) => self.insert_all(accumulator, *entries),
            Step::If(condition, step) => {
                let failure = match settle(self.evaluate(*condition))? {
                    Ok(Value::Bool(true)) => return self.step(step, accumulator),
                    Ok(Value::Bool(false)) => return self.start(accumulator),
                    Ok(_) => EvalError::no_such_overload(),
                    Err(error) => error,
                };
                self.set(accumulator, SlotState::Value(Err(failure)));
                Ok(())
            }
            Step::Evaluate(expression) => {
                let value = settle(self.evaluate(*expression))?;
                self.set(accumulator, SlotState::Value(value));
                Ok(())
            }
        }
    }

    /// Reads the accumulator as an operand: charges the cost, and returns its error if it has one.
    fn operand(&mut self, accumulator: Slot) -> Result<Option<EvalError>, EvalError> {
        self.start(accumulator)?;
        self.charge(STEP_COST)?;
        Ok(match &self.slots[accumulator.0 as usize] {
            SlotState::Value(Err(error)) => Some(error.clone()),
            _ => None,
        })
    }

    fn append(&mut self, accumulator: Slot, list: ExpressionId) -> Result<(), EvalError> {
        let failure = self.operand(accumulator)?;
        let list = settle(self.evaluate(list))?;
        self.charge(STEP_COST)?;
        let failure = match (failure, list) {
            (Some(failure), _) | (None, Err(failure)) => Some(failure),
            (None, Ok(list)) => self.extend(accumulator, &list)?,
        };
        if let Some(failure) = failure {
            self.set(accumulator, SlotState::Value(Err(failure)));
        }
        Ok(())
    }

    /// Appends the elements of `list` to the accumulator. Returns an error of the language if the elements
    /// cannot be added.
    fn extend(&mut self, accumulator: Slot, list: &Value<'v>) -> Result<Option<EvalError>, EvalError> {
        let state = &mut self.slots[accumulator.0 as usize];
        match (&mut *state, list) {
            (SlotState::List(elements), Value::List(list)) => elements.extend(list.iter()),
            (SlotState::Value(Ok(Value::List(grown))), Value::List(list)) => {
                let sum = List::concat(grown, list)?;
                *state = SlotState::Value(Ok(Value::List(sum)));
            }
            (SlotState::Value(Ok(other)), list) => match settle(operators::add(other, list))? {
                Ok(sum) => *state = SlotState::Value(Ok(sum)),
                Err(error) => return Ok(Some(error)),
            },
            _ => return Ok(Some(EvalError::no_such_overload())),
        }
        Ok(None)
    }

    fn insert(&mut self, accumulator: Slot, key: ExpressionId, value: ExpressionId) -> Result<(), EvalError> {
        // The first error ends the call. The call is then charged only if the error comes from the last
        // argument.
        if self.operand(accumulator)?.is_some() {
            return Ok(());
        }
        let key = match settle(self.evaluate(key))? {
            Ok(key) => key,
            Err(error) => {
                self.set(accumulator, SlotState::Value(Err(error)));
                return Ok(());
            }
        };
        let value = settle(self.evaluate(value))?;
        self.charge(STEP_COST)?;
        let inserted = value.and_then(|value| self.put(accumulator, key, value));
        if let Err(error) = settle(inserted)? {
            self.set(accumulator, SlotState::Value(Err(error)));
        }
        Ok(())
    }

    fn insert_all(&mut self, accumulator: Slot, entries: ExpressionId) -> Result<(), EvalError> {
        let failure = self.operand(accumulator)?;
        let entries = settle(self.evaluate(entries))?;
        self.charge(STEP_COST)?;
        let inserted = match (failure, entries) {
            (Some(error), _) | (None, Err(error)) => Err(error),
            (None, Ok(Value::Map(entries))) => {
                entries.iter().try_for_each(|(key, value)| self.put(accumulator, key, value))
            }
            (None, Ok(other)) => {
                let map = Value::map(Default::default());
                Err(dispatch::no_such_overload("cel.@mapInsert", &[map, other]))
            }
        };
        if let Err(error) = settle(inserted)? {
            self.set(accumulator, SlotState::Value(Err(error)));
        }
        Ok(())
    }

    /// Adds one entry to the accumulator.
    fn put(&mut self, accumulator: Slot, key: Value<'v>, value: Value<'v>) -> Result<(), EvalError> {
        let state = &mut self.slots[accumulator.0 as usize];
        if let SlotState::Value(Ok(Value::Map(map))) = state {
            let entries = map.iter().collect();
            *state = SlotState::Map(entries);
        }
        let SlotState::Map(map) = state else { return Err(EvalError::no_such_overload()) };
        if matches!(key, Value::Bytes(_)) {
            return Err(EvalError::unhashable());
        }
        if map.get(&key).is_some() {
            return Err(EvalError::new(format!("insert failed: key {} already exists", describe(&key))));
        }
        map.insert(key, value);
        Ok(())
    }
}
