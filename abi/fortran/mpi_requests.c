/* Requests: what completes them, with indices that count from 1, and with the copies that wait for completion. */
#include "glue.h"

/* The old handles of requests that a call may complete, where anybody wants to know. */
static MPI_Fint *remember(const MPI_Fint *requests, int n)
{
    if (!margay_any_pending() || n <= 0) return NULL;
    MPI_Fint *old = margay_allocate((size_t)n, sizeof *old);
    memcpy(old, requests, (size_t)n * sizeof *old);
    return old;
}

static void complete(const MPI_Fint *old, int at)
{
    if (old) margay_pending_complete(old[at]);
}

/* With MPI_ERR_IN_STATUS some may be complete all the same. */
static int is_done(int e)
{
    return e == MPI_SUCCESS || e == MPI_ERR_IN_STATUS;
}

static MPI_Fint from_one(int index)
{
    return index == MPI_UNDEFINED ? index : index + 1;
}

void FN(wait)(MPI_Fint *request, MPI_Status *status, MPI_Fint *ierror)
{
    MPI_Request c = FROM_INT(Request, *request);
    int e = CALL(Wait)(&c, margay_status(status));
    if (e == MPI_SUCCESS && margay_any_pending()) margay_pending_complete(*request);
    *request = TO_INT(Request, c);
    margay_done(ierror, e);
}
SAME_IN_F08(wait, (MPI_Fint *request, MPI_Status *status, MPI_Fint *ierror))

void FN(test)(MPI_Fint *request, MPI_Fint *flag, MPI_Status *status, MPI_Fint *ierror)
{
    MPI_Request c = FROM_INT(Request, *request);
    int done = 0, e = CALL(Test)(&c, &done, margay_status(status));
    if (e == MPI_SUCCESS && done && margay_any_pending()) margay_pending_complete(*request);
    *request = TO_INT(Request, c);
    *flag = margay_logical(done);
    margay_done(ierror, e);
}
SAME_IN_F08(test, (MPI_Fint *request, MPI_Fint *flag, MPI_Status *status, MPI_Fint *ierror))

