/* NX and MPI in one program: neither takes the other's messages, whichever comes first. */
#include "check.h"
#include <mpi.h>

int main(int argc, char **argv) {
    (void)argv;
    long me, nodes, value, work;
    int rank, size, other, flag;
    if (argc > 1) MPI_Init(NULL, NULL); /* first, or after NX */
    me = mynode();
    nodes = numnodes();
    value = me;
    gisum(&value, 1, &work);
    CHECK(value == nodes * (nodes - 1) / 2);
    if (argc == 1) MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(rank == me && size == nodes);
    for (int i = 0; i < 200; i++) {
        int right = (rank + 1) % size, left = (rank + size - 1) % size, out = 1000 + i, in = -1;
        long nx_out = 2000 + i, nx_in = -1;
        MPI_Request request;
        MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        long mid = irecv(-1, &nx_in, sizeof nx_in);
        csend(3, &nx_out, sizeof nx_out, right, 0);
        MPI_Send(&out, 1, MPI_INT, right, 3, MPI_COMM_WORLD);
        MPI_Status status;
        MPI_Wait(&request, &status);
        msgwait(mid);
        CHECK(in == 1000 + i && status.MPI_SOURCE == left && nx_in == 2000 + i && infonode() == left);
        double x = 1, y;
        gdsum(&x, 1, (double *)&work);
        MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Reduce(&x, &y, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        CHECK(x == (double)nodes * nodes);
        gsync();
    }
    MPI_Finalize();
    MPI_Finalized(&flag);
    CHECK(flag);
    /* NX goes on without MPI. */
    value = 1;
    gisum(&value, 1, &work);
    CHECK(value == nodes);
    csend(4, &rank, sizeof rank, (me + 1) % nodes, 0);
    crecv(4, &other, sizeof other);
    CHECK(other == (me + nodes - 1) % nodes);
    all_is_well();
}
