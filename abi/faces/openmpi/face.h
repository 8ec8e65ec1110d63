/* How Open MPI keeps the inner words of a status. */
static inline uint64_t status_count(const MPI_Status *status)
{
    return status->_ucount;
}

static inline int status_cancelled(const MPI_Status *status)
{
    return status->_cancelled != 0;
}

static inline void set_status(MPI_Status *status, uint64_t count, int cancelled)
{
    status->_cancelled = cancelled;
    status->_ucount = count;
}
