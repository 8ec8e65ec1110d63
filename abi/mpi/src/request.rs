//! Requests and statuses.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_run_mpi::active::Generalized;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::request::MPI_REQUEST_NULL;
use margay_run_mpi::constants::sentinel::MPI_UNDEFINED;
use margay_run_mpi::error::{Error, Result};
use margay_run_mpi::request::Ended;
use margay_run_mpi::request::complete::Of;
use margay_run_mpi::{Mpi, Status, fail};

use crate::call::mpi;
use crate::convert::{Int, count_of, length};
use crate::types::*;
use crate::user::{In, MPI_Status, Opaque, Out, Place, Places, View};

mpi! {
    /// Waits for an operation.
    fn MPI_Wait(request: Place<MPI_Request>, status: Place<MPI_Status>) |mpi| {
        finish_one(request, status, mpi.wait(request.take("request")?.value())?)
    }

    /// Tests whether an operation has ended.
    fn MPI_Test(request: Place<MPI_Request>, flag: Place<c_int>, status: Place<MPI_Status>) |mpi| {
        let ended = mpi.test(request.take("request")?.value())?;
        flag.put("flag", c_int::from(ended.is_some()))?;
        ended.map_or(Ok(()), |ended| finish_one(request, status, ended))
    }

    /// Waits for all of several operations.
    fn MPI_Waitall(count: c_int, array_of_requests: Out<MPI_Request>, array_of_statuses: Out<MPI_Status>) |mpi| {
        let mut requests = array_of_requests;
        let handles = requests.slice("array_of_requests", request_count(count)?)?;
        let total = handles.len();
        let statuses = array_of_statuses.places(total);
        let mut failed = None;
        let mut i = 0;
        while i < handles.len() {
            if failed.is_none() {
                let rest = Cell::from_mut(&mut handles[i..]).as_slice_of_cells();
                i += mpi.end_faultless(rest.iter().map(|handle| handle.get().value()), |n, status| {
                    rest[n].set(MPI_Request::new(MPI_REQUEST_NULL));
                    statuses.at(i + n).status(status);
                });
            }
            if let Some(handle) = handles.get_mut(i) {
                let of = Of { index: i, total };
                let ended = mpi.wait_among(handle.value(), of)?;
                *handle = MPI_Request::new(ended.handle);
                note_end(&statuses, i, statuses.len(), ended, &mut failed);
                i += 1;
            }
        }
        in_status(failed)
    }

    /// Tests whether all of several operations have ended.
    fn MPI_Testall(count: c_int, array_of_requests: Out<MPI_Request>, flag: Place<c_int>, array_of_statuses: Out<MPI_Status>) |mpi| {
        let mut requests = array_of_requests;
        let handles = requests.slice("array_of_requests", request_count(count)?)?;
        let all = mpi.test_all(&values(handles))?;
        flag.put("flag", c_int::from(all.is_some()))?;
        let statuses = array_of_statuses.places(handles.len());
        let mut failed = None;
        for (i, ended) in all.into_iter().flatten().enumerate() {
            handles[i] = MPI_Request::new(ended.handle);
            note_end(&statuses, i, statuses.len(), ended, &mut failed);
        }
        in_status(failed)
    }

    /// Waits for one of several operations.
    fn MPI_Waitany(count: c_int, array_of_requests: Out<MPI_Request>, indx: Place<c_int>, status: Place<MPI_Status>) |mpi| {
        let mut requests = array_of_requests;
        let handles = requests.slice("array_of_requests", request_count(count)?)?;
        finish_any(handles, indx, status, mpi.wait_any(&values(handles))?)
    }

    /// Tests whether one of several operations has ended.
    fn MPI_Testany(count: c_int, array_of_requests: Out<MPI_Request>, indx: Place<c_int>, flag: Place<c_int>, status: Place<MPI_Status>) |mpi| {
        let mut requests = array_of_requests;
        let handles = requests.slice("array_of_requests", request_count(count)?)?;
        let found = mpi.test_any(&values(handles))?;
        flag.put("flag", c_int::from(found.is_some()))?;
        match found {
            Some(found) => finish_any(handles, indx, status, found),
            None => indx.put("indx", MPI_UNDEFINED),
        }
    }

    /// Waits for at least one of several operations.
    fn MPI_Waitsome(incount: c_int, array_of_requests: Out<MPI_Request>, outcount: Place<c_int>, array_of_indices: Out<c_int>, array_of_statuses: Out<MPI_Status>) |mpi| {
        let mut requests = array_of_requests;
        let handles = requests.slice("array_of_requests", request_count(incount)?)?;
        let some = mpi.wait_some(&values(handles))?;
        let (indices, statuses) = (array_of_indices.places(handles.len()), array_of_statuses.places(handles.len()));
        finish_some(handles, outcount, &indices, &statuses, some)
    }

    /// Tests which of several operations have ended.
    fn MPI_Testsome(incount: c_int, array_of_requests: Out<MPI_Request>, outcount: Place<c_int>, array_of_indices: Out<c_int>, array_of_statuses: Out<MPI_Status>) |mpi| {
        let mut requests = array_of_requests;
        let handles = requests.slice("array_of_requests", request_count(incount)?)?;
        let some = mpi.test_some(&values(handles))?;
        let (indices, statuses) = (array_of_indices.places(handles.len()), array_of_statuses.places(handles.len()));
        finish_some(handles, outcount, &indices, &statuses, some)
    }

    /// Lets go of a request; its operation goes on.
    fn MPI_Request_free(request: Place<MPI_Request>) |mpi| {
        mpi.request_free(request.take("request")?.value())?;
        request.put("request", MPI_Request::new(MPI_REQUEST_NULL))
    }

    /// Tests whether an operation has ended; the request stays.
    fn MPI_Request_get_status(request: MPI_Request, flag: Place<c_int>, status: Place<MPI_Status>) |mpi| {
        let found = mpi.request_status(request.value())?;
        if let Some(found) = &found {
            status.status(found);
        }
        flag.put("flag", c_int::from(found.is_some()))
    }

    /// Tests whether all of several operations have ended; the requests stay.
    fn MPI_Request_get_status_all(count: c_int, array_of_requests: In<MPI_Request>, flag: Place<c_int>, array_of_statuses: Out<MPI_Status>) |mpi| {
        let handles = array_of_requests.slice("array_of_requests", request_count(count)?)?;
        let all: Option<Vec<Status>> = handles.iter().map(|h| mpi.request_status(h.value())).collect::<Result<_>>()?;
        let statuses = array_of_statuses.places(handles.len());
        for (i, status) in all.iter().flatten().enumerate() {
            statuses.at(i).status(status);
        }
        flag.put("flag", c_int::from(all.is_some()))
    }

    /// Tests whether one of several operations has ended; the requests stay.
    fn MPI_Request_get_status_any(count: c_int, array_of_requests: In<MPI_Request>, indx: Place<c_int>, flag: Place<c_int>, status: Place<MPI_Status>) |mpi| {
        let handles = array_of_requests.slice("array_of_requests", request_count(count)?)?;
        let mut active = false;
        for (i, handle) in handles.iter().enumerate() {
            if !mpi.request_is_active(handle.value())? {
                continue;
            }
            active = true;
            if let Some(found) = mpi.request_status(handle.value())? {
                status.status(&found);
                indx.put("indx", i as c_int)?;
                return flag.put("flag", 1);
            }
        }
        indx.put("indx", MPI_UNDEFINED)?;
        if !active {
            status.status(&Status::EMPTY);
        }
        flag.put("flag", c_int::from(!active))
    }

    /// Tests which of several operations have ended; the requests stay.
    fn MPI_Request_get_status_some(incount: c_int, array_of_requests: In<MPI_Request>, outcount: Place<c_int>, array_of_indices: Out<c_int>, array_of_statuses: Out<MPI_Status>) |mpi| {
        let handles = array_of_requests.slice("array_of_requests", request_count(incount)?)?;
        let (indices, statuses) = (array_of_indices.places(handles.len()), array_of_statuses.places(handles.len()));
        let mut active = false;
        let mut n = 0;
        for (i, handle) in handles.iter().enumerate() {
            if !mpi.request_is_active(handle.value())? {
                continue;
            }
            active = true;
            if let Some(found) = mpi.request_status(handle.value())? {
                statuses.at(n).status(&found);
                indices.at(n).put("array_of_indices", i as c_int)?;
                n += 1;
            }
        }
        outcount.put("outcount", if active { n as c_int } else { MPI_UNDEFINED })
    }

    /// Cancels an operation if that is still possible.
    fn MPI_Cancel(request: Place<MPI_Request>) |mpi| {
        mpi.request_cancel(request.take("request")?.value())
    }

    /// Begins a persistent operation.
    fn MPI_Start(request: Place<MPI_Request>) |mpi| {
        mpi.request_start(request.take("request")?.value())
    }

    /// Begins several persistent operations.
    fn MPI_Startall(count: c_int, array_of_requests: Out<MPI_Request>) |mpi| {
        let mut requests = array_of_requests;
        for handle in requests.slice("array_of_requests", request_count(count)?)? {
            mpi.request_start(handle.value())?;
        }
        Ok(())
    }

    /// Makes a request for an operation of the program.
    fn MPI_Grequest_start(query_fn: MPI_Grequest_query_function, free_fn: MPI_Grequest_free_function, cancel_fn: MPI_Grequest_cancel_function, extra_state: Opaque, request: Place<MPI_Request>) |mpi| {
        let user = Arc::new(UserRequest { query_fn, free_fn, cancel_fn, extra_state: extra_state.0 as usize, complete: AtomicBool::new(false) });
        request.put("request", MPI_Request::new(mpi.request_generalized(user)?))
    }

    /// Tells that an operation of the program has ended.
    fn MPI_Grequest_complete(request: MPI_Request) |mpi| {
        mpi.request_complete(request.value())
    }

    /// Whether the operation was cancelled.
    fn MPI_Test_cancelled(status: View<MPI_Status>, flag: Place<c_int>) |_mpi| {
        flag.put("flag", c_int::from(status.take("status")?.cancelled()))
    }

    /// Elements of a datatype in the message, `MPI_UNDEFINED` if not a whole number.
    count fn MPI_Get_count(status: View<MPI_Status>, datatype: MPI_Datatype, count: Place<Count>) |mpi| {
        let datatype = mpi.datatype(datatype.value())?;
        let n = datatype.datatype.get_count(status.take("status")?.bytes());
        count.put("count", Count::or_undefined(n.map_or(i64::from(MPI_UNDEFINED), |n| n as i64)))
    }

    /// Basic elements in the message.
    count fn MPI_Get_elements(status: View<MPI_Status>, datatype: MPI_Datatype, count: Place<Count>) |mpi| {
        let n = elements(mpi, status, datatype)?;
        count.put("count", Count::or_undefined(n.unwrap_or(i64::from(MPI_UNDEFINED))))
    }

    /// Basic elements in the message, in 64 bits.
    fn MPI_Get_elements_x(status: View<MPI_Status>, datatype: MPI_Datatype, count: Place<MPI_Count>) |mpi| {
        let n = elements(mpi, status, datatype)?;
        count.put("count", n.unwrap_or(i64::from(MPI_UNDEFINED)))
    }

    /// Enters a count of elements into a status.
    count fn MPI_Status_set_elements(status: Place<MPI_Status>, datatype: MPI_Datatype, count: Count) |mpi| {
        set_elements(mpi, status, datatype, count.wide())
    }

    /// Enters a count of elements into a status.
    fn MPI_Status_set_elements_x(status: Place<MPI_Status>, datatype: MPI_Datatype, count: MPI_Count) |mpi| {
        set_elements(mpi, status, datatype, count)
    }

    /// Enters whether the operation was cancelled.
    fn MPI_Status_set_cancelled(status: Place<MPI_Status>, flag: c_int) |_mpi| {
        status.update(|s| s.set_cancelled(flag != 0));
        Ok(())
    }

    /// Enters the source.
    fn MPI_Status_set_source(status: Place<MPI_Status>, source: c_int) |_mpi| {
        status.update(|s| s.MPI_SOURCE = source);
        Ok(())
    }

    /// Enters the tag.
    fn MPI_Status_set_tag(status: Place<MPI_Status>, tag: c_int) |_mpi| {
        status.update(|s| s.MPI_TAG = tag);
        Ok(())
    }

    /// Enters the error.
    fn MPI_Status_set_error(status: Place<MPI_Status>, error: c_int) |_mpi| {
        status.update(|s| s.MPI_ERROR = error);
        Ok(())
    }

    /// The source.
    fn MPI_Status_get_source(status: View<MPI_Status>, source: Place<c_int>) |_mpi| {
        source.put("source", status.take("status")?.MPI_SOURCE)
    }

    /// The tag.
    fn MPI_Status_get_tag(status: View<MPI_Status>, tag: Place<c_int>) |_mpi| {
        tag.put("tag", status.take("status")?.MPI_TAG)
    }

    /// The error.
    fn MPI_Status_get_error(status: View<MPI_Status>, error: Place<c_int>) |_mpi| {
        error.put("error", status.take("status")?.MPI_ERROR)
    }
}

