//! Datatypes with what a handle adds to them: a name and attributes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use margay_core_datatype::{Arguments, Basic, Bound, Combiner, Datatype, TypeError};

use crate::attribute::{Access, Attributes, Carrier};
use crate::constants::combiner::*;
use crate::constants::datatype::MPI_DATATYPE_NULL;
use crate::constants::removed::*;
use crate::constants::typeclass::*;
use crate::error::*;
use crate::handle::{Kind, is_of};
use crate::{Mpi, fail};

/// What a datatype handle stands for.
pub struct Type {
    /// The datatype itself.
    pub datatype: Arc<Datatype>,
    handle: AtomicU32,
    /// Of a type made by `MPI_Type_create_f90_*`: which one and its arguments.
    f90: Option<(i32, Vec<i32>)>,
    /// Reductions under way whose function of the program gets to see the handle.
    pub(crate) users: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    name: Option<String>,
    attributes: Attributes,
}

/// The handles of the standard's datatypes are below this; see [`basic_size`].
const BASICS: u32 = 0x200;

/// Bytes of an element for each predefined type whose elements follow each other without holes, 0
/// for every other number: index by handle - 0x200.
static DENSE_SIZES: [u8; 256] = {
    let mut sizes = [0; 256];
    let mut i = 0;
    while i < Basic::ALL.len() {
        let basic = Basic::ALL[i];
        if basic.pair().is_none() {
            sizes[(basic.handle() - 0x200) as usize] = basic.size() as u8;
        }
        i += 1;
    }
    sizes
};

/// Returns the bytes of an element of the predefined type with this handle, if its elements follow
/// each other without holes.
#[inline]
#[must_use]
pub fn basic_size(handle: u32) -> Option<u64> {
    match DENSE_SIZES.get(handle.wrapping_sub(BASICS) as usize) {
        Some(&size) if size > 0 => Some(u64::from(size)),
        _ => None,
    }
}

impl Type {
    fn new(datatype: Arc<Datatype>, f90: Option<(i32, Vec<i32>)>) -> Type {
        Type {
            datatype,
            handle: AtomicU32::new(MPI_DATATYPE_NULL),
            f90,
            users: AtomicU32::new(0),
            state: Mutex::default(),
        }
    }

    /// Returns all predefined types, at index handle - 0x200.
    pub(crate) fn predefined() -> Box<[Option<Arc<Type>>]> {
        let mut all: Box<[Option<Arc<Type>>]> = vec![None; 256].into();
        for &basic in Basic::ALL {
            let entry = Type::new(Arc::new(Datatype::basic(basic)), None);
            entry.handle.store(basic.handle() as u32, Ordering::Relaxed);
            all[(basic.handle() as u32 - BASICS) as usize] = Some(Arc::new(entry));
        }
        all
    }

    /// `MPI_LB` and `MPI_UB` of MPI-1.
    pub(crate) fn markers() -> [Arc<Type>; 2] {
        [(Bound::Lower, MPI_LB), (Bound::Upper, MPI_UB)].map(|(bound, handle)| {
            let entry = Type::new(Arc::new(Datatype::marker(bound)), None);
            entry.handle.store(handle, Ordering::Relaxed);
            Arc::new(entry)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no callback runs under this lock")
    }

    /// Access to the attributes.
    pub fn attributes(&self) -> impl std::ops::DerefMut<Target = Attributes> + '_ {
        Access::new(self.state(), |s| &s.attributes, |s| &mut s.attributes)
    }

    /// Returns the handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    /// `MPI_Type_get_name`: predefined types have the name of their constant.
    #[must_use]
    pub fn name(&self) -> String {
        let given = self.state().name.clone();
        given.unwrap_or_else(|| match self.datatype.combiner() {
            _ if self.f90.is_some() || self.is_user() => String::new(),
            Combiner::Named(basic) => basic.name().into(),
            Combiner::Marker(Bound::Lower) => "MPI_LB".into(),
            Combiner::Marker(Bound::Upper) => "MPI_UB".into(),
            _ => String::new(),
        })
    }

    /// `MPI_Type_set_name`
    pub fn set_name(&self, name: String) {
        self.state().name = Some(name);
    }

    /// Whether the program made it.
    #[must_use]
    pub fn is_user(&self) -> bool {
        is_of(self.handle(), Kind::Datatype)
    }

    /// For messages: its name, or how it was made.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = self.name();
        if name.is_empty() {
            format!("a datatype of {} bytes", self.datatype.size())
        } else {
            format!("datatype '{name}'")
        }
    }

