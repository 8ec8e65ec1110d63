/* Makes many calls, so slowly that none is only counted: MESSAGES messages from rank 0 to rank 1
   and as many back, a barrier after each hundred, and a late sender now and then. */
#include <mpi.h>
#include <stdlib.h>

/* Without a call. */
static volatile double sink;
static void compute(int turns) {
    for (int i = 0; i < turns; i++)
        sink = sink * 0.5 + i;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, messages = atoi(argv[1]), value = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < messages; i++) {
        compute(i % 1000 == 0 && rank == 0 ? 100000 : 700);
        if (rank == 0) {
            MPI_Send(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD); /* LINE send */
            compute(700);
            MPI_Recv(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            compute(700);
            MPI_Send(&value, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
        }
        if (i % 100 == 99)
            MPI_Barrier(MPI_COMM_WORLD); /* LINE barrier */
    }
    MPI_Finalize();
}
