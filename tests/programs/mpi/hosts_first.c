/* The first message to a rank of another host is short, and its sender computes afterwards until the receiver says that it has come, by a file: the
 * argument. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
    int rank, word = 7;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count != 2) MPI_Abort(MPI_COMM_WORLD, 1);
    if (rank == 0) {
        /* The receiver waits by now. */
        usleep(500 * 1000);
        MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        for (int i = 0; access(words[1], F_OK) != 0; i++) {
            if (i == 3000) {
                fputs("the message has not come within 30 s\n", stderr);
                MPI_Abort(MPI_COMM_WORLD, 2);
            }
            usleep(10 * 1000);
        }
    } else {
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        int file = open(words[1], O_CREAT | O_WRONLY, 0600);
        if (word != 7 || file < 0) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Finalize();
    return 0;
}
