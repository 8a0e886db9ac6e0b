//! Handles on the parts of a type: static for built-in types, owned for types made at run time.
//!
//! All three are made without work in constants, and looking through them costs no more than through a reference. A part
//! whose making is put off is made by the first look through its handle, on the thread of the one who looks.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

/// A name or another text of a type; also what the keys of objects are, so that a clone of a static name costs nothing.
pub type Text = Cow<'static, str>;

/// Parts of a type that stand in order.
pub type Slice<T> = Cow<'static, [T]>;

/// A part of a type that is shared: static, or counted and dropped with the last type that has it.
#[derive(Debug)]
pub enum Ref<T: 'static> {
    /// A part of a built-in type.
    Static(&'static T),
    /// A part of a type made at run time.
    Shared(Arc<T>),
    /// A part of a type made at run time, which is made when it is first looked at.
    Later(Arc<LazyLock<Ref<T>, Make<T>>>),
}

/// How a part is made, once.
type Make<T> = Box<dyn FnOnce() -> Ref<T> + Send + Sync>;

impl<T> Ref<T> {
    /// A part made at run time.
    pub fn new(part: T) -> Self {
        Ref::Shared(Arc::new(part))
    }

    /// A part that is made by the first look at it. `make` must not panic: every look would, from then on.
    pub fn later(make: impl FnOnce() -> Ref<T> + Send + Sync + 'static) -> Self {
        Ref::Later(Arc::new(LazyLock::new(Box::new(make))))
    }

    /// Whether both are one and the same part.
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

/// Room in a type for what one module above works out of it, once.
#[derive(Default)]
pub struct Slot(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Slot {
    /// Without anything in it yet.
    pub const fn new() -> Self {
        Slot(OnceLock::new())
    }

    /// With this in it.
    pub fn of<T: Any + Send + Sync>(made: Arc<T>) -> Self {
        Slot(OnceLock::from(made as Arc<dyn Any + Send + Sync>))
    }

    /// Whether something is in it.
    pub fn is_filled(&self) -> bool {
        self.0.get().is_some()
    }

    /// What is in it, if it is of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.get().and_then(|made| made.downcast_ref())
    }

    /// What is in it, made at the first call. There is one module that asks, so that it is always of one type.
    ///
    /// # Errors
    /// Those of `make`; the slot remains empty.
    pub fn get_or_try<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(Ok(made)) = self.0.get().map(|made| Arc::clone(made).downcast()) {
            return Ok(made);
        }
        let made = Arc::new(make()?);
        let _ = self.0.set(Arc::clone(&made) as Arc<dyn Any + Send + Sync>); // or another caller's, which is the same
        Ok(made)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Slot(made)" } else { "Slot" })
    }
}
