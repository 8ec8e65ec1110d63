/* Many send long and short messages to a rank that takes them from anybody: each receive holds one message and nothing
 * of another one, not even behind it. Usage: wildcards <messages> */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 5000, FILL = 0xA5, POSTED = 4 };

static int length(long i, int from) { return (int)((i * 7 + from) % 3 ? 32 : 1000 + (i * 131 + from * 17) % 4000); }

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long messages = strtol(argv[1], NULL, 10);
    if (rank == 0) {
        static unsigned char data[POSTED][ROOM];
        long next[64] = {0}, total = messages * (size - 1);
        MPI_Request requests[POSTED];
        MPI_Status status;
        for (long i = 0; i < total + POSTED; i++) {
            int at = (int)(i % POSTED), n;
            unsigned char *p = data[at];
            if (i >= POSTED) {
                MPI_Wait(&requests[at], &status);
                MPI_Get_count(&status, MPI_BYTE, &n);
                int from = status.MPI_SOURCE, good = n == length(next[from]++, from);
                for (int k = 0; k < ROOM; k++) good &= p[k] == (k < n ? from : FILL);
                if (!good) {
                    fprintf(stderr, "message %ld of rank %d, %d bytes: wrong data, or data behind it\n", next[from], from, n);
                    MPI_Abort(MPI_COMM_WORLD, 3);
                }
            }
            memset(p, FILL, ROOM);
            if (i < total) MPI_Irecv(p, ROOM, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[at]);
        }
    } else {
        unsigned char data[ROOM];
        memset(data, rank, ROOM);
        for (long i = 0; i < messages; i++) MPI_Send(data, length(i, rank), MPI_BYTE, 0, (int)(i % 5), MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