void FN(waitall)(MPI_Fint *count, MPI_Fint *requests, MPI_Status *statuses, MPI_Fint *ierror)
{
    int n = *count;
    MPI_Request *c = margay_request_in(requests, n);
    MPI_Fint *old = remember(requests, n);
    int e = CALL(Waitall)(n, c, margay_statuses(statuses));
    for (int i = 0; old && is_done(e) && i < n; i++) complete(old, i);
    margay_request_out(requests, c, n);
    free(old);
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(waitall, (MPI_Fint *count, MPI_Fint *requests, MPI_Status *statuses, MPI_Fint *ierror))

void FN(testall)(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, MPI_Status *statuses, MPI_Fint *ierror)
{
    int n = *count, done = 0;
    MPI_Request *c = margay_request_in(requests, n);
    MPI_Fint *old = remember(requests, n);
    int e = CALL(Testall)(n, c, &done, margay_statuses(statuses));
    for (int i = 0; old && done && is_done(e) && i < n; i++) complete(old, i);
    margay_request_out(requests, c, n);
    *flag = margay_logical(done);
    free(old);
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(testall,
            (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, MPI_Status *statuses, MPI_Fint *ierror))

void FN(waitany)(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Status *status, MPI_Fint *ierror)
{
    int n = *count, at = MPI_UNDEFINED;
    MPI_Request *c = margay_request_in(requests, n);
    int e = CALL(Waitany)(n, c, &at, margay_status(status));
    if (e == MPI_SUCCESS) *index = from_one(at);
    if (at >= 0 && at < n) {
        if (e == MPI_SUCCESS && margay_any_pending()) margay_pending_complete(requests[at]);
        requests[at] = TO_INT(Request, c[at]);
    }
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(waitany,
            (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Status *status, MPI_Fint *ierror))

void FN(testany)(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag, MPI_Status *status,
                 MPI_Fint *ierror)
{
    int n = *count, at = MPI_UNDEFINED, done = 0;
    MPI_Request *c = margay_request_in(requests, n);
    int e = CALL(Testany)(n, c, &at, &done, margay_status(status));
    if (e == MPI_SUCCESS) *index = from_one(at);
    if (at >= 0 && at < n) {
        if (e == MPI_SUCCESS && done && margay_any_pending()) margay_pending_complete(requests[at]);
        requests[at] = TO_INT(Request, c[at]);
    }
    *flag = margay_logical(done);
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(testany, (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag, MPI_Status *status,
                      MPI_Fint *ierror))

static int some(int (*function)(int, MPI_Request[], int *, int[], MPI_Status *), int n, MPI_Fint *requests,
                MPI_Fint *outcount, MPI_Fint *indices, MPI_Status *statuses)
{
    MPI_Request *c = margay_request_in(requests, n);
    MPI_Fint *old = remember(requests, n);
    int e = function(n, c, outcount, indices, margay_statuses(statuses));
    for (int i = 0; is_done(e) && *outcount != MPI_UNDEFINED && i < *outcount; i++) {
        complete(old, indices[i]);
        indices[i]++;
    }
    margay_request_out(requests, c, n);
    free(old);
    free(c);
    return e;
}

void FN(waitsome)(MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices, MPI_Status *statuses,
                  MPI_Fint *ierror)
{
    margay_done(ierror, some(CALL(Waitsome), *incount, requests, outcount, indices, statuses));
}
SAME_IN_F08(waitsome, (MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                       MPI_Status *statuses, MPI_Fint *ierror))

void FN(testsome)(MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices, MPI_Status *statuses,
                  MPI_Fint *ierror)
{
    margay_done(ierror, some(CALL(Testsome), *incount, requests, outcount, indices, statuses));
}
SAME_IN_F08(testsome, (MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                       MPI_Status *statuses, MPI_Fint *ierror))

void FN(request_get_status)(MPI_Fint *request, MPI_Fint *flag, MPI_Status *status, MPI_Fint *ierror)
{
    int done = 0, e = CALL(Request_get_status)(FROM_INT(Request, *request), &done, margay_status(status));
    if (e == MPI_SUCCESS && done && margay_any_pending()) margay_pending_complete(*request);
    *flag = margay_logical(done);
    margay_done(ierror, e);
}
SAME_IN_F08(request_get_status, (MPI_Fint *request, MPI_Fint *flag, MPI_Status *status, MPI_Fint *ierror))

void FN(request_get_status_all)(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, MPI_Status *statuses,
                                MPI_Fint *ierror)
{
    int n = *count, done = 0;
    MPI_Request *c = margay_request_in(requests, n);
    int e = CALL(Request_get_status_all)(n, c, &done, margay_statuses(statuses));
    for (int i = 0; e == MPI_SUCCESS && done && i < n && margay_any_pending(); i++)
        margay_pending_complete(requests[i]);
    *flag = margay_logical(done);
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(request_get_status_all,
            (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag, MPI_Status *statuses, MPI_Fint *ierror))

void FN(request_get_status_any)(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,
                                MPI_Status *status, MPI_Fint *ierror)
{
    int n = *count, at = MPI_UNDEFINED, done = 0;
    MPI_Request *c = margay_request_in(requests, n);
    int e = CALL(Request_get_status_any)(n, c, &at, &done, margay_status(status));
    if (e == MPI_SUCCESS) *index = from_one(at);
    if (e == MPI_SUCCESS && done && at >= 0 && at < n && margay_any_pending()) margay_pending_complete(requests[at]);
    *flag = margay_logical(done);
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(request_get_status_any, (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,
                                     MPI_Status *status, MPI_Fint *ierror))

void FN(request_get_status_some)(MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                                 MPI_Status *statuses, MPI_Fint *ierror)
{
    int n = *incount;
    MPI_Request *c = margay_request_in(requests, n);
    int e = CALL(Request_get_status_some)(n, c, outcount, indices, margay_statuses(statuses));
    for (int i = 0; is_done(e) && *outcount != MPI_UNDEFINED && i < *outcount; i++) {
        if (margay_any_pending()) margay_pending_complete(requests[indices[i]]);
        indices[i]++;
    }
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(request_get_status_some, (MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount, MPI_Fint *indices,
                                      MPI_Status *statuses, MPI_Fint *ierror))

void FN(request_free)(MPI_Fint *request, MPI_Fint *ierror)
{
    MPI_Request c = FROM_INT(Request, *request);
    int e = CALL(Request_free)(&c);
    if (e == MPI_SUCCESS && margay_any_pending()) margay_pending_free(*request);
    *request = TO_INT(Request, c);
    margay_done(ierror, e);
}
SAME_IN_F08(request_free, (MPI_Fint *request, MPI_Fint *ierror))

void FN(start)(MPI_Fint *request, MPI_Fint *ierror)
{
    MPI_Request c = FROM_INT(Request, *request);
    if (margay_any_pending()) margay_pending_start(*request);
    int e = CALL(Start)(&c);
    *request = TO_INT(Request, c);
    margay_done(ierror, e);
}
SAME_IN_F08(start, (MPI_Fint *request, MPI_Fint *ierror))

void FN(startall)(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierror)
{
    int n = *count;
    MPI_Request *c = margay_request_in(requests, n);
    for (int i = 0; i < n && margay_any_pending(); i++) margay_pending_start(requests[i]);
    int e = CALL(Startall)(n, c);
    margay_request_out(requests, c, n);
    free(c);
    margay_done(ierror, e);
}
SAME_IN_F08(startall, (MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierror))