    /// Returns the bytes that `count` basic elements take, the reverse of `MPI_Get_elements`;
    /// `None` if there is no such number.
    #[must_use]
    pub fn bytes_of_elements(&self, count: u64) -> Option<u64> {
        let each = self.datatype.elements();
        if each == 0 {
            return (count == 0).then_some(0);
        }
        let whole = (count / each).checked_mul(self.datatype.size())?;
        let rest = count % each;
        let part = (0..self.datatype.size())
            .find(|&bytes| self.datatype.get_elements(bytes) == Some(rest))?;
        whole.checked_add(part)
    }

    /// Returns the combiner's value, and for Fortran 90 types their integer arguments.
    #[must_use]
    pub fn combiner(&self) -> (i32, &[i32]) {
        match &self.f90 {
            Some((combiner, arguments)) => (*combiner, arguments),
            None if self.datatype.arguments() == Arguments::Fortran => {
                let combiner = match self.datatype.combiner() {
                    Combiner::Hvector { .. } => MPI_COMBINER_HVECTOR_INTEGER,
                    Combiner::Hindexed { .. } => MPI_COMBINER_HINDEXED_INTEGER,
                    Combiner::Struct { .. } => MPI_COMBINER_STRUCT_INTEGER,
                    other => other.code(),
                };
                (combiner, &[])
            }
            None => (self.datatype.combiner().code(), &[]),
        }
    }
}

impl From<TypeError> for Error {
    fn from(error: TypeError) -> Error {
        let class = match error {
            TypeError::NegativeCount { .. } => MPI_ERR_COUNT,
            _ => MPI_ERR_ARG,
        };
        Error::new(class, error.to_string())
    }
}

