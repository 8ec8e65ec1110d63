//! Attributes: values that a program caches on communicators, datatypes and windows under keys.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};

use crate::constants::keyval::*;
use crate::error::*;
use crate::{Mpi, fail};

/// What carries attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Comm,
    Datatype,
    Win,
}

impl Carrier {
    fn name(self) -> &'static str {
        match self {
            Carrier::Comm => "communicators",
            Carrier::Datatype => "datatypes",
            Carrier::Win => "windows",
        }
    }
}

/// Access to the attributes in the state of an object, under the state's lock.
pub struct Access<'a, S> {
    state: MutexGuard<'a, S>,
    get: fn(&S) -> &Attributes,
    get_mut: fn(&mut S) -> &mut Attributes,
}

impl<'a, S> Access<'a, S> {
    pub fn new(
        state: MutexGuard<'a, S>,
        get: fn(&S) -> &Attributes,
        get_mut: fn(&mut S) -> &mut Attributes,
    ) -> Self {
        Access {
            state,
            get,
            get_mut,
        }
    }
}

impl<S> Deref for Access<'_, S> {
    type Target = Attributes;
    fn deref(&self) -> &Attributes {
        (self.get)(&self.state)
    }
}

impl<S> DerefMut for Access<'_, S> {
    fn deref_mut(&mut self) -> &mut Attributes {
        (self.get_mut)(&mut self.state)
    }
}

/// The functions of a key. They are called with no lock held.
pub trait Callbacks: Send + Sync {
    /// Called when the object with handle `old` is duplicated: the value for the duplicate, `None`
    /// for no attribute, or an error code of the program.
    fn copy(&self, old: u32, key: i32, value: usize) -> std::result::Result<Option<usize>, i32>;
    /// Called when an attribute is deleted, also by being replaced or with its object; may refuse
    /// with an error code.
    fn delete(&self, object: u32, key: i32, value: usize) -> std::result::Result<(), i32>;
}

/// A key: for what, with which functions. It lives until it is freed and no attribute uses it;
/// attributes hold it by `Arc`.
pub(crate) struct Keyval {
    pub carrier: Carrier,
    pub callbacks: Arc<dyn Callbacks>,
    /// Freed by the program.
    pub freed: bool,
}

/// The attributes of one object in the order in which they were set.
#[derive(Default)]
pub struct Attributes(Vec<Attribute>);

#[derive(Clone)]
struct Attribute {
    key: i32,
    value: usize,
    callbacks: Arc<dyn Callbacks>,
}

/// Keys of the program are above those of the standard.
const FIRST_KEY: i32 = 0x1000;

impl Mpi {
    /// `MPI_Comm_create_keyval` and `MPI_Type_create_keyval`.
    #[must_use]
    pub fn keyval_create(&self, carrier: Carrier, callbacks: Arc<dyn Callbacks>) -> i32 {
        let mut objects = self.objects();
        let key = FIRST_KEY + objects.next_key;
        objects.next_key += 1;
        objects.keyvals.insert(
            key,
            Keyval {
                carrier,
                callbacks,
                freed: false,
            },
        );
        key
    }

    /// `MPI_Comm_free_keyval` and `MPI_Type_free_keyval`; attributes under the key stay.
    ///
    /// # Errors
    /// When there is no such key, or it is one of the standard's.
    pub fn keyval_free(&self, carrier: Carrier, key: i32) -> Result<()> {
        self.callbacks(carrier, key)?;
        // As long as attributes use it, the key stays valid for code that kept its number.
        let mut objects = self.objects();
        if let Some(keyval) = objects.keyvals.get_mut(&key) {
            keyval.freed = true;
        }
        objects
            .keyvals
            .retain(|_, k| !k.freed || Arc::strong_count(&k.callbacks) > 1);
        Ok(())
    }

    fn callbacks(&self, carrier: Carrier, key: i32) -> Result<Arc<dyn Callbacks>> {
        if is_predefined(key) {
            fail!(
                MPI_ERR_KEYVAL,
                "key {key} is predefined; it can only be read"
            );
        }
        match self.objects().keyvals.get(&key) {
            Some(keyval) if keyval.freed && Arc::strong_count(&keyval.callbacks) == 1 => {
                fail!(MPI_ERR_KEYVAL, "there is no key {key}; was it freed?")
            }
            Some(keyval) if keyval.carrier == carrier => Ok(keyval.callbacks.clone()),
            Some(keyval) => fail!(
                MPI_ERR_KEYVAL,
                "key {key} is for {}, not for {}",
                keyval.carrier.name(),
                carrier.name()
            ),
            None if key == MPI_KEYVAL_INVALID => {
                fail!(MPI_ERR_KEYVAL, "the key is MPI_KEYVAL_INVALID")
            }
            None => fail!(MPI_ERR_KEYVAL, "there is no key {key}; was it freed?"),
        }
    }

