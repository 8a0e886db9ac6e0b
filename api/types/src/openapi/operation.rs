//! The operations on each resource, independent of the dialect (docs/api/discovery.md#discovery-documents,
//! docs/api/subresources.md).
//!
//! ```text
//! <base>/                                        available resources
//! <base>/<plural>                                list (of all namespaces), or the collection when cluster-scoped
//! <base>/namespaces/{namespace}/<plural>         list, create, deletecollection
//! …/<plural>/{name}                              read, replace, patch, delete
//! …/<plural>/{name}/<subresource>[/{path}]       the verbs of the subresource
//! <base>/watch/…                                 the deprecated form of watches
//! ```
//!
//! For custom types, only the operations that the server supports are listed, with fewer parameters
//! (docs/api/openapi.md#published-custom-types).
//!
//! Operation ids follow the reference server's pattern `<action><Group><Version>[…][Namespaced]<Kind>[…]`,
//! from which client generators derive method names.

use super::definition::Definitions;
use super::dialect::Gvk;
use super::parameter::{self, Parameter};
use crate::schema::registry::{GroupVersion, Resource, Subresource};
use values::naming::Naming;

/// An HTTP method. The variants are in the order in which documents list the methods.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Method {
    Delete,
    Get,
    Head,
    Options,
    Patch,
    Post,
    Put,
}

impl Method {
    /// Returns the name of the method in a path item.
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Delete => "delete",
            Method::Get => "get",
            Method::Head => "head",
            Method::Options => "options",
            Method::Patch => "patch",
            Method::Post => "post",
            Method::Put => "put",
        }
    }
}

/// A path with its operations.
#[derive(Debug)]
pub(super) struct PathItem {
    pub path: String,
    pub parameters: Vec<Parameter>,
    /// Operations of the path, sorted by method.
    pub operations: Vec<(Method, Operation)>,
}

/// An operation on a path.
#[derive(Debug)]
pub(super) struct Operation {
    pub id: String,
    pub description: String,
    pub tag: String,
    /// `get`, `list`, `post` …; empty outside the resource API.
    pub action: &'static str,
    pub gvk: Option<Gvk>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// Responses by status code, ascending.
    pub responses: Vec<(u16, ResponseContent)>,
    pub deprecated: bool,
}

/// The request body of an operation.
#[derive(Debug)]
pub(super) struct Body {
    /// Name of the definition.
    pub schema: String,
    pub media: Media,
    pub required: bool,
}

/// The body of a response.
#[derive(Clone, Debug)]
pub(super) enum ResponseContent {
    /// The document does not describe the body.
    None,
    /// A plain string.
    Text(Media),
    /// A value of the named definition.
    Schema(String, Media),
}

/// The media types of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Media {
    /// JSON only.
    Json,
    /// JSON Web Key Sets.
    KeySet,
    /// The encodings of objects.
    Object,
    /// The encodings of objects of custom types.
    Custom,
    /// The encodings of objects, and their streams.
    List,
    /// The patch formats; `strategic` if the type supports strategic merge patches.
    Patch { strategic: bool },
    /// Any media type.
    Any,
    /// Plain text, or a string in an encoding of objects.
    Log,
}

/// Returns the paths of one version, sorted.
pub(super) fn version_paths<'a>(
    version: &'a GroupVersion,
    naming: &Naming,
    definitions: &mut Definitions<'a>,
) -> Vec<PathItem> {
    let names = Names::new(version, naming);
    let base = format!("/{}", version.path());
    let mut paths = Vec::new();
    if is_built_in(version) {
        paths.push(names.resources_path(&base, definitions));
    }
    for resource in &version.resources {
        let object = definitions.object(resource);
        let gvk = Gvk::of_objects(resource);
        let mut maker =
            Maker { names: &names, base: &base, resource, gvk, object, definitions, paths: &mut paths };
        maker.collection();
        maker.item();
        for subresource in &resource.subresources {
            maker.subresource(subresource);
        }
        maker.watches();
    }
    paths.retain(|item| !item.operations.is_empty());
    for item in &mut paths {
        item.operations.sort_by_key(|(method, _)| *method);
        share_parameters(item);
    }
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    paths
}

