//! Info objects.

use std::ffi::c_int;

use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::info::*;
use margay_run_mpi::constants::limit::MPI_MAX_INFO_KEY;
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::convert::length;
use crate::types::*;
use crate::user::{Argv, Place, Text, TextOut};

mpi! {
    /// Makes an empty info object.
    always fn MPI_Info_create(info: Place<MPI_Info>) |mpi| {
        info.put("info", MPI_Info::new(mpi.info_create(Vec::new())?))
    }

    /// Makes an info object with what `MPI_INFO_ENV` has, for the given command line.
    always fn MPI_Info_create_env(argc: c_int, argv: Argv, info: Place<MPI_Info>) |mpi| {
        let arguments = argv.strings(length("argc", argc)?);
        let entries = margay_run_mpi::environment(mpi.rank(), &arguments);
        info.put("info", MPI_Info::new(mpi.info_create(entries)?))
    }

    /// Makes a copy.
    always fn MPI_Info_dup(info: MPI_Info, newinfo: Place<MPI_Info>) |mpi| {
        if info.value() == MPI_INFO_NULL {
            fail!(MPI_ERR_INFO, "the info object is MPI_INFO_NULL");
        }
        let entries = mpi.info(info.value())?;
        newinfo.put("newinfo", MPI_Info::new(mpi.info_create(entries)?))
    }

    /// Frees an info object.
    always fn MPI_Info_free(info: Place<MPI_Info>) |mpi| {
        mpi.info_free(info.take("info")?.value())?;
        info.put("info", MPI_Info::new(MPI_INFO_NULL))
    }

    /// Sets a value.
    always fn MPI_Info_set(info: MPI_Info, key: Text, value: Text) |mpi| {
        mpi.info_set(info.value(), &key.get("key")?, &value.get("value")?)
    }

    /// Deletes a key.
    always fn MPI_Info_delete(info: MPI_Info, key: Text) |mpi| {
        mpi.info_delete(info.value(), &key.get("key")?)
    }

    /// The value of a key, cut to `valuelen` bytes.
    always fn MPI_Info_get(info: MPI_Info, key: Text, valuelen: c_int, value: TextOut, flag: Place<c_int>) |mpi| {
        let room = length("valuelen", valuelen)?;
        let found = mpi.info_get(info.value(), &key.get("key")?)?;
        if let Some(found) = &found {
            value.put("value", found, room + 1)?;
        }
        flag.put("flag", c_int::from(found.is_some()))
    }

    /// Bytes of the value of a key.
    always fn MPI_Info_get_valuelen(info: MPI_Info, key: Text, valuelen: Place<c_int>, flag: Place<c_int>) |mpi| {
        let found = mpi.info_get(info.value(), &key.get("key")?)?;
        if let Some(found) = &found {
            valuelen.put("valuelen", found.len() as c_int)?;
        }
        flag.put("flag", c_int::from(found.is_some()))
    }

    /// The value of a key as far as it fits, and the room that all of it needs.
    always fn MPI_Info_get_string(info: MPI_Info, key: Text, buflen: Place<c_int>, value: TextOut, flag: Place<c_int>) |mpi| {
        let found = mpi.info_get(info.value(), &key.get("key")?)?;
        if let Some(found) = &found {
            let room = length("buflen", buflen.take("buflen")?)?;
            if room > 0 {
                value.put("value", found, room)?;
            }
            buflen.put("buflen", found.len() as c_int + 1)?;
        }
        flag.put("flag", c_int::from(found.is_some()))
    }

    /// Number of keys.
    always fn MPI_Info_get_nkeys(info: MPI_Info, nkeys: Place<c_int>) |mpi| {
        if info.value() == MPI_INFO_NULL {
            fail!(MPI_ERR_INFO, "the info object is MPI_INFO_NULL");
        }
        nkeys.put("nkeys", mpi.info(info.value())?.len() as c_int)
    }

    /// A key by number.
    always fn MPI_Info_get_nthkey(info: MPI_Info, n: c_int, key: TextOut) |mpi| {
        let entries = mpi.info(info.value())?;
        match usize::try_from(n).ok().and_then(|n| entries.get(n)) {
            Some((name, _)) => key.put("key", name, MPI_MAX_INFO_KEY).map(|_| ()),
            None => fail!(MPI_ERR_ARG, "n is {n}; the info object has {} keys", entries.len()),
        }
    }
}
