/* A program for profiling tools: some sends and reductions. With OWN it is its own tool: it brings its own MPI_Send. */
#include "check.h"

#ifdef OWN
static int calls;

int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)
{
    calls++;
    return PMPI_Send(buf, count, datatype, dest, tag, comm);
}
#endif

int main(int argc, char **argv)
{
    int rank, x = 5;
    MPI_Comm comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 10; i++) {
        if (rank == 0)
            MPI_Send(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        else if (rank == 1)
            MPI_Recv(&x, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    /* The library's own messages do not go through the tool. */
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
#ifdef OWN
    CHECK(calls == (rank == 0 ? 10 : 0));
#endif
    return finish();
}
