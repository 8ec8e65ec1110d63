/* What a rank's process holds in memory, in KiB: "<stage> <private> <shared>", at each stage.
 * Private is what the process has written, Private_Dirty in /proc/self/smaps: a page of a library that nobody has written is the
 * file's, even while this process is the only one that has it. Shared is what this process has touched of the job's memory,
 * counted in full although other ranks hold the same pages.
 * Compiled with -DPLAIN it is the same program without MPI, and says "plain" only. */
#ifndef PLAIN
#include <mpi.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank;

static void look(const char *stage)
{
    char line[512], field[64];
    long kib, private = 0, shared = 0;
    int ours = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63[A-Za-z_]: %ld kB", field, &kib) == 2) {
            if (!strcmp(field, "Rss") && ours) shared += kib;
            if (!strcmp(field, "Private_Dirty") && !ours) private += kib;
        } else ours = strstr(line, "/memfd:") != NULL;
    }
    fclose(file);
    printf("%s %ld %ld\n", stage, private, shared);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, malloc(BUFSIZ), _IOFBF, BUFSIZ);
#ifdef PLAIN
    (void)argc, (void)argv, (void)rank;
    look("plain");
#else
    int size;
    MPI_Init(&argc, &argv);
    look("idle");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    look("barrier");
    static char out[1024], in[1024];
    static const int lengths[] = {8, 1024, 0, 100};
    for (int round = 0; round < 8; round++)
        for (int k = 1; k < size; k++) {
            int to = (rank + k) % size, from = (rank + size - k) % size, n = lengths[round % 4];
            MPI_Sendrecv(out, n, MPI_BYTE, to, round, in, n, MPI_BYTE, from, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    MPI_Barrier(MPI_COMM_WORLD);
    look("talked");
    MPI_Finalize();
#endif
    return 0;
}