/// Returns whether the version has a built-in type. For other versions, only the paths of their resources are
/// listed.
pub(super) fn is_built_in(version: &GroupVersion) -> bool {
    version.resources.iter().any(|resource| !resource.is_custom())
}

/// Moves the parameters that all operations of a path have in common to the path, after the parameters of the
/// path.
fn share_parameters(item: &mut PathItem) {
    let Some(((_, first), others)) = item.operations.split_first() else { return };
    let takes =
        |operation: &Operation, name: &str| operation.parameters.iter().any(|other| other.name == name);
    let is_shared = |name: &str| others.iter().all(|(_, operation)| takes(operation, name));
    let shared: Vec<Parameter> =
        first.parameters.iter().filter(|parameter| is_shared(&parameter.name)).cloned().collect();
    for (_, operation) in &mut item.operations {
        operation.parameters.retain(|own| !shared.iter().any(|other| other.name == own.name));
    }
    item.parameters.extend(shared);
}

/// Returns a path outside the resource API with its single GET operation.
pub(super) fn plain_path(
    path: &str,
    id: &str,
    tag: &str,
    description: &str,
    content: ResponseContent,
) -> PathItem {
    let operation = Operation {
        id: id.to_owned(),
        description: description.to_owned(),
        tag: tag.to_owned(),
        action: "",
        gvk: None,
        parameters: Vec::new(),
        body: None,
        responses: vec![(200, content), (401, ResponseContent::None)],
        deprecated: false,
    };
    let operations = vec![(Method::Get, operation)];
    PathItem { path: path.to_owned(), parameters: Vec::new(), operations }
}

/// Returns the group as written in operation ids: `Apps`, `RbacAuthorization`, `Core`.
pub(super) fn group_id(group: &str, naming: &Naming) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    camel(group.strip_suffix(naming.group_suffix).unwrap_or(group))
}

/// Returns the group as written in tags: `apps`, `rbacAuthorization`, `core`.
pub(super) fn group_tag(group: &str, naming: &Naming) -> String {
    let mut tag = group_id(group, naming);
    if let Some(first) = tag.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    tag
}

