//! The static estimate: bounds of the cost of a checked expression, from the sizes that a host gives for its
//! variables.
//!
//! A single pass over the tree adds up costs from the leaves to the root. For each node, the pass records the
//! cost and
//!
//! - the *path* of the variable that the node reads, which is the key for size hints
//!   (`self.spec.items.@items`),
//! - the *size* of its value, if the expression determines it (literals, concatenations, results of functions), and
//! - the size of the *entries* of its value, if it is a list or map created in the expression.
//!
//! Source of the rules: cel-go's `checker/cost.go` and the cost rules of the Kubernetes libraries. Estimates
//! are part of the API: they decide whether a custom resource's rule is accepted, so they must not change.

use std::rc::Rc;

use crate::ast::{CheckedAst, Comprehension, Constant, Name, NodeId, NodeKind, Reference};
use crate::cost::rules::{LIST_COST, MAP_COST, OBJECT_COST};
use crate::cost::{CallEstimate, CallSite, CostEstimate, SizeEstimate, SizeHints, standard};
use crate::types::{Primitive, Type};

/// Names of accumulators, which are not variables of the host.
const ACCUMULATORS: [&str; 2] = ["__result__", "@result"];

/// Cost of reading a variable or a field.
const SELECT_COST: CostEstimate = CostEstimate::exactly(1);

/// Returns the bounds of the cost of one evaluation of `checked`.
///
/// The time is linear in the number of nodes. The depth of the recursion is bounded by the parser.
pub fn estimate(checked: &CheckedAst, hints: &dyn SizeHints) -> CostEstimate {
    let count = checked.ast.nodes.len();
    let mut estimator = Estimator {
        checked,
        hints,
        paths: vec![None; count],
        sizes: vec![None; count],
        entries: vec![None; count],
        locals: Vec::new(),
    };
    estimator.cost(checked.ast.root)
}

/// The path from a variable of the host to a value. Paths grow at the end and share their beginnings.
#[derive(Debug)]
struct Path {
    parent: Option<Rc<Path>>,
    segment: Name,
}

/// Bounds of the sizes of the keys and values in a list or map.
#[derive(Clone, Copy, Debug)]
struct EntrySizes {
    is_list: bool,
    key: SizeEstimate,
    value: SizeEstimate,
}

/// A variable of a comprehension.
struct Local {
    name: Name,
    path: Option<Rc<Path>>,
    size: Option<SizeEstimate>,
    entries: Option<EntrySizes>,
}

struct Estimator<'a> {
    checked: &'a CheckedAst,
    hints: &'a dyn SizeHints,
    paths: Vec<Option<Rc<Path>>>,
    sizes: Vec<Option<SizeEstimate>>,
    entries: Vec<Option<EntrySizes>>,
    locals: Vec<Local>,
}

/// A call, in the form for its estimation rule.
struct Site<'a> {
    args: Vec<Arg<'a>>,
    hints: &'a dyn SizeHints,
}