impl Mpi {
    /// Returns the type of a handle.
    ///
    /// # Errors
    /// When there is none.
    pub fn datatype(&self, handle: u32) -> Result<Arc<Type>> {
        if let Some(basic) = self.basics.get(handle.wrapping_sub(BASICS) as usize) {
            return match basic {
                Some(basic) => Ok(basic.clone()),
                None if handle == MPI_DATATYPE_NULL => {
                    fail!(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL")
                }
                None => fail!(MPI_ERR_TYPE, "{handle:#x} is not a datatype"),
            };
        }
        match self.objects().datatypes.get(handle) {
            Some(datatype) => Ok(datatype.clone()),
            None if handle == MPI_LB => Ok(self.markers[0].clone()),
            None if handle == MPI_UB => Ok(self.markers[1].clone()),
            None => fail!(MPI_ERR_TYPE, "{handle:#x} is not a datatype; was it freed?"),
        }
    }

    /// Returns the datatype of a handle for communication.
    ///
    /// # Errors
    /// When there is none or it is not committed.
    pub fn committed(&self, handle: u32) -> Result<Arc<Datatype>> {
        let entry = self.datatype(handle)?;
        if !entry.datatype.is_committed() {
            fail!(
                MPI_ERR_TYPE,
                "{} is not committed; call MPI_Type_commit first",
                entry.describe()
            );
        }
        Ok(entry.datatype.clone())
    }

    /// Gives a datatype a handle.
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn datatype_add(&self, datatype: Datatype) -> Result<u32> {
        self.datatype_insert(Type::new(Arc::new(datatype), None))
    }

    fn datatype_insert(&self, entry: Type) -> Result<u32> {
        let entry = Arc::new(entry);
        let Some(handle) = self.objects().datatypes.insert(entry.clone()) else {
            fail!(
                MPI_ERR_OTHER,
                "a million datatypes exist; free some with MPI_Type_free"
            );
        };
        entry.handle.store(handle, Ordering::Relaxed);
        Ok(handle)
    }

    /// Returns a handle for a datatype from another one's contents: the standard's if it is
    /// predefined, else a new one.
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn datatype_handle(&self, datatype: &Arc<Datatype>) -> Result<u32> {
        match datatype.combiner() {
            Combiner::Named(basic) => Ok(basic.handle() as u32),
            Combiner::Marker(Bound::Lower) => Ok(MPI_LB),
            Combiner::Marker(Bound::Upper) => Ok(MPI_UB),
            _ => self.datatype_insert(Type::new(datatype.clone(), None)),
        }
    }

    /// `MPI_Type_dup`, with the attributes.
    ///
    /// # Errors
    /// When the handle is invalid or a copy function fails.
    pub fn datatype_dup(&self, handle: u32) -> Result<u32> {
        let old = self.datatype(handle)?;
        let snapshot = old.attributes().snapshot();
        let attributes = Attributes::copy_for(snapshot, handle)?;
        let new = Type::new(Arc::new(Datatype::dup(&old.datatype)), None);
        *new.attributes() = attributes;
        self.datatype_insert(new)
    }

    /// `MPI_Type_free`: operations under way keep the datatype.
    ///
    /// # Errors
    /// When the handle is invalid or predefined, or a delete function refuses.
    pub fn datatype_free(&self, handle: u32) -> Result<()> {
        let entry = self.datatype(handle)?;
        if !entry.is_user() || entry.f90.is_some() {
            fail!(
                MPI_ERR_TYPE,
                "{} is predefined; it cannot be freed",
                entry.describe()
            );
        }
        let attributes = std::mem::take(&mut *entry.attributes());
        if let Err((rest, error)) = attributes.delete_all(handle) {
            *entry.attributes() = rest;
            return Err(error);
        }
        let mut objects = self.objects();
        if entry.users.load(Ordering::Acquire) > 0 {
            objects.freed_datatypes.push(handle);
        } else {
            objects.datatypes.remove(handle);
        }
        let freed = std::mem::take(&mut objects.freed_datatypes);
        for handle in freed {
            let unused = objects
                .datatypes
                .get(handle)
                .is_some_and(|t| t.users.load(Ordering::Acquire) == 0);
            if unused {
                objects.datatypes.remove(handle);
            } else {
                objects.freed_datatypes.push(handle);
            }
        }
        Ok(())
    }

    /// `MPI_Type_set_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_set`].
    pub fn datatype_set_attribute(&self, handle: u32, key: i32, value: usize) -> Result<()> {
        let entry = self.datatype(handle)?;
        self.attribute_set(Carrier::Datatype, handle, key, value, || entry.attributes())
    }

    /// `MPI_Type_get_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_get`].
    pub fn datatype_attribute(&self, handle: u32, key: i32) -> Result<Option<usize>> {
        let entry = self.datatype(handle)?;
        let attributes = entry.attributes().snapshot();
        self.attribute_get(Carrier::Datatype, key, &attributes)
    }

    /// `MPI_Type_delete_attr`
    ///
    /// # Errors
    /// As [`Mpi::attribute_delete`].
    pub fn datatype_delete_attribute(&self, handle: u32, key: i32) -> Result<()> {
        let entry = self.datatype(handle)?;
        self.attribute_delete(Carrier::Datatype, handle, key, || entry.attributes())
    }

    /// `MPI_Type_match_size`: the type of a class with this many bytes.
    ///
    /// # Errors
    /// When there is none.
    pub fn datatype_of_size(&self, class: i32, size: i32) -> Result<u32> {
        let basic = match (class, size) {
            (MPI_TYPECLASS_REAL, 2) => Basic::Real2,
            (MPI_TYPECLASS_REAL, 4) => Basic::Real4,
            (MPI_TYPECLASS_REAL, 8) => Basic::Real8,
            (MPI_TYPECLASS_REAL, 16) => Basic::Real16,
            (MPI_TYPECLASS_INTEGER, 1) => Basic::Integer1,
            (MPI_TYPECLASS_INTEGER, 2) => Basic::Integer2,
            (MPI_TYPECLASS_INTEGER, 4) => Basic::Integer4,
            (MPI_TYPECLASS_INTEGER, 8) => Basic::Integer8,
            (MPI_TYPECLASS_INTEGER, 16) => Basic::Integer16,
            (MPI_TYPECLASS_COMPLEX, 4) => Basic::Complex4,
            (MPI_TYPECLASS_COMPLEX, 8) => Basic::Complex8,
            (MPI_TYPECLASS_COMPLEX, 16) => Basic::Complex16,
            (MPI_TYPECLASS_COMPLEX, 32) => Basic::Complex32,
            (MPI_TYPECLASS_REAL | MPI_TYPECLASS_INTEGER | MPI_TYPECLASS_COMPLEX, _) => {
                fail!(MPI_ERR_ARG, "no type of that class has {size} bytes")
            }
            _ => fail!(MPI_ERR_ARG, "typeclass is {class}; use MPI_TYPECLASS_*"),
        };
        Ok(basic.handle() as u32)
    }

    /// `MPI_Type_create_f90_real` and its companions: the same handle for the same arguments, so
    /// that it never needs freeing.
    ///
    /// # Errors
    /// When no kind has such precision and range.
    pub fn datatype_f90(&self, combiner: i32, precision: i32, range: i32) -> Result<u32> {
        use crate::constants::sentinel::MPI_UNDEFINED;
        let arguments = match combiner {
            MPI_COMBINER_F90_INTEGER => vec![range],
            _ => vec![precision, range],
        };
        let p = if precision == MPI_UNDEFINED {
            0
        } else {
            precision
        };
        let r = if range == MPI_UNDEFINED { 0 } else { range };
        let wanted = (combiner, arguments);
        let basic = match (combiner, p, r) {
            (MPI_COMBINER_F90_INTEGER, _, ..=2) => Basic::Integer1,
            (MPI_COMBINER_F90_INTEGER, _, ..=4) => Basic::Integer2,
            (MPI_COMBINER_F90_INTEGER, _, ..=9) => Basic::Integer4,
            (MPI_COMBINER_F90_INTEGER, _, ..=18) => Basic::Integer8,
            (MPI_COMBINER_F90_REAL, ..=6, ..=37) => Basic::Real4,
            (MPI_COMBINER_F90_REAL, ..=15, ..=307) => Basic::Real8,
            (MPI_COMBINER_F90_REAL, ..=33, ..=4931) => Basic::Real16,
            (MPI_COMBINER_F90_COMPLEX, ..=6, ..=37) => Basic::Complex8,
            (MPI_COMBINER_F90_COMPLEX, ..=15, ..=307) => Basic::Complex16,
            (MPI_COMBINER_F90_COMPLEX, ..=33, ..=4931) => Basic::Complex32,
            _ => fail!(
                MPI_ERR_ARG,
                "no Fortran kind has a precision of {p} and a range of {r} digits"
            ),
        };
        {
            let objects = self.objects();
            let known = objects
                .datatypes
                .iter()
                .find(|(_, t)| t.f90.as_ref() == Some(&wanted));
            if let Some((handle, _)) = known {
                return Ok(handle);
            }
        }
        self.datatype_insert(Type::new(Arc::new(Datatype::basic(basic)), Some(wanted)))
    }
}
