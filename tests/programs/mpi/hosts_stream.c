// Ranks send each other messages of many lengths for some seconds, and look at every byte. The
// arguments are the seconds and the longest message in bytes.
#include "check.h"

static unsigned char byte_at(int from, long round, long at) { return (unsigned char)(from * 31 + round * 7 + at * 13 + at / 251); }

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int me, size, goes_on = 1;
    double seconds = atof(argv[1]);
    long longest = atol(argv[2]), wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned char *out = malloc(longest), *in = malloc(longest);
    double start = MPI_Wtime();
    for (long round = 0; goes_on; round++) {
        long length = round % 3 == 0 ? round % 100 : (round * 7919) % longest;
        int to = (me + 1) % size, from = (me + size - 1) % size;
        for (long at = 0; at < length; at++) out[at] = byte_at(me, round, at);
        MPI_Sendrecv(out, length, MPI_BYTE, to, 0, in, length, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (long at = 0; at < length; at++) wrong += in[at] != byte_at(from, round, at);
        if (round == 20 && me == 0) {
            puts("streaming");
            fflush(stdout);
        }
        if (round % 10 == 0) {
            goes_on = me != 0 || MPI_Wtime() - start < seconds;
            MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    CHECK(wrong == 0);
    printf("%d: %ld wrong bytes\n", me, wrong);
    MPI_Finalize();
    return failures != 0;
}
