/* Makes many calls, so slowly that none is only counted: MESSAGES messages from rank 0 to rank 1
   and as many back, a hundred at a time, with a barrier after them, and a late sender now and
   then. */
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
    for (int i = 0; i < messages; i += 100) {
        compute(i % 1000 == 0 && rank == 0 ? 100000 : 700);
        for (int k = 0; k < 200; k++) {
            compute(700);
            if ((k < 100) == (rank == 0))
                MPI_Send(&value, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD);
            else
                MPI_Recv(&value, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
}
