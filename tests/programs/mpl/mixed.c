/* MPL, NX and MPI in one program: none takes another's messages. */
#include "check.h"
#include <mpi.h>
#include <nx.h>

int main(void) {
    mpc_environ(&tasks, &me);
    CHECK(mynode() == me && numnodes() == tasks);
    MPI_Init(NULL, NULL);
    int right = (me + 1) % tasks, left = (me + tasks - 1) % tasks;
    for (int i = 0; i < 200; i++) {
        int a = 1000 + i, b = 2000 + i, c = 3000 + i, in_a = 0, in_b = 0, in_c = 0, source = DONTCARE, type = DONTCARE, id;
        size_t n;
        MPI_Request request;
        MPI_Irecv(&in_a, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        long mid = irecv(-1, &in_b, sizeof in_b);
        CHECK(mpc_recv(&in_c, sizeof in_c, &source, &type, &id) == 0);
        CHECK(mpc_bsend(&c, sizeof c, right, 3) == 0);
        csend(3, &b, sizeof b, right, 0);
        MPI_Send(&a, 1, MPI_INT, right, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        msgwait(mid);
        CHECK(mpc_wait(&id, &n) == 0);
        CHECK(in_a == 1000 + i && in_b == 2000 + i && in_c == 3000 + i && source == left && type == 3);
        double x = 1, y, work;
        gdsum(&x, 1, &work);
        CHECK(mpc_combine(&x, &y, sizeof x, d_vadd, ALLGRP) == 0);
        MPI_Allreduce(&y, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        CHECK(x == (double)tasks * tasks * tasks);
    }
    MPI_Finalize();
    gsync();
    all_is_well();
}
