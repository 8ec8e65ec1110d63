//! The tools interface: events and their sources.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use margay_run_mpi::constants::datatype::{MPI_INT, MPI_UNSIGNED_LONG_LONG};
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::tools::{MPI_T_BIND_NO_OBJECT, MPI_T_VERBOSITY_USER_DETAIL};
use margay_run_mpi::tool::table::{EVENTS, Element};
use margay_run_mpi::tool::{Callback, Dropped, Freed, Result, entry, index_of};
use margay_sys_os::clock;

use crate::call::mpi;
use crate::tool::{enum_handle, no_hints, put, put_text, text, with};
use crate::types::*;
use crate::user::{Buf, Opaque, Out, Place, Text, TextOut};

/// `MPI_T_SOURCE_ORDERED`
const ORDERED: MPI_T_source_order = 1;

mpi! {
    /// How many sources of events there are.
    fn MPI_T_source_get_num(num_sources: Place<c_int>) -> c_int {
        with(|_| put(num_sources, 1))
    }

    /// What a source of events is.
    fn MPI_T_source_get_info(source_index: c_int, name: TextOut, name_len: Place<c_int>, desc: TextOut, desc_len: Place<c_int>, ordering: Place<MPI_T_source_order>, ticks_per_second: Place<MPI_Count>, max_ticks: Place<MPI_Count>, info: Place<MPI_Info>) -> c_int {
        with(|_| {
            source(source_index)?;
            put_text(name, name_len, "margay_rank");
            put_text(desc, desc_len, "What happens in this rank, by the machine's monotonic clock, which all ranks read.");
            ordering.offer(ORDERED);
            ticks_per_second.offer(1_000_000_000);
            max_ticks.offer(MPI_Count::MAX);
            if !info.is_null() {
                info.offer(no_hints());
            }
            Ok(())
        })
    }

    /// The time of a source.
    fn MPI_T_source_get_timestamp(source_index: c_int, timestamp: Place<MPI_Count>) -> c_int {
        with(|_| {
            source(source_index)?;
            put(timestamp, clock::now_ns() as MPI_Count)
        })
    }

    /// How many types of events there are.
    fn MPI_T_event_get_num(num_events: Place<c_int>) -> c_int {
        with(|_| put(num_events, EVENTS.len() as c_int))
    }

    /// What a type of event is.
    fn MPI_T_event_get_info(event_index: c_int, name: TextOut, name_len: Place<c_int>, verbosity: Place<c_int>, array_of_datatypes: Out<MPI_Datatype>, array_of_displacements: Out<MPI_Aint>, num_elements: Place<c_int>, enumtype: Place<MPI_T_enum>, info: Place<MPI_Info>, desc: TextOut, desc_len: Place<c_int>, bind: Place<c_int>) -> c_int {
        with(|_| {
            let event = entry(EVENTS, event_index)?;
            put_text(name, name_len, event.name);
            put_text(desc, desc_len, event.about);
            verbosity.offer(MPI_T_VERBOSITY_USER_DETAIL);
            let room = if num_elements.is_null() { 0 } else { num_elements.take("").unwrap_or(0).max(0) };
            let (datatypes, displacements) = (array_of_datatypes.places(room as usize), array_of_displacements.places(room as usize));
            for (i, ((_, element), displacement)) in event.elements.iter().zip(event.displacements()).enumerate().take(room as usize) {
                datatypes.at(i).offer(MPI_Datatype::new(match element {
                    Element::Int => MPI_INT,
                    Element::Number => MPI_UNSIGNED_LONG_LONG,
                }));
                displacements.at(i).offer(displacement as MPI_Aint);
            }
            num_elements.offer(event.elements.len() as c_int);
            enumtype.offer(enum_handle(None));
            if !info.is_null() {
                info.offer(no_hints());
            }
            bind.offer(MPI_T_BIND_NO_OBJECT);
            Ok(())
        })
    }

    /// The index of a type of event.
    fn MPI_T_event_get_index(name: Text, event_index: Place<c_int>) -> c_int {
        with(|_| {
            let name = text(name)?;
            put(event_index, index_of(EVENTS, |e| e.name == name)?)
        })
    }

    /// Registers for a type of event.
    fn MPI_T_event_handle_alloc(event_index: c_int, obj_handle: Buf, info: MPI_Info, event_registration: Place<MPI_T_event_registration>) -> c_int {
        // None is bound to an object, and there are no hints.
        let _ = (obj_handle, info);
        with(|tools| put(event_registration, MPI_T_event_registration::new(tools.event_open(event_index)?)))
    }

    /// Hints for a registration: none are heeded.
    fn MPI_T_event_handle_set_info(event_registration: MPI_T_event_registration, info: MPI_Info) -> c_int {
        let _ = info;
        with(|tools| tools.event_check(event_registration.value(), None))
    }

    /// The hints that are heeded.
    fn MPI_T_event_handle_get_info(event_registration: MPI_T_event_registration, info_used: Place<MPI_Info>) -> c_int {
        with(|tools| {
            tools.event_check(event_registration.value(), None)?;
            put(info_used, no_hints())
        })
    }

    /// Sets the function for a level of safety; null takes it away.
    fn MPI_T_event_register_callback(event_registration: MPI_T_event_registration, cb_safety: MPI_T_cb_safety, info: MPI_Info, user_data: Opaque, event_cb_function: MPI_T_event_cb_function) -> c_int {
        let _ = info;
        with(|tools| {
            let data = user_data.0 as usize;
            let callback = event_cb_function.map(|function| -> Callback {
                Arc::new(move |instance, registration, safety| {
                    let (instance, registration) = (MPI_T_event_instance::new(instance), MPI_T_event_registration::new(registration));
                    // SAFETY: the program's function with the arguments that the standard gives it.
                    unsafe { function(instance, registration, safety, data as *mut c_void) }
                })
            });
            tools.event_listen(event_registration.value(), cb_safety, callback.map(|c| (c, data)))
        })
    }

    /// Hints for a callback: none are heeded.
    fn MPI_T_event_callback_set_info(event_registration: MPI_T_event_registration, cb_safety: MPI_T_cb_safety, info: MPI_Info) -> c_int {
        let _ = info;
        with(|tools| tools.event_check(event_registration.value(), Some(cb_safety)))
    }

    /// The hints that are heeded.
    fn MPI_T_event_callback_get_info(event_registration: MPI_T_event_registration, cb_safety: MPI_T_cb_safety, info_used: Place<MPI_Info>) -> c_int {
        with(|tools| {
            tools.event_check(event_registration.value(), Some(cb_safety))?;
            put(info_used, no_hints())
        })
    }

    /// Sets the function that receives the number of dropped events.
    fn MPI_T_event_set_dropped_handler(event_registration: MPI_T_event_registration, dropped_cb_function: MPI_T_event_dropped_cb_function) -> c_int {
        with(|tools| {
            let dropped = dropped_cb_function.map(|function| -> Dropped {
                Arc::new(move |count, registration, source, safety, data| {
                    let registration = MPI_T_event_registration::new(registration);
                    // SAFETY: as above.
                    unsafe { function(count, registration, source, safety, data as *mut c_void) }
                })
            });
            tools.event_set_dropped(event_registration.value(), dropped)
        })
    }

    /// Ends a registration; the function is called when no callback of it runs any more.
    fn MPI_T_event_handle_free(event_registration: MPI_T_event_registration, user_data: Opaque, free_cb_function: MPI_T_event_free_cb_function) -> c_int {
        with(|tools| {
            let data = user_data.0 as usize;
            let freed = free_cb_function.map(|function| -> Freed {
                Box::new(move |registration, safety| {
                    let registration = MPI_T_event_registration::new(registration);
                    // SAFETY: as above.
                    unsafe { function(registration, safety, data as *mut c_void) }
                })
            });
            tools.event_close(event_registration.value(), freed)
        })
    }

    /// An element of an event, in its callback.
    fn MPI_T_event_read(event_instance: MPI_T_event_instance, element_index: c_int, buffer: Buf) -> c_int {
        with(|tools| {
            let element = tools.event_instance(event_instance.value())?.element(element_index)?;
            buffer.put_bytes("", &element).map_err(|_| MPI_T_ERR_INVALID)
        })
    }

    /// All elements of an event, in its callback.
    fn MPI_T_event_copy(event_instance: MPI_T_event_instance, buffer: Buf) -> c_int {
        with(|tools| {
            let bytes = tools.event_instance(event_instance.value())?.bytes();
            buffer.put_bytes("", &bytes).map_err(|_| MPI_T_ERR_INVALID)
        })
    }

    /// When an event happened, in its callback.
    fn MPI_T_event_get_timestamp(event_instance: MPI_T_event_instance, event_timestamp: Place<MPI_Count>) -> c_int {
        with(|tools| put(event_timestamp, tools.event_instance(event_instance.value())?.time()))
    }

    /// The source of an event, in its callback.
    fn MPI_T_event_get_source(event_instance: MPI_T_event_instance, source_index: Place<c_int>) -> c_int {
        with(|tools| {
            tools.event_instance(event_instance.value())?;
            put(source_index, 0)
        })
    }
}

/// There is one source.
fn source(index: c_int) -> Result<()> {
    if index == 0 {
        Ok(())
    } else {
        Err(MPI_T_ERR_INVALID_INDEX)
    }
}