struct Arg<'a> {
    of: &'a Type,
    size: Option<SizeEstimate>,
    path: Option<Rc<Path>>,
    constant: Option<&'a Constant>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, id: NodeId) -> CostEstimate {
        let checked = self.checked;
        match checked.ast.kind(id) {
            NodeKind::Literal(_) => CostEstimate::default(),
            NodeKind::Ident(name) => self.variable(id, name),
            NodeKind::Select { operand, field, test_only } => self.select(id, *operand, field, *test_only),
            NodeKind::Call { function, target, args } => self.call(id, function, *target, args),
            NodeKind::List { elements, .. } => self.list(id, elements),
            NodeKind::Map { entries } => {
                let pairs: Vec<_> = entries.iter().map(|entry| (entry.key, entry.value)).collect();
                self.map(id, &pairs)
            }
            NodeKind::Struct { fields, .. } => {
                let sum = self.sum(fields.iter().map(|field| field.value));
                sum.plus(CostEstimate::exactly(OBJECT_COST))
            }
            NodeKind::Comprehension(comprehension) if self.is_binding(comprehension) => {
                self.binding(id, comprehension)
            }
            NodeKind::Comprehension(comprehension) => self.comprehension(id, comprehension),
        }
    }

    fn sum(&mut self, ids: impl IntoIterator<Item = NodeId>) -> CostEstimate {
        ids.into_iter().fold(CostEstimate::default(), |sum, id| sum.plus(self.cost(id)))
    }

    fn variable(&mut self, id: NodeId, name: &Name) -> CostEstimate {
        let path = match self.local(name) {
            Some(local) => local.path.clone(),
            None => Some(Path::extend(None, name)),
        };
        self.paths[id.index()] = path;
        SELECT_COST
    }

    fn select(&mut self, id: NodeId, operand: NodeId, field: &Name, test_only: bool) -> CostEstimate {
        if let Some(Reference::Variable(name)) = self.checked.reference(id) {
            return self.variable(id, name);
        }
        let cost = self.cost(operand);
        if test_only {
            return cost;
        }
        self.paths[id.index()] = Some(Path::extend(self.path(operand), field));
        match self.checked.type_of(operand) {
            Type::Map(_) | Type::Object(_) | Type::Param(_) => cost.plus(SELECT_COST),
            _ => cost,
        }
    }

    fn call(
        &mut self,
        id: NodeId,
        function: &str,
        target: Option<NodeId>,
        args: &'a [NodeId],
    ) -> CostEstimate {
        if function == "dyn"
            && target.is_none()
            && let [arg] = args
        {
            // `dyn` only affects the checker, so everything known about the argument also holds for the
            // result.
            let cost = self.cost(*arg).plus(CostEstimate::exactly(1));
            self.copy_sizes(id, *arg);
            return cost;
        }
        let arg_costs: Vec<_> = args.iter().map(|&arg| self.cost(arg)).collect();
        let target_cost = target.map_or_else(CostEstimate::default, |target| self.cost(target));
        let Some(Reference::Call(overloads)) = self.checked.reference(id) else {
            return CostEstimate::default();
        };
        let operands = target.iter().chain(args).map(|&arg| self.arg(arg)).collect();
        let site = Site { args: operands, hints: self.hints };
        let arg_sum = arg_costs.iter().fold(CostEstimate::default(), |sum, cost| sum.plus(*cost));

        // The bounds cover all overloads that the checker left open.
        let mut bounds: Option<CostEstimate> = None;
        let mut result_size: Option<SizeEstimate> = None;
        for overload in overloads {
            let (cost, size) = match (overload.id, args) {
                ("logical_and" | "logical_or", _) => (short_circuit(&arg_costs), None),
                ("conditional", &[_, yes, no]) => {
                    let size = site.size(1).union(site.size(2));
                    self.set_entries(id, EntrySizes::union(self.entries_of(yes), self.entries_of(no)));
                    (arg_costs[0].plus(arg_costs[1].union(arg_costs[2])), Some(size))
                }
                (standard_id, _) => {
                    if let ("add_string" | "add_bytes" | "add_list", &[left, right]) = (standard_id, args) {
                        self.set_entries(
                            id,
                            EntrySizes::union(self.entries_of(left), self.entries_of(right)),
                        );
                    }
                    let own = overload.estimate.and_then(|rule| rule(&site));
                    let CallEstimate { cost, result_size } =
                        own.unwrap_or_else(|| standard::estimate(standard_id, &site));
                    (cost.plus(arg_sum), result_size)
                }
            };
            bounds = Some(bounds.map_or(cost, |bounds| bounds.union(cost)));
            result_size = match (result_size, size) {
                (Some(known), Some(size)) => Some(known.union(size)),
                (known, size) => known.or(size),
            };
            let element = match overload.id {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(segment), Some(&container)) = (element, args.first()) {
                result_size = self.entries_of(container).map(|entries| entries.value);
                self.paths[id.index()] = Some(Path::extend(self.path(container), &segment.into()));
            }
            result_size = result_size.or_else(|| self.size(id));
        }
        self.sizes[id.index()] = result_size.or(self.sizes[id.index()]);
        target_cost.plus(bounds.unwrap_or_default())
    }

    fn list(&mut self, id: NodeId, elements: &[NodeId]) -> CostEstimate {
        let cost = self.sum(elements.iter().copied());
        let value = self.union_of_sizes(elements.iter().copied());
        let key = SizeEstimate::exactly(1);
        self.set_entries(id, Some(EntrySizes { is_list: true, key, value }));
        cost.plus(CostEstimate::exactly(LIST_COST))
    }

    fn map(&mut self, id: NodeId, entries: &[(NodeId, NodeId)]) -> CostEstimate {
        let cost = self.sum(entries.iter().flat_map(|&(key, value)| [key, value]));
        let key = self.union_of_sizes(entries.iter().map(|entry| entry.0));
        let value = self.union_of_sizes(entries.iter().map(|entry| entry.1));
        self.set_entries(id, Some(EntrySizes { is_list: false, key, value }));
        cost.plus(CostEstimate::exactly(MAP_COST))
    }

    /// Returns whether a comprehension only binds a variable. Macros such as `optMap` and `sortBy` expand to
    /// such a comprehension: a loop over an empty list.
    fn is_binding(&self, comprehension: &Comprehension) -> bool {
        let ast = &self.checked.ast;
        matches!(ast.kind(comprehension.range), NodeKind::List { elements, .. } if elements.is_empty())
            && matches!(ast.kind(comprehension.condition), NodeKind::Literal(Constant::Bool(false)))
            && &*comprehension.accu_var != ACCUMULATORS[0]
    }

    fn binding(&mut self, id: NodeId, comprehension: &Comprehension) -> CostEstimate {
        let cost = self.sum([comprehension.range, comprehension.init]);
        self.push_accumulator(comprehension);
        let cost = cost.plus(self.cost(comprehension.result));
        self.locals.pop();
        self.copy_sizes(id, comprehension.result);
        cost
    }

    fn comprehension(&mut self, id: NodeId, comprehension: &Comprehension) -> CostEstimate {
        let Comprehension { range, init, step, condition, result, .. } = *comprehension;
        let cost = self.sum([range, init]);
        self.push_accumulator(comprehension);
        let outer = self.locals.len();
        self.push_iteration_variables(comprehension);
        let each = self.sum([condition, step]);
        self.locals.truncate(outer);
        let cost = cost.plus(self.cost(result));
        self.locals.pop();

        let count = self.size(range).unwrap_or(SizeEstimate::UNKNOWN);
        match self.checked.ast.kind(init) {
            NodeKind::Literal(_) => self.sizes[id.index()] = self.size(init),
            NodeKind::List { .. } | NodeKind::Map { .. } => {
                self.sizes[id.index()] = Some(count);
                let entries = self.entries_of(step);
                self.set_entries(id, entries);
            }
            _ => {}
        }
        cost.plus(count.times_cost(each))
    }

    fn push_accumulator(&mut self, comprehension: &Comprehension) {
        let init = comprehension.init;
        let local = Local {
            name: comprehension.accu_var.clone(),
            path: self.path(init),
            size: self.size(init),
            entries: self.entries_of(init),
        };
        self.locals.push(local);
    }

    fn push_iteration_variables(&mut self, comprehension: &Comprehension) {
        let range = comprehension.range;
        let entries = self.entries_of(range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.type_of(range), Type::List(_)),
        };
        let path = self.path(range);
        let local = |name: &Name, size: Option<SizeEstimate>, segment: &str| Local {
            name: name.clone(),
            path: Some(Path::extend(path.clone(), &segment.into())),
            size,
            entries: None,
        };
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        let first = &comprehension.iter_var;
        let pushed = match (&comprehension.iter_var2, is_list) {
            (None, true) => [Some(local(first, value, "@items")), None],
            (None, false) => [Some(local(first, key, "@keys")), None],
            (Some(second), true) => {
                [Some(local(first, key, "@indices")), Some(local(second, value, "@items"))]
            }
            (Some(second), false) => {
                [Some(local(first, key, "@keys")), Some(local(second, value, "@values"))]
            }
        };
        self.locals.extend(pushed.into_iter().flatten());
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn local_at(&self, id: NodeId) -> Option<&Local> {
        match self.checked.ast.kind(id) {
            NodeKind::Ident(name) => self.local(name),
            _ => None,
        }
    }

    fn path(&self, id: NodeId) -> Option<Rc<Path>> {
        match self.local_at(id) {
            Some(local) => local.path.clone(),
            None => self.paths[id.index()].clone(),
        }
    }

    fn entries_of(&self, id: NodeId) -> Option<EntrySizes> {
        self.entries[id.index()].or_else(|| self.local_at(id).and_then(|local| local.entries))
    }

    fn set_entries(&mut self, id: NodeId, entries: Option<EntrySizes>) {
        if entries.is_some() {
            self.entries[id.index()] = entries;
        }
    }

    fn copy_sizes(&mut self, to: NodeId, from: NodeId) {
        self.sizes[to.index()] = self.size(from).or(self.sizes[to.index()]);
        self.set_entries(to, self.entries_of(from));
    }

    /// Returns the size of a node's value. The size was computed before, or it follows from a literal, a hint
    /// of the host, or the type.
    fn size(&mut self, id: NodeId) -> Option<SizeEstimate> {
        if let Some(size) = self.sizes[id.index()] {
            return Some(size);
        }
        if let Some(size) = literal_size(self.checked.ast.kind(id)) {
            return Some(SizeEstimate::exactly(size));
        }
        if let Some(size) = self.path(id).and_then(|path| path.size(self.hints, None)) {
            self.sizes[id.index()] = Some(size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(id)) {
            return Some(SizeEstimate::exactly(1));
        }
        self.local_at(id).and_then(|local| local.size)
    }

    fn union_of_sizes(&mut self, ids: impl IntoIterator<Item = NodeId>) -> SizeEstimate {
        let sizes = ids.into_iter().map(|id| self.size(id).unwrap_or(SizeEstimate::UNKNOWN));
        sizes.reduce(SizeEstimate::union).unwrap_or(SizeEstimate::exactly(0))
    }

    fn arg(&mut self, id: NodeId) -> Arg<'a> {
        let constant = match self.checked.ast.kind(id) {
            NodeKind::Literal(constant) => Some(constant),
            _ => None,
        };
        let path = self.path(id).filter(|path| !path.starts_at_accumulator());
        Arg { of: self.checked.type_of(id), size: self.size(id), path, constant }
    }
}