fn elements(mpi: &Mpi, status: View<MPI_Status>, datatype: MPI_Datatype) -> Result<Option<i64>> {
    let datatype = mpi.datatype(datatype.value())?;
    let n = datatype
        .datatype
        .get_elements(status.take("status")?.bytes());
    Ok(n.map(|n| n as i64))
}

fn set_elements(
    mpi: &Mpi,
    status: Place<MPI_Status>,
    datatype: MPI_Datatype,
    count: i64,
) -> Result<()> {
    let datatype = mpi.datatype(datatype.value())?;
    let count = count_of("count", count)?;
    let Some(bytes) = datatype.bytes_of_elements(count) else {
        fail!(
            MPI_ERR_COUNT,
            "count is {count}, which is no number of elements of {}",
            datatype.describe()
        );
    };
    status.update(|s| s.set_bytes(bytes));
    Ok(())
}

fn request_count(count: c_int) -> Result<usize> {
    length("count", count).map_err(|e| Error::new(MPI_ERR_COUNT, e.text()))
}

fn values(handles: &[MPI_Request]) -> Vec<u32> {
    handles.iter().map(|h| h.value()).collect()
}

fn finish_one(request: Place<MPI_Request>, status: Place<MPI_Status>, ended: Ended) -> Result<()> {
    request.put("request", MPI_Request::new(ended.handle))?;
    status.status(&ended.status);
    ended.error.map_or(Ok(()), Err)
}

