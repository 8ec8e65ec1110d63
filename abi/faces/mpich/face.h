/* How the MPICH ABI keeps the inner words of a status. */
static inline uint64_t status_count(const MPI_Status *status)
{
    return (uint32_t)status->count_lo | (uint64_t)((uint32_t)status->count_hi_and_cancelled >> 1) << 32;
}

static inline int status_cancelled(const MPI_Status *status)
{
    return status->count_hi_and_cancelled & 1;
}

static inline void set_status(MPI_Status *status, uint64_t count, int cancelled)
{
    status->count_lo = (int)(uint32_t)count;
    status->count_hi_and_cancelled = (int)((uint32_t)(count >> 32) << 1 | (uint32_t)cancelled);
}