impl Path {
    fn extend(parent: Option<Rc<Path>>, segment: &Name) -> Rc<Path> {
        Rc::new(Path { parent, segment: segment.clone() })
    }

    /// Returns the host's size hint for this path, or for its `child`.
    fn size(&self, hints: &dyn SizeHints, child: Option<&str>) -> Option<SizeEstimate> {
        let mut segments: Vec<&str> = child.into_iter().chain(self.segments_reversed()).collect();
        segments.reverse();
        hints.size(&segments)
    }

    fn starts_at_accumulator(&self) -> bool {
        self.segments_reversed().last().is_some_and(|first| ACCUMULATORS.contains(&first))
    }

    fn segments_reversed(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self), |path| path.parent.as_deref()).map(|path| &*path.segment)
    }
}

impl EntrySizes {
    /// Returns the smallest bounds that include both bounds; `None` if one of the bounds is unknown.
    fn union(left: Option<Self>, right: Option<Self>) -> Option<Self> {
        let (left, right) = (left?, right?);
        Some(Self {
            is_list: left.is_list,
            key: left.key.union(right.key),
            value: left.value.union(right.value),
        })
    }
}

impl CallSite for Site<'_> {
    fn len(&self) -> usize {
        self.args.len()
    }

    fn size(&self, arg: usize) -> SizeEstimate {
        self.args.get(arg).and_then(|arg| arg.size).unwrap_or(SizeEstimate::UNKNOWN)
    }

    fn type_of(&self, arg: usize) -> &Type {
        self.args.get(arg).map_or(&Type::Dyn, |arg| arg.of)
    }

    fn constant(&self, arg: usize) -> Option<&Constant> {
        self.args.get(arg)?.constant
    }

    fn element_size(&self, arg: usize) -> SizeEstimate {
        let path = self.args.get(arg).and_then(|arg| arg.path.as_ref());
        path.and_then(|path| path.size(self.hints, Some("@items"))).unwrap_or(SizeEstimate::UNKNOWN)
    }
}