fn finish_any(
    handles: &mut [MPI_Request],
    indx: Place<c_int>,
    status: Place<MPI_Status>,
    found: Option<(usize, Ended)>,
) -> Result<()> {
    let Some((i, ended)) = found else {
        status.status(&Status::EMPTY);
        return indx.put("indx", MPI_UNDEFINED);
    };
    handles[i] = MPI_Request::new(ended.handle);
    status.status(&ended.status);
    indx.put("indx", i as c_int)?;
    ended.error.map_or(Ok(()), Err)
}

fn finish_some(
    handles: &mut [MPI_Request],
    outcount: Place<c_int>,
    indices: &Places<c_int>,
    statuses: &Places<MPI_Status>,
    some: Option<Vec<(usize, Ended)>>,
) -> Result<()> {
    let Some(some) = some else {
        return outcount.put("outcount", MPI_UNDEFINED);
    };
    outcount.put("outcount", some.len() as c_int)?;
    let mut failed = None;
    let n = some.len();
    for (place, (i, ended)) in some.into_iter().enumerate() {
        handles[i] = MPI_Request::new(ended.handle);
        indices.at(place).put("array_of_indices", i as c_int)?;
        note_end(statuses, place, n, ended, &mut failed);
    }
    in_status(failed)
}

/// Enters the status of one of several requests. The error fields of all are set when the first
/// error is met, as the standard has it: only then the call returns `MPI_ERR_IN_STATUS`.
fn note_end(
    statuses: &Places<MPI_Status>,
    i: usize,
    n: usize,
    ended: Ended,
    failed: &mut Option<Error>,
) {
    statuses.at(i).status(&ended.status);
    match ended.error {
        Some(error) => {
            if failed.is_none() {
                for place in 0..n {
                    statuses.at(place).error(MPI_SUCCESS);
                }
            }
            statuses.at(i).error(error.code());
            failed.get_or_insert(error);
        }
        None if failed.is_some() => statuses.at(i).error(MPI_SUCCESS),
        None => {}
    }
}

