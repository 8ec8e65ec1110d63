/* What the MPI test programs share: a check that says where it failed, and an end that says "ok" once. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            const char *rank_ = getenv("MARGAY_RANK");                                                         \
            if (failures++ < 10)                                                                               \
                fprintf(stderr, "%s:%d: rank %s: not %s\n", __FILE__, __LINE__, rank_ ? rank_ : "0", #condition); \
        }                                                                                                      \
    } while (0)

/* The class of an error code. */
static inline int class_of(int code)
{
    int class_ = -1;
    MPI_Error_class(code, &class_);
    return class_;
}

/* Finalizes; rank 0 says ok when no rank failed. */
static inline int finish(void)
{
    int all, rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("ok\n");
    MPI_Finalize();
    return all != 0;
}

/* A small generator, the same on all ranks for the same seed. */
static inline unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

#endif
