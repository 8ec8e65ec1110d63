/* Children made by fork: one that calls MPI ends with a line and leaves the message to its parent; one that only computes,
 * executes or exits ends well. */
#include "check.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int child_receives(int rank)
{
    int got = 0;
    MPI_Recv(&got, 1, MPI_INT, !rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}

static int child_finalizes(int rank)
{
    (void)rank;
    MPI_Finalize();
    return 0;
}

static int child_makes_a_session(int rank)
{
    (void)rank;
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    return 0;
}

static int child_computes(int rank)
{
    volatile double sum = rank;
    for (int i = 0; i < 100000; i++)
        sum += i;
    return MPI_Wtime() > 0 ? 0 : 9;
}

static int child_executes(int rank)
{
    (void)rank;
    execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
    return 9;
}

static int end_of_child(int (*run)(int), int rank)
{
    pid_t child = fork();
    if (child == 0)
        exit(run(rank));
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void at_end(void)
{
    int finalized;
    MPI_Finalized(&finalized);
    if (!finalized)
        MPI_Finalize();
}

int main(int argc, char **argv)
{
    int rank, got = 0, sent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    sent = 100 + rank;
    if (argc > 1)
        atexit(at_end);
    MPI_Request request;
    MPI_Isend(&sent, 1, MPI_INT, !rank, 7, MPI_COMM_WORLD, &request);
    if (rank == 0) {
        CHECK(end_of_child(child_computes, rank) == (argc > 1 ? 16 : 0));
        CHECK(end_of_child(child_executes, rank) == 5);
        CHECK(end_of_child(child_receives, rank) == 16);
        CHECK(end_of_child(child_finalizes, rank) == 16);
        CHECK(end_of_child(child_makes_a_session, rank) == 16);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(&got, 1, MPI_INT, !rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == 100 + !rank);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 1)
        printf("ok\n");
    if (argc == 1)
        MPI_Finalize();
    return 0;
}
