/* Rank 1 posts a receive and computes without calling MPI; rank 0 sends synchronously and reports
 * how long that took, and whether rank 1 was still computing when it was done. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 4 << 20 };

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *buffer = calloc(BYTES, 1);
    double ended[2] = {0, 0};
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 1) MPI_Irecv(buffer, BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    if (rank == 0) {
        for (int i = 0; i < BYTES; i++) buffer[i] = (char)(i * 7);
        MPI_Ssend(buffer, BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    } else {
        while (MPI_Wtime() - begun < 2.0) { }
    }
    /* One clock for both: a rank that leaves the barrier late must not seem to be done early. */
    ended[rank] = MPI_Wtime();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; rank == 1 && i < BYTES; i++)
        if (buffer[i] != (char)(i * 7)) { printf("byte %d is wrong\n", i); MPI_Abort(MPI_COMM_WORLD, 1); }
    MPI_Allreduce(MPI_IN_PLACE, ended, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) printf("%s\n", ended[0] < ended[1] ? "sent while rank 1 computed" : "sent after rank 1 computed");
    free(buffer);
    MPI_Finalize();
    return 0;
}