/// Converts `rbac.authorization` to `RbacAuthorization`. Any character except letters and digits starts a new
/// word.
fn camel(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for c in text.chars() {
        if !c.is_ascii_alphanumeric() {
            start = true;
        } else if std::mem::take(&mut start) {
            out.push(c.to_ascii_uppercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// Parts of the operation names of one version.
struct Names {
    /// Group and version in operation ids, for example `AppsV1`.
    id: String,
    /// Tag of the operations, for example `apps_v1`.
    tag: String,
}

impl Names {
    fn new(version: &GroupVersion, naming: &Naming) -> Self {
        let id = format!("{}{}", group_id(&version.group, naming), camel(&version.version));
        Names { id, tag: format!("{}_{}", group_tag(&version.group, naming), version.version) }
    }

    fn resources_path(&self, base: &str, definitions: &mut Definitions) -> PathItem {
        let content = ResponseContent::Schema(definitions.meta("APIResourceList"), Media::Object);
        let id = format!("get{}APIResources", self.id);
        plain_path(&format!("{base}/"), &id, &self.tag, "get the resources of this API version", content)
    }
}

/// Builder of the paths of one resource.
struct Maker<'m, 'a> {
    names: &'m Names,
    base: &'m str,
    resource: &'a Resource,
    gvk: Gvk,
    /// Definition name of the objects.
    object: String,
    definitions: &'m mut Definitions<'a>,
    paths: &'m mut Vec<PathItem>,
}

impl<'a> Maker<'_, 'a> {
    fn is_custom(&self) -> bool {
        self.resource.is_custom()
    }

    /// Returns the media types of the objects.
    fn media(&self) -> Media {
        if self.is_custom() { Media::Custom } else { Media::Object }
    }

    fn scope(&self) -> &'static str {
        if self.resource.namespaced() { "Namespaced" } else { "" }
    }

    fn collection_path(&self) -> String {
        let namespaces = if self.resource.namespaced() { "/namespaces/{namespace}" } else { "" };
        format!("{}{namespaces}/{}", self.base, self.resource.table.plural)
    }

    fn path_parameters(&self, name: bool) -> Vec<Parameter> {
        let mut parameters = Vec::with_capacity(3);
        if name {
            parameters.push(parameter::path("name", format!("Name of the {}.", self.resource.table.kind)));
        }
        if self.resource.namespaced() {
            parameters.push(parameter::path("namespace", "Namespace that contains the object."));
        }
        parameters
    }

    fn push(&mut self, path: String, mut parameters: Vec<Parameter>, operations: Vec<(Method, Operation)>) {
        parameters.push(parameter::PRETTY.clone());
        self.paths.push(PathItem { path, parameters, operations });
    }

    /// Returns an operation with the given id, without body, parameters and content.
    fn operation(&self, action: &'static str, gvk: &Gvk, id: String, description: String) -> Operation {
        Operation {
            id,
            description,
            tag: self.names.tag.clone(),
            action,
            gvk: Some(gvk.clone()),
            parameters: Vec::new(),
            body: None,
            responses: vec![(401, ResponseContent::None)],
            deprecated: false,
        }
    }

    fn collection(&mut self) {
        let (resource, scope) = (self.resource, self.scope());
        let (version, kind) = (&self.names.id, &resource.table.kind);
        let mut operations = Vec::new();
        let list = if resource.can("list") { self.definitions.list(resource) } else { None };
        if let Some(list) = &list {
            let id = format!("list{version}{scope}{kind}");
            operations.push((Method::Get, self.list(id, list)));
        }
        if resource.can("create") {
            let id = format!("create{version}{scope}{kind}");
            let mut create = self.operation("post", &self.gvk, id, format!("create {}", article(kind)));
            self.write(&mut create, &self.object, &[200, 201, 202]);
            operations.push((Method::Post, create));
        }
        if resource.can("deletecollection") {
            let id = format!("delete{version}Collection{scope}{kind}");
            let description = format!("delete all objects of kind {kind} that the request selects");
            let mut delete = self.operation("deletecollection", &self.gvk, id, description);
            if self.is_custom() {
                delete.parameters = cloned(parameter::LIST);
            } else {
                delete.parameters = cloned(parameter::DELETE_COLLECTION);
                delete.body = Some(self.delete_options());
            }
            let status = self.definitions.meta("Status");
            delete.responses.insert(0, (200, ResponseContent::Schema(status, self.media())));
            operations.push((Method::Delete, delete));
        }
        self.push(self.collection_path(), self.path_parameters(false), operations);
        if let (true, Some(list)) = (resource.namespaced(), &list) {
            let list = self.list(format!("list{}{kind}ForAllNamespaces", self.names.id), list);
            self.push(
                format!("{}/{}", self.base, resource.table.plural),
                Vec::new(),
                vec![(Method::Get, list)],
            );
        }
    }

    fn list(&self, id: String, list: &str) -> Operation {
        let description = format!("list or watch objects of kind {}", self.resource.table.kind);
        let mut operation = self.operation("list", &self.gvk, id, description);
        operation.parameters = cloned(parameter::LIST);
        let media = if self.is_custom() { Media::Custom } else { Media::List };
        operation.responses.insert(0, (200, ResponseContent::Schema(list.to_owned(), media)));
        operation
    }

    fn item(&mut self) {
        let (resource, gvk, object) = (self.resource, self.gvk.clone(), self.object.clone());
        let suffix = format!("{}{}{}", self.names.id, self.scope(), resource.table.kind);
        let kind = resource.table.kind.to_string();
        let mut operations = self.item_operations(&gvk, &suffix, &kind, &object, |verb| resource.can(verb));
        if resource.can("delete") {
            let description = format!("delete {}", article(&kind));
            let mut delete = self.operation("delete", &gvk, format!("delete{suffix}"), description);
            delete.parameters = cloned(parameter::DELETE);
            delete.body = Some(self.delete_options());
            let answer =
                if resource.table.delete_returns_object { object } else { self.definitions.meta("Status") };
            let content = ResponseContent::Schema(answer, self.media());
            delete.responses.splice(0..0, [(200, content.clone()), (202, content)]);
            operations.push((Method::Delete, delete));
        }
        self.push(format!("{}/{{name}}", self.collection_path()), self.path_parameters(true), operations);
    }

    /// Returns the operations among read, replace and patch that `can` allows.
    fn item_operations(
        &mut self,
        gvk: &Gvk,
        suffix: &str,
        what: &str,
        schema: &str,
        can: impl Fn(&str) -> bool,
    ) -> Vec<(Method, Operation)> {
        let mut operations = Vec::with_capacity(4);
        if can("get") {
            let (id, description) = (format!("read{suffix}"), format!("read the specified {what}"));
            let mut read = self.operation("get", gvk, id, description);
            read.responses.insert(0, (200, ResponseContent::Schema(schema.to_owned(), self.media())));
            if self.is_custom() {
                read.parameters = cloned(parameter::READ);
            }
            operations.push((Method::Get, read));
        }
        if can("update") {
            let (id, description) = (format!("replace{suffix}"), format!("replace the specified {what}"));
            let mut replace = self.operation("put", gvk, id, description);
            self.write(&mut replace, schema, &[200, 201]);
            operations.push((Method::Put, replace));
        }
        if can("patch") {
            let (id, description) =
                (format!("patch{suffix}"), format!("change parts of the specified {what}"));
            let mut patch = self.operation("patch", gvk, id, description);
            if self.is_custom() {
                self.write(&mut patch, schema, &[200]);
            } else {
                self.write(&mut patch, schema, &[200, 201]);
                patch.parameters = cloned(parameter::PATCH);
            }
            let strategic = !self.is_custom();
            let schema = self.definitions.patch();
            patch.body = Some(Body { schema, media: Media::Patch { strategic }, required: true });
            operations.push((Method::Patch, patch));
        }
        operations
    }

    /// Changes `operation` so that it accepts and returns `schema`.
    fn write(&self, operation: &mut Operation, schema: &str, codes: &[u16]) {
        operation.parameters = cloned(parameter::WRITE);
        operation.body = Some(Body { schema: schema.to_owned(), media: self.media(), required: true });
        let content = ResponseContent::Schema(schema.to_owned(), self.media());
        operation.responses.splice(0..0, codes.iter().map(|code| (*code, content.clone())));
    }

    fn delete_options(&mut self) -> Body {
        Body { schema: self.definitions.meta("DeleteOptions"), media: self.media(), required: false }
    }

    fn subresource(&mut self, subresource: &'a Subresource) {
        let resource = self.resource;
        let path = format!("{}/{{name}}/{}", self.collection_path(), subresource.table.name);
        let mut suffix = format!("{}{}{}", self.names.id, self.scope(), resource.table.kind);
        suffix.push_str(&camel(subresource.table.name));
        let what = format!("{} of the specified {}", subresource.table.name, resource.table.kind);
        if subresource.table.connect {
            return self.connect(subresource, path);
        }
        let message = &subresource.table.message;
        // A subresource of a custom type that is not a Scale has the body of its parent.
        let schema = if message.custom { self.object.clone() } else { self.definitions.message(message) };
        // A scale of a custom type is listed under the kind of its parent.
        let gvk = &if self.is_custom() { self.gvk.clone() } else { Gvk::of_body(subresource) };
        let mut operations = self.item_operations(gvk, &suffix, &what, &schema, |verb| subresource.can(verb));
        if subresource.can("create") {
            let (id, description) = (format!("create{suffix}"), format!("create {what}"));
            let mut create = self.operation("post", gvk, id, description);
            self.write(&mut create, &schema, &[200, 201, 202]);
            operations.push((Method::Post, create));
        }
        // `log` is the only subresource whose GET streams text instead of returning an object.
        if subresource.table.name == "log" {
            let parent = &resource.table.message;
            let options = format!("{}.{}LogOptions", parent.package, parent.name);
            for (_, read) in operations.iter_mut().filter(|(method, _)| *method == Method::Get) {
                read.responses[0].1 = ResponseContent::Text(Media::Log);
                read.parameters = self
                    .definitions
                    .options(&options)
                    .map_or(Vec::new(), |options| parameter::from_message(&options));
            }
        }
        self.push(path, self.path_parameters(true), operations);
    }

    /// Adds a connection: one operation for each method, with and without a trailing path if the subresource
    /// is a proxy.
    fn connect(&mut self, subresource: &Subresource, path: String) {
        let (query, gvk) = (parameter::from_message(&subresource.table.message), Gvk::of_body(subresource));
        let mut methods: Vec<Method> = [
            ("get", Method::Get),
            ("create", Method::Post),
            ("update", Method::Put),
            ("patch", Method::Patch),
            ("delete", Method::Delete),
        ]
        .into_iter()
        .filter(|(verb, _)| subresource.can(verb))
        .map(|(_, method)| method)
        .collect();
        let proxies = subresource.can("delete");
        if proxies {
            methods.extend([Method::Head, Method::Options]);
        }
        let kind = &self.resource.table.kind;
        let suffix = format!("{}{kind}{}", self.scope(), camel(subresource.table.name));
        for (behind, id) in [("", ""), ("/{path}", "WithPath")] {
            if !behind.is_empty() && !proxies {
                continue;
            }
            let operations = methods
                .iter()
                .map(|method| {
                    let verb = camel(method.name());
                    let mut operation = self.operation(
                        "connect",
                        &gvk,
                        format!("connect{}{verb}{suffix}{id}", self.names.id),
                        format!(
                            "connect {} requests to {} of {kind}",
                            verb.to_uppercase(),
                            subresource.table.name
                        ),
                    );
                    operation.responses.insert(0, (200, ResponseContent::Text(Media::Any)));
                    (*method, operation)
                })
                .collect();
            let mut parameters = self.path_parameters(true);
            // A query parameter may have the same name as the path parameter; only the pair (name, location)
            // must be unique.
            parameters.extend(query.iter().cloned());
            if !behind.is_empty() {
                parameters.push(parameter::path("path", "Path of the request to the proxied target."));
            }
            self.paths.push(PathItem { path: format!("{path}{behind}"), parameters, operations });
        }
    }

    /// Adds the paths below `/watch/`. These paths exist for old clients that do not use the `watch`
    /// parameter.
    fn watches(&mut self) {
        let resource = self.resource;
        if self.is_custom() || !resource.can("list") || !resource.can("watch") {
            return;
        }
        let (version, scope, kind, plural) =
            (&self.names.id, self.scope(), &resource.table.kind, &resource.table.plural);
        let base = format!("{}/watch", self.base);
        let mut watches = Vec::with_capacity(3);
        if resource.namespaced() {
            let collection = format!("{base}/namespaces/{{namespace}}/{plural}");
            watches.push((
                format!("{base}/{plural}"),
                format!("watch{version}{kind}ListForAllNamespaces"),
                "watchlist",
            ));
            watches.push((format!("{collection}/{{name}}"), format!("watch{version}{scope}{kind}"), "watch"));
            watches.push((collection, format!("watch{version}{scope}{kind}List"), "watchlist"));
        } else {
            watches.push((format!("{base}/{plural}"), format!("watch{version}{kind}List"), "watchlist"));
            watches.push((format!("{base}/{plural}/{{name}}"), format!("watch{version}{kind}"), "watch"));
        }
        for (path, id, action) in watches {
            let description =
                format!("watch {kind}; deprecated: use a list with the `watch` parameter instead");
            let mut watch = self.operation(action, &self.gvk, id, description);
            watch.deprecated = true;
            let event = self.definitions.meta("WatchEvent");
            watch.responses.insert(0, (200, ResponseContent::Schema(event, Media::List)));
            let mut parameters: Vec<Parameter> = Vec::new();
            if path.contains("{name}") {
                parameters.extend(self.path_parameters(true));
            } else if path.contains("{namespace}") {
                parameters.extend(self.path_parameters(false));
            }
            parameters.extend(cloned(parameter::LIST));
            self.push(path, parameters, vec![(Method::Get, watch)]);
        }
    }
}

fn cloned(parameters: &[&Parameter]) -> Vec<Parameter> {
    parameters.iter().map(|parameter| (*parameter).clone()).collect()
}

fn article(kind: &str) -> String {
    let an = kind.starts_with(['A', 'E', 'I', 'O', 'U']);
    format!("{} {kind}", if an { "an" } else { "a" })
}