/// Estimates the cost of a logical operator. The lower bound excludes the right operand, because it is not
/// always evaluated.
fn short_circuit(costs: &[CostEstimate]) -> CostEstimate {
    let max = costs.iter().fold(0u64, |sum, cost| sum.saturating_add(cost.max));
    CostEstimate { min: costs.first().map_or(0, |left| left.min), max }
}

fn literal_size(kind: &NodeKind) -> Option<u64> {
    Some(match kind {
        NodeKind::Literal(Constant::String(text)) => text.chars().count() as u64,
        NodeKind::Literal(Constant::Bytes(bytes)) => bytes.len() as u64,
        NodeKind::Literal(_) => 1,
        NodeKind::List { elements, .. } => elements.len() as u64,
        NodeKind::Map { entries } => entries.len() as u64,
        _ => return None,
    })
}

/// Returns whether values of a type have a size that is known before evaluation.
fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Wrapper(primitive) => !matches!(primitive, Primitive::String | Primitive::Bytes),
        Type::Optional(value) => is_scalar(value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Environment, Origin};
    use crate::library::{self, Version, standard};

    const UNKNOWN: u64 = u64::MAX;
    /// A tenth of an unknown size.
    const TENTH: u64 = 1_844_674_407_370_955_264;

    /// Sizes of `s` (text), `ls` (list of texts) and `m` (map), if `known`.
    struct Hints {
        known: bool,
    }

    impl SizeHints for Hints {
        fn size(&self, path: &[&str]) -> Option<SizeEstimate> {
            let max = match path {
                ["s"] => 100,
                ["ls"] | ["m"] => 10,
                ["ls", "@items"] => 50,
                ["m", "@values", "@items"] => 20,
                ["m", "@values"] => 3,
                _ => return None,
            };
            self.known.then_some(SizeEstimate { min: 0, max })
        }
    }

    fn bounds(expression: &str, known: bool) -> (u64, u64) {
        let mut libraries = library::extensions();
        libraries.push(standard::library());
        let environment = Environment::new(&libraries, Version::new(1, 35), Origin::New)
            .with_variable("s", Type::String)
            .with_variable("i", Type::Int)
            .with_variable("d", Type::Dyn)
            .with_variable("ls", Type::list(Type::String))
            .with_variable("m", Type::map(Type::String, Type::list(Type::String)));
        let checked = environment.compile(expression).unwrap_or_else(|error| panic!("{error}"));
        let CostEstimate { min, max } = estimate(&checked, &Hints { known });
        (min, max)
    }

    #[test]
    fn cost_estimates_follow_the_sizes_of_variables() {
        for (expression, known, unknown) in [
            ("i == 3", (2, 2), (2, 2)),
            ("s == 'abc'", (2, 2), (2, 2)),
            ("s + 'x'", (2, 12), (2, TENTH + 1)),
            ("s.contains(s)", (2, 102), (2, UNKNOWN)),
            ("s.matches('^a+$')", (2, 12), (2, TENTH + 1)),
            ("'a' in ls", (1, 11), (1, UNKNOWN)),
            ("ls.all(e, e.size() < 11)", (2, 62), (2, UNKNOWN)),
            ("ls.all(e, e == s)", (2, 102), (2, UNKNOWN)),
            ("ls.map(e, e + '!')", (12, 202), (12, UNKNOWN)),
            ("ls.max()", (1, 61), (1, UNKNOWN)),
            ("ls.sort()", (12, 222), (12, UNKNOWN)),
            ("ls[0] + s", (3, 18), (3, TENTH + 3)),
            ("m.all(k, m[k].all(v, v == 'x'))", (2, 222), (2, UNKNOWN)),
            ("m.exists(k, v, v.size() > 1)", (2, 72), (2, UNKNOWN)),
            ("has(m.a)", (1, 1), (1, 1)),
        ] {
            assert_eq!(bounds(expression, true), known, "{expression}");
            assert_eq!(bounds(expression, false), unknown, "{expression} of unknown sizes");
        }
    }

    #[test]
    fn cost_estimates_use_sizes_known_from_the_expression() {
        for (expression, want) in [
            ("1 + 2", (1, 1)),
            ("[1, 2, 3]", (10, 10)),
            ("{'a': i}.a", (32, 32)),
            ("'abc'.split('').map(c, c)", (12, 51)),
            ("[s, s].all(e, e != 'x')", (19, 23)),
            ("i > 1 && s == 'x'", (2, 4)),
            ("i > 1 ? [1] : [2, 3]", (12, 12)),
            ("(i > 1 ? [1] : [2, 3]).all(e, e > 0)", (16, 23)),
            ("dyn(s) == dyn('x')", (4, 4)),
            ("'%d'.format([i])", (12, 12)),
            ("lists.range(5).map(e, e)", (92, 92)),
            ("quantity('1Gi') == quantity('1')", (3, 3)),
            ("optional.of(i).optMap(x, x + 1)", (4, 19)),
        ] {
            assert_eq!(bounds(expression, false), want, "{expression}");
        }
    }
}
