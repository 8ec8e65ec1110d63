/* Messages to a rank of another host whose sender computes after each until the receiver says that it has come, by a file: the argument and a number.
 * The first is short, and its connection is made meanwhile. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { most = 3000000, ways = 3 };
static const int lengths[] = {4, 60000, 130000, 150000, 200000, 400000, most};
static char bytes[most];

static void send(int way, int length)
{
    MPI_Request request;
    if (way == 0) {
        MPI_Send(bytes, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        return;
    }
    MPI_Isend(bytes, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
    if (way == 1) MPI_Wait(&request, MPI_STATUS_IGNORE);
    else MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
}

int main(int count, char **words)
{
    int rank;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count != 2) MPI_Abort(MPI_COMM_WORLD, 1);
    /* The receiver waits by then. */
    if (rank == 0) usleep(500 * 1000);
    for (int at = 0; at < ways * (int)(sizeof lengths / sizeof *lengths); at++) {
        int length = lengths[at / ways], way = (at + at / ways) % ways;
        char name[4096];
        snprintf(name, sizeof name, "%s.%d", words[1], at);
        if (rank == 0) {
            memset(bytes, at + 1, length);
            send(way, length);
            for (int i = 0; access(name, F_OK) != 0; i++) {
                if (i == 3000) {
                    fprintf(stderr, "a message of %d bytes, sent in way %d, has not come within 30 s\n", length, way);
                    MPI_Abort(MPI_COMM_WORLD, 2);
                }
                usleep(10 * 1000);
            }
        } else {
            MPI_Recv(bytes, length, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            int file = open(name, O_CREAT | O_WRONLY, 0600);
            if (bytes[0] != at + 1 || bytes[length - 1] != at + 1 || file < 0) MPI_Abort(MPI_COMM_WORLD, 3);
            close(file);
        }
    }
    MPI_Finalize();
    return 0;
}
