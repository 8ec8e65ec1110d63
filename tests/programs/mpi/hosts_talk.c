// Two ranks send to each other until one of them cannot any more.
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int me, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (long i = 0;; i++) {
        MPI_Sendrecv_replace(&value, 1, MPI_INT, 1 - me, 0, 1 - me, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
        if (i == 1000 && me == 0) {
            puts("talking");
            fflush(stdout);
        }
    }
}
