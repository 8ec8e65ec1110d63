/*
 * What the programs of the suite that use MPI share, beside what all share (report.h): joining and leaving the job. The
 * lines are reported on rank 0; `library` is the first line of MPI_Get_library_version.
 */
#ifndef SUITE_H
#define SUITE_H
#include <mpi.h>

#include "report.h"

static int suite_ranks;

static void suite_abort(void) { MPI_Abort(MPI_COMM_WORLD, 3); }
static void suite_leave(void) { MPI_Finalize(); }

/* Joins the job and reads the options; all ranks see the same arguments. */
static inline void suite_start(int *argc, char ***argv, const char *program, SuiteOption *options, int count) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &suite_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &suite_ranks);
    suite_read(*argc, *argv, program, options, count);
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\r\n")] = '\0';
    if (suite_rank == 0) printf("library %s\n", library);
}

/* Leaves the job; the result for `main`, which is the same on all ranks. */
static inline int suite_end(void) {
    int failed;
    MPI_Allreduce(&suite_failed, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}
#endif