/// The error of a call on several requests of which one has failed.
fn in_status(failed: Option<Error>) -> Result<()> {
    let Some(error) = failed else { return Ok(()) };
    let whole = Error::new(MPI_ERR_IN_STATUS, error.text());
    Err(match error.comm() {
        Some(comm) => whole.on(comm),
        None => whole,
    })
}

/// The program's functions for a generalized request.
struct UserRequest {
    query_fn: MPI_Grequest_query_function,
    free_fn: MPI_Grequest_free_function,
    cancel_fn: MPI_Grequest_cancel_function,
    extra_state: usize,
    complete: AtomicBool,
}

impl Generalized for UserRequest {
    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    fn query(&self) -> std::result::Result<Status, i32> {
        let mut status = MPI_Status {
            MPI_SOURCE: Status::EMPTY.source,
            MPI_TAG: Status::EMPTY.tag,
            MPI_ERROR: MPI_SUCCESS,
            MPI_internal: [0; 5],
        };
        if let Some(function) = self.query_fn {
            // SAFETY: the program's function with the arguments that the standard gives it.
            let code = unsafe { function(self.extra_state as *mut c_void, &raw mut status) };
            if code != MPI_SUCCESS {
                return Err(code);
            }
        }
        Ok(Status {
            source: status.MPI_SOURCE,
            tag: status.MPI_TAG,
            bytes: status.bytes(),
            cancelled: status.cancelled(),
        })
    }

    fn free(&self) -> std::result::Result<(), i32> {
        match self.free_fn {
            // SAFETY: as above.
            Some(function) => code(unsafe { function(self.extra_state as *mut c_void) }),
            None => Ok(()),
        }
    }

    fn cancel(&self, complete: bool) -> std::result::Result<(), i32> {
        match self.cancel_fn {
            Some(function) => {
                // SAFETY: as above.
                code(unsafe { function(self.extra_state as *mut c_void, c_int::from(complete)) })
            }
            None => Ok(()),
        }
    }
}

fn code(code: c_int) -> std::result::Result<(), i32> {
    if code == MPI_SUCCESS {
        Ok(())
    } else {
        Err(code)
    }
}
