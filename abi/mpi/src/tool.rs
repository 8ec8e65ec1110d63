//! The tools interface: start and end, categories, enumerations. Its functions give codes; no error
//! handler is called.

use std::ffi::c_int;
use std::sync::Arc;

use margay_run_mpi::constants::datatype::{MPI_DOUBLE, MPI_INT, MPI_UNSIGNED_LONG_LONG};
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::info::MPI_INFO_NULL;
use margay_run_mpi::constants::thread::*;
use margay_run_mpi::tool::table::*;
use margay_run_mpi::tool::{Result, Tools, Value, entry, index_of};

use crate::call::{current, mpi, tools};
use crate::types::*;
use crate::user::{Out, Place, Text, TextOut};

mpi! {
    /// Begins to use the tools interface.
    fn MPI_T_init_thread(required: c_int, provided: Place<c_int>) -> c_int {
        tools().init();
        provided.offer(required.clamp(MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE));
        MPI_SUCCESS
    }

    /// Ends to use it, when it was begun as often.
    fn MPI_T_finalize() -> c_int {
        code(tools().finalize())
    }

    /// How many categories there are.
    fn MPI_T_category_get_num(num_cat: Place<c_int>) -> c_int {
        with(|_| put(num_cat, CATEGORIES.len() as c_int))
    }

    /// The index of a category.
    fn MPI_T_category_get_index(name: Text, cat_index: Place<c_int>) -> c_int {
        with(|_| {
            let name = text(name)?;
            put(cat_index, index_of(CATEGORIES, |c| c.name == name)?)
        })
    }

    /// What a category is and has.
    fn MPI_T_category_get_info(cat_index: c_int, name: TextOut, name_len: Place<c_int>, desc: TextOut, desc_len: Place<c_int>, num_cvars: Place<c_int>, num_pvars: Place<c_int>, num_categories: Place<c_int>) -> c_int {
        with(|_| {
            let category = entry(CATEGORIES, cat_index)?;
            put_text(name, name_len, category.name);
            put_text(desc, desc_len, category.about);
            num_cvars.offer(members(CONTROLS, |c| c.category == category.name).len() as c_int);
            num_pvars.offer(members(PERFORMANCE, |p| p.category == category.name).len() as c_int);
            num_categories.offer(members(CATEGORIES, |c| c.parent == Some(category.name)).len() as c_int);
            Ok(())
        })
    }

    /// The control variables of a category.
    fn MPI_T_category_get_cvars(cat_index: c_int, len: c_int, indices: Out<c_int>) -> c_int {
        with(|_| {
            let category = entry(CATEGORIES, cat_index)?.name;
            put_indices(indices, len, &members(CONTROLS, |c| c.category == category))
        })
    }

    /// The performance variables of a category.
    fn MPI_T_category_get_pvars(cat_index: c_int, len: c_int, indices: Out<c_int>) -> c_int {
        with(|_| {
            let category = entry(CATEGORIES, cat_index)?.name;
            put_indices(indices, len, &members(PERFORMANCE, |p| p.category == category))
        })
    }

    /// How many types of events a category has.
    fn MPI_T_category_get_num_events(cat_index: c_int, num_events: Place<c_int>) -> c_int {
        with(|_| {
            let category = entry(CATEGORIES, cat_index)?.name;
            put(num_events, members(EVENTS, |e| e.category == category).len() as c_int)
        })
    }

    /// The types of events of a category.
    fn MPI_T_category_get_events(cat_index: c_int, len: c_int, indices: Out<c_int>) -> c_int {
        with(|_| {
            let category = entry(CATEGORIES, cat_index)?.name;
            put_indices(indices, len, &members(EVENTS, |e| e.category == category))
        })
    }

    /// The categories in a category.
    fn MPI_T_category_get_categories(cat_index: c_int, len: c_int, indices: Out<c_int>) -> c_int {
        with(|_| {
            let category = entry(CATEGORIES, cat_index)?.name;
            put_indices(indices, len, &members(CATEGORIES, |c| c.parent == Some(category)))
        })
    }

    /// A number that grows when categories change; they do not.
    fn MPI_T_category_changed(update_number: Place<c_int>) -> c_int {
        with(|_| put(update_number, 0))
    }

    /// The name of an enumeration and how many values it has.
    fn MPI_T_enum_get_info(enumtype: MPI_T_enum, num: Place<c_int>, name: TextOut, name_len: Place<c_int>) -> c_int {
        with(|_| {
            let enumeration = enumeration(enumtype)?;
            num.offer(enumeration.items.len() as c_int);
            put_text(name, name_len, enumeration.name);
            Ok(())
        })
    }

    /// A value of an enumeration and its name.
    fn MPI_T_enum_get_item(enumtype: MPI_T_enum, indx: c_int, value: Place<c_int>, name: TextOut, name_len: Place<c_int>) -> c_int {
        with(|_| {
            let &(number, text) = entry(enumeration(enumtype)?.items, indx)?;
            value.offer(number);
            put_text(name, name_len, text);
            Ok(())
        })
    }
}

