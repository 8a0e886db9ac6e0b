//! Sets of field paths, with set operations (docs/api/apply.md#field-sets).
//!
//! ```text
//! FieldSet ─ nodes, ascending ─ Node { element, member, children: FieldSet }
//! ```
//!
//! A node exists if its path is a member of the set, or if a longer path below it is a member. Membership of
//! a path does not include the paths below it: `{.a}` and `{.a.b}` are disjoint. Operations consume their
//! input where possible, so that unchanged branches are moved instead of copied.

use std::cmp::Ordering;

use super::path::Element;

/// A set of field paths. Equal sets have equal structure.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldSet<'t> {
    nodes: Vec<Node<'t>>,
}

/// A step that one or more paths of a set have in common.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node<'t> {
    /// The step from the parent node.
    pub element: Element<'t>,
    /// Whether the path that ends here is a member.
    pub member: bool,
    /// The members below this path.
    pub children: FieldSet<'t>,
}

impl<'t> FieldSet<'t> {
    /// Creates an empty set.
    pub const fn new() -> Self {
        FieldSet { nodes: Vec::new() }
    }

    /// Creates the set of `nodes`, which may be in any order. Equal nodes are united and empty nodes are
    /// dropped.
    pub fn from_nodes(mut nodes: Vec<Node<'t>>) -> Self {
        nodes.retain(|node| node.member || !node.children.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|later, kept| {
                let same = later.element == kept.element;
                if same {
                    kept.member |= later.member;
                    kept.children =
                        std::mem::take(&mut kept.children).union(std::mem::take(&mut later.children));
                }
                same
            });
        }
        FieldSet { nodes }
    }

    /// Creates the set of the dotted paths `paths`.
    pub fn of_fields(paths: &[&'t str]) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            let path: Vec<Element<'t>> = path.split('.').map(Element::field).collect();
            set.insert(&path);
        }
        set
    }

    /// Returns whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    /// Returns the number of steps of the longest path.
    pub fn depth(&self) -> usize {
        self.nodes.iter().map(|node| 1 + node.children.depth()).max().unwrap_or(0)
    }

    /// Returns the first steps of all paths in ascending order.
    pub fn nodes(&self) -> &[Node<'t>] {
        &self.nodes
    }

    /// Returns each first step with its membership and the set below it. The caller must not leave a step
    /// without any member.
    pub fn steps_mut(&mut self) -> impl Iterator<Item = (&Element<'t>, &mut bool, &mut FieldSet<'t>)> {
        self.nodes.iter_mut().map(|node| (&node.element, &mut node.member, &mut node.children))
    }

    /// Returns the node at `element`, by binary search.
    pub fn get(&self, element: &Element<'_>) -> Option<&Node<'t>> {
        self.nodes.binary_search_by(|node| node.element.cmp(element)).ok().map(|at| &self.nodes[at])
    }

    /// Adds a path. The empty path adds nothing: it denotes the whole object, which cannot be owned.
    pub fn insert(&mut self, path: &[Element<'t>]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.nodes.binary_search_by(|node| node.element.cmp(first)) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: first.clone(), member: false, children: FieldSet::new() };
                self.nodes.insert(at, node);
                at
            }
        };
        if rest.is_empty() {
            self.nodes[at].member = true;
        } else {
            self.nodes[at].children.insert(rest);
        }
    }

    /// Returns whether `path` is a member.
    pub fn has(&self, path: &[Element<'_>]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.get(first)
            .is_some_and(|node| if rest.is_empty() { node.member } else { node.children.has(rest) })
    }

    /// Returns the paths that are in at least one of the two sets.
    pub fn union(self, other: FieldSet<'t>) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut others = other.nodes.into_iter().peekable();
        for mut node in self.nodes {
            while let Some(before) = others.next_if(|other| other.element < node.element) {
                nodes.push(before);
            }
            if let Some(same) = others.next_if(|other| other.element == node.element) {
                node.member |= same.member;
                node.children = node.children.union(same.children);
            }
            nodes.push(node);
        }
        nodes.extend(others);
        FieldSet { nodes }
    }

    /// Returns the paths of this set that are not in `other`. Paths below a member of `other` stay.
    pub fn difference(self, other: &FieldSet<'_>) -> Self {
        self.combine(other, true, |node, other| {
            node.member &= !other.member;
            node.children = std::mem::take(&mut node.children).difference(&other.children);
        })
    }

    /// Returns the paths of this set that are neither in `other` nor below a member of it.
    pub fn recursive_difference(self, other: &FieldSet<'_>) -> Self {
        self.combine(other, true, |node, other| {
            if other.member {
                node.member = false;
                node.children = FieldSet::new();
            } else {
                node.children = std::mem::take(&mut node.children).recursive_difference(&other.children);
            }
        })
    }

    /// Returns the paths that are in both sets.
    pub fn intersection(self, other: &FieldSet<'_>) -> Self {
        self.combine(other, false, |node, other| {
            node.member &= other.member;
            node.children = std::mem::take(&mut node.children).intersection(&other.children);
        })
    }

    /// Returns the paths of this set that are in `other` or below a member of it.
    pub fn within(self, other: &FieldSet<'_>) -> Self {
        self.combine(other, false, |node, other| {
            if !other.member {
                node.member = false;
                node.children = std::mem::take(&mut node.children).within(&other.children);
            }
        })
    }

    /// Returns whether the sets have a path in common, without copying.
    pub fn intersects(&self, other: &FieldSet<'_>) -> bool {
        pairs(&self.nodes, &other.nodes).any(|(a, b)| {
            matches!((a, b), (Some(a), Some(b)) if a.member && b.member || a.children.intersects(&b.children))
        })
    }

    /// Returns whether every path of this set is in `other`, without copying.
    pub fn is_subset(&self, other: &FieldSet<'_>) -> bool {
        pairs(&self.nodes, &other.nodes).all(|pair| match pair {
            (Some(a), Some(b)) => (!a.member || b.member) && a.children.is_subset(&b.children),
            (mine, _) => mine.is_none(),
        })
    }

    /// Returns the members that have no member below them.
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Node {
            element: node.element.clone(),
            member: node.member && node.children.is_empty(),
            children: node.children.leaves(),
        });
        FieldSet { nodes: nodes.collect() }
    }

    /// Calls `visit` with every path. At each level, the paths that end at this level come first, in
    /// ascending order. The longer paths follow, also in ascending order.
    pub fn for_each<'s>(&'s self, visit: &mut impl FnMut(&[&'s Element<'t>])) {
        self.visit(&mut Vec::new(), visit);
    }

    fn visit<'s>(&'s self, prefix: &mut Vec<&'s Element<'t>>, visit: &mut impl FnMut(&[&'s Element<'t>])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            prefix.push(&node.element);
            visit(prefix);
            prefix.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            prefix.push(&node.element);
            node.children.visit(prefix, visit);
            prefix.pop();
        }
    }

    /// Converts the set to a set that owns its texts.
    pub fn into_owned(self) -> FieldSet<'static> {
        let nodes = self.nodes.into_iter().map(|node| Node {
            element: node.element.into_owned(),
            member: node.member,
            children: node.children.into_owned(),
        });
        FieldSet { nodes: nodes.collect() }
    }

    /// Calls `change` for each node that has a counterpart in `other`. The other nodes stay if `keeps_others`
    /// is true, and are dropped otherwise.
    fn combine(
        self,
        other: &FieldSet<'_>,
        keeps_others: bool,
        mut change: impl FnMut(&mut Node<'t>, &Node<'_>),
    ) -> Self {
        if other.is_empty() {
            return if keeps_others { self } else { FieldSet::new() };
        }
        let mut nodes = self.nodes;
        let mut others = other.nodes.iter().peekable();
        nodes.retain_mut(|node| {
            while others.next_if(|other| other.element < node.element).is_some() {}
            let Some(same) = others.next_if(|other| other.element == node.element) else {
                return keeps_others;
            };
            change(node, same);
            node.member || !node.children.is_empty()
        });
        FieldSet { nodes }
    }
}

/// Merges two sorted lists in ascending order: equal elements as a pair, other elements alone.
fn pairs<'s, 'a, 'b>(
    a: &'s [Node<'a>],
    b: &'s [Node<'b>],
) -> impl Iterator<Item = (Option<&'s Node<'a>>, Option<&'s Node<'b>>)> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.element.cmp(&b.element),
        };
        Some(match order {
            Ordering::Less => (a.next(), None),
            Ordering::Greater => (None, b.next()),
            Ordering::Equal => (a.next(), b.next()),
        })
    })
}

#[cfg(test)]
#[path = "set_test.rs"]
mod tests;
