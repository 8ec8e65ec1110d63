/* Random traffic among many ranks, each of which has more partners than rings to others; which are busy changes from round to round.
 * Every message is checked: its bytes, and its place among those of its sender.
 * Arguments: <rounds> <seed> <deaths> <kept>. <deaths> ranks kill themselves in the middle, the others go on. With <kept> 1, a rank that
 * dies takes with it what it keeps of earlier rounds.
 * At the end rank 0 prints the KiB of shared memory that the job took for each rank. */
#include <mpi.h>
#include <mpi_ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 6000, MOST_MESSAGES = 80, MOST_DISTANCES = 6 };

static int rank, size, kept;

static void require(int holds, const char *what, long a, long b)
{
    if (holds) return;
    fprintf(stderr, "rank %d: %s (%ld, %ld)\n", rank, what, a, b);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* The same numbers in all ranks. */
static unsigned long long state;
static unsigned below(unsigned n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % n;
}

static void fill(unsigned char *data, int bytes, int from, int round, int number)
{
    for (int i = 0; i < bytes; i++) data[i] = (unsigned char)(from * 31 + round * 7 + number * 13 + i);
}

/* When a rank dies: in the round before this one, or never. */
static int *dies, rounds;

/* Whether a message of or to a rank in a round may be lost. */
static int may_fail(int who, int round) { return dies[who] <= round + 1 || (kept && dies[who] <= rounds); }

static void round_of_messages(int round, unsigned char *out, unsigned char *in, MPI_Request *requests)
{
    int distances = 1 + (int)below(MOST_DISTANCES), n = 0;
    int distance[MOST_DISTANCES], messages[MOST_DISTANCES], bytes[MOST_DISTANCES];
    for (int d = 0; d < distances; d++) {
        distance[d] = 1 + (int)below((unsigned)size - 1);
        messages[d] = 1 + (int)below(MOST_MESSAGES);
        bytes[d] = (int)below(below(4) ? 100 : MOST_BYTES);
    }
    for (int d = 0; d < distances; d++) {
        int from = (rank + size - distance[d]) % size;
        for (int m = 0; m < messages[d]; m++, n++)
            MPI_Irecv(in + (size_t)n * MOST_BYTES, bytes[d], MPI_BYTE, from, d, MPI_COMM_WORLD, &requests[n]);
    }
    int receives = n;
    for (int d = 0; d < distances; d++)
        for (int m = 0; m < messages[d]; m++, n++) {
            if (dies[rank] == round + 1 && n == receives + messages[d] / 2) raise(SIGKILL);
            unsigned char *data = out + (size_t)(n - receives) * MOST_BYTES;
            fill(data, bytes[d], rank, round, m);
            MPI_Isend(data, bytes[d], MPI_BYTE, (rank + distance[d]) % size, d, MPI_COMM_WORLD, &requests[n]);
        }
    n = 0;
    for (int d = 0; d < distances; d++)
        for (int m = 0; m < messages[d]; m++, n++) {
            int from = (rank + size - distance[d]) % size, got, code;
            MPI_Status status;
            code = MPI_Wait(&requests[n], &status);
            if (code) {
                require(may_fail(from, round), "a receive from a rank that lives failed", from, code);
                continue;
            }
            MPI_Get_count(&status, MPI_BYTE, &got);
            require(got == bytes[d], "a message has another length", got, bytes[d]);
            fill(out + (size_t)(receives + n) * MOST_BYTES, got, from, round, m);
            require(!memcmp(in + (size_t)n * MOST_BYTES, out + (size_t)(receives + n) * MOST_BYTES, (size_t)got),
                    "a message is not the next one", from, m);
        }
    for (int d = 0; d < distances; d++)
        for (int m = 0; m < messages[d]; m++, n++) {
            int to = (rank + distance[d]) % size;
            int code = MPI_Wait(&requests[n], MPI_STATUS_IGNORE);
            require(!code || may_fail(to, round), "a send to a rank that lives failed", to, code);
        }
}

int main(int argc, char **argv)
{
    int deaths = argc > 3 ? atoi(argv[3]) : 0;
    rounds = argc > 1 ? atoi(argv[1]) : 10;
    kept = argc > 4 && atoi(argv[4]);
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    dies = malloc((size_t)size * sizeof *dies);
    for (int who = 0; who < size; who++) dies[who] = rounds + 1;
    for (int d = 0; d < deaths; d++) dies[1 + (int)below((unsigned)size - 1)] = 1 + (int)below((unsigned)rounds);
    size_t most = (size_t)MOST_DISTANCES * MOST_MESSAGES;
    unsigned char *out = malloc(2 * most * MOST_BYTES), *in = malloc(most * MOST_BYTES);
    MPI_Request *requests = malloc(2 * most * sizeof *requests);
    require(out && in && requests, "no memory", 0, 0);
    for (int round = 0; round < rounds; round++) round_of_messages(round, out, in, requests);
    if (deaths) {
        MPI_Comm living;
        MPIX_Comm_shrink(MPI_COMM_WORLD, &living);
        require(MPI_Barrier(living) == MPI_SUCCESS, "those who live do not meet", 0, 0);
        MPI_Comm_free(&living);
    } else
        MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        struct stat segment;
        const char *descriptor = getenv("MARGAY_SEGMENT_FD");
        require(descriptor && !fstat(atoi(descriptor), &segment), "there is no segment", 0, 0);
        printf("KiB %ld\n", (long)(segment.st_blocks / 2 / size));
        fflush(stdout);
    }
    free(dies), free(out), free(in), free(requests);
    MPI_Finalize();
    return 0;
}