/// The code of a result.
pub fn code(result: Result<()>) -> c_int {
    result.map_or_else(|code| code, |()| MPI_SUCCESS)
}

/// Calls `f` if the interface is initialized.
pub fn with(f: impl FnOnce(&'static Arc<Tools>) -> Result<()>) -> c_int {
    let tools = tools();
    code(tools.check().and_then(|()| f(tools)))
}

/// Writes a value that must have a place.
pub fn put<T: Copy>(place: Place<T>, value: T) -> Result<()> {
    place.put("", value).map_err(|_| MPI_T_ERR_INVALID)
}

/// A string that must be there.
pub fn text(text: Text) -> Result<String> {
    text.get("").map_err(|_| MPI_T_ERR_INVALID)
}

/// Writes as much of a text as there is room for, and the bytes written with the final zero;
/// without room the bytes that are needed.
///
/// # Safety
/// The C caller vouches for as many bytes as stand at `len`.
pub unsafe fn put_text(out: TextOut, len: Place<c_int>, text: &str) {
    let room = if len.is_null() {
        0
    } else {
        len.take("").unwrap_or(0)
    };
    let needed = if out.is_null() || room <= 0 {
        text.len()
    } else {
        // SAFETY: by the caller's promise.
        unsafe { out.put("", text, room as usize) }.unwrap_or(0)
    };
    len.offer(needed as c_int + 1);
}

/// Writes the first `len` indices.
///
/// # Safety
/// The C caller vouches for `len` entries.
unsafe fn put_indices(out: Out<c_int>, len: c_int, indices: &[c_int]) -> Result<()> {
    let n = usize::try_from(len).map_err(|_| MPI_T_ERR_INVALID)?;
    let indices = indices[..n.min(indices.len())].iter().copied();
    // SAFETY: by the caller's promise.
    unsafe { out.put("", indices) }.map_err(|_| MPI_T_ERR_INVALID)
}

/// Indices of the entries that please.
fn members<T>(table: &[T], pleases: impl Fn(&T) -> bool) -> Vec<c_int> {
    let all = table.iter().enumerate();
    all.filter(|(_, entry)| pleases(entry))
        .map(|(i, _)| i as c_int)
        .collect()
}

fn enumeration(handle: MPI_T_enum) -> Result<&'static Enumeration> {
    let place = handle.value().checked_sub(1);
    place
        .and_then(|i| ENUMERATIONS.get(i as usize))
        .ok_or(MPI_T_ERR_INVALID_HANDLE)
}

/// The handle of an enumeration; null if there is none.
pub fn enum_handle(index: Option<usize>) -> MPI_T_enum {
    MPI_T_enum::new(index.map_or(0, |i| i as u64 + 1))
}

/// The datatype of a value.
pub fn datatype_of(value: Value) -> MPI_Datatype {
    MPI_Datatype::new(match value {
        Value::Int(_) => MPI_INT,
        Value::Number(_) => MPI_UNSIGNED_LONG_LONG,
        Value::Real(_) => MPI_DOUBLE,
    })
}

/// A new, empty info; null where infos cannot be made now.
pub fn no_hints() -> MPI_Info {
    let made = current()
        .filter(|mpi| mpi.lock().is_shared() || mpi.is_main_thread())
        .and_then(|mpi| mpi.info_create(Vec::new()).ok());
    MPI_Info::new(made.unwrap_or(MPI_INFO_NULL))
}
