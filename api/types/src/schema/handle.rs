//! Handles to the parts of a type: static for built-in types, owned for types made at run time.
//!
//! [`Text`], [`Slice`] and [`Ref`] can be created in constants. Access through a handle costs no more than
//! access through a reference. A part that is created lazily is created at the first access, on the thread
//! that accesses it.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

/// A name or another text of a type. The keys of objects have the same Rust type, so a clone of a static name
/// costs nothing.
pub type Text = Cow<'static, str>;

/// An ordered list of parts of a type.
pub type Slice<T> = Cow<'static, [T]>;

/// A shared part of a type: static, or reference counted and dropped with the last type that contains it.
#[derive(Debug)]
pub enum Ref<T: 'static> {
    /// A part of a built-in type.
    Static(&'static T),
    /// A part of a type made at run time.
    Shared(Arc<T>),
    /// A part of a type made at run time that is created at the first access.
    Later(Arc<LazyLock<Ref<T>, Make<T>>>),
}

/// The function that creates a lazy part.
type Make<T> = Box<dyn FnOnce() -> Ref<T> + Send + Sync>;

impl<T> Ref<T> {
    /// Creates a part at run time.
    pub fn new(part: T) -> Self {
        Ref::Shared(Arc::new(part))
    }

    /// Creates a part that `make` creates at the first access. `make` must not panic, because every later
    /// access would panic too.
    pub fn lazy(make: impl FnOnce() -> Ref<T> + Send + Sync + 'static) -> Self {
        Ref::Later(Arc::new(LazyLock::new(Box::new(make))))
    }

    /// Returns whether the handle refers to the part `other` itself.
    pub fn is(&self, other: &T) -> bool {
        std::ptr::eq(&**self, other)
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        match self {
            Ref::Static(part) => Ref::Static(part),
            Ref::Shared(part) => Ref::Shared(Arc::clone(part)),
            Ref::Later(part) => Ref::Later(Arc::clone(part)),
        }
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Ref::Static(part) => part,
            Ref::Shared(part) => part,
            Ref::Later(part) => part,
        }
    }
}

impl<T> From<&'static T> for Ref<T> {
    fn from(part: &'static T) -> Self {
        Ref::Static(part)
    }
}

/// A slot in a type for a value that a higher module derives from the type once.
#[derive(Default)]
pub struct Slot(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Slot {
    /// Creates an empty slot.
    pub const fn new() -> Self {
        Slot(OnceLock::new())
    }

    /// Creates a slot that contains `value`.
    pub fn with_value<T: Any + Send + Sync>(value: Arc<T>) -> Self {
        Slot(OnceLock::from(value as Arc<dyn Any + Send + Sync>))
    }

    /// Returns whether the slot contains a value.
    pub fn is_filled(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns the value, if it is of type `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get().and_then(|value| value.downcast_ref())
    }

    /// Returns the value, which is created by the first call. Only one module uses each slot, so the value
    /// always has the same type.
    ///
    /// # Errors
    /// Errors of `make`. The slot then remains empty.
    pub fn get_or_try<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(Ok(value)) = self.0.get().map(|value| Arc::clone(value).downcast()) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        // The value of another caller is equal.
        let _ = self.0.set(Arc::clone(&value) as Arc<dyn Any + Send + Sync>);
        Ok(value)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Slot(made)" } else { "Slot" })
    }
}