    /// `MPI_Comm_set_attr`: deletes the old value first, if there is one. `access` finds the
    /// attributes of `object`.
    ///
    /// # Errors
    /// When the key is invalid, or its delete function refuses.
    pub fn attribute_set<'a, A>(
        &self,
        carrier: Carrier,
        object: u32,
        key: i32,
        value: usize,
        access: impl Fn() -> A,
    ) -> Result<()>
    where
        A: std::ops::DerefMut<Target = Attributes> + 'a,
    {
        let (callbacks, _) = self.attribute_drop(carrier, object, key, access().get(key))?;
        let mut attributes = access();
        let attribute = Attribute {
            key,
            value,
            callbacks,
        };
        match attributes.0.iter_mut().find(|a| a.key == key) {
            Some(place) => *place = attribute,
            None => attributes.0.push(attribute),
        }
        Ok(())
    }

    /// `MPI_Comm_delete_attr`.
    ///
    /// # Errors
    /// When the key is invalid, there is no such attribute, or the delete function refuses.
    pub fn attribute_delete<'a, A>(
        &self,
        carrier: Carrier,
        object: u32,
        key: i32,
        access: impl Fn() -> A,
    ) -> Result<()>
    where
        A: std::ops::DerefMut<Target = Attributes> + 'a,
    {
        let old = access().get(key);
        if self.attribute_drop(carrier, object, key, old)?.1.is_none() {
            fail!(MPI_ERR_ATTRIBUTE, "there is no attribute under key {key}");
        }
        access().0.retain(|a| a.key != key);
        Ok(())
    }

    /// Calls the delete function of a key for the value that is there, if one is. The key's
    /// functions, and that value.
    fn attribute_drop(
        &self,
        carrier: Carrier,
        object: u32,
        key: i32,
        old: Option<usize>,
    ) -> Result<(Arc<dyn Callbacks>, Option<usize>)> {
        let callbacks = self.callbacks(carrier, key)?;
        if let Some(old) = old {
            callbacks
                .delete(object, key, old)
                .map_err(|code| refused(key, code))?;
        }
        Ok((callbacks, old))
    }

    /// Returns the value under a key of the program, after the key has been checked.
    ///
    /// # Errors
    /// When the key is invalid.
    pub fn attribute_get(
        &self,
        carrier: Carrier,
        key: i32,
        attributes: &Attributes,
    ) -> Result<Option<usize>> {
        // An attribute may outlive its key's freeing, but the key itself is invalid from then on.
        self.callbacks(carrier, key)?;
        Ok(attributes.get(key))
    }
}

/// The class of an error about an attribute that is not there.
const MPI_ERR_ATTRIBUTE: i32 = MPI_ERR_OTHER;

impl Attributes {
    /// Returns the value under a key.
    #[must_use]
    pub fn get(&self, key: i32) -> Option<usize> {
        self.0.iter().find(|a| a.key == key).map(|a| a.value)
    }

    /// Copies for a duplicate of `object`, as the copy functions decide.
    ///
    /// # Errors
    /// When a copy function fails; its code is the error's.
    pub fn copy_for(old: Attributes, object: u32) -> Result<Attributes> {
        let mut copies = Attributes::default();
        for attribute in old.0 {
            let copied = attribute
                .callbacks
                .copy(object, attribute.key, attribute.value)
                .map_err(|code| refused(attribute.key, code))?;
            if let Some(value) = copied {
                copies.0.push(Attribute { value, ..attribute });
            }
        }
        Ok(copies)
    }

    /// Returns a snapshot, so that functions can be called with no lock held.
    #[must_use]
    pub fn snapshot(&self) -> Attributes {
        Attributes(self.0.clone())
    }

    /// Calls the delete functions, the last attribute first, as the standard demands for
    /// `MPI_COMM_SELF`. Stops at a function that refuses and returns the attributes that remain.
    ///
    /// # Errors
    /// When a delete function refuses; its code is the error's.
    pub fn delete_all(mut self, object: u32) -> std::result::Result<(), (Attributes, Error)> {
        while let Some(attribute) = self.0.last() {
            let (key, value) = (attribute.key, attribute.value);
            if let Err(code) = attribute.callbacks.delete(object, key, value) {
                return Err((self, refused(key, code)));
            }
            self.0.pop();
        }
        Ok(())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn refused(key: i32, code: i32) -> Error {
    Error::new(
        code,
        format!("the program's function for the attribute under key {key} returned {code}"),
    )
}

fn is_predefined(key: i32) -> bool {
    (MPI_TAG_UB..=MPI_UNIVERSE_SIZE).contains(&key) || (MPI_WIN_BASE..=MPI_WIN_MODEL).contains(&key)
}
