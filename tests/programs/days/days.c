/* Programs for bad days; the first argument says which.
 *   deadlock <MiB>          two ranks send to each other before they receive
 *   stuck                   all but the last rank are in a barrier, the last one waits for a message of rank 0
 *   flood <messages> <bytes> every rank sends to rank 0, which is busy elsewhere for a while and then receives in order
 *   ahead <messages> <bytes> rank 0 sends all messages to rank 1, which receives them when the last one has been sent
 *   asleep <messages> <bytes> <file> the same; rank 1 learns of that by a file, outside of the library
 *   shared <messages> <bytes> as ahead, with buffers from MPI_Alloc_mem
 *   late <messages> <bytes> as ahead, and rank 1 begins at once but pauses for up to 0.5 ms before each receive
 *   mourned <messages> <bytes> rank 0 sends ahead to two ranks; one of them dies, the other one receives all
 *   sweep                   transfers and collectives of all sizes with their data checked
 *   unreadable              the same by ranks that no other process of the user may read or write
 *   darkening               transfers only, by ranks that become so on the way
 *   loop                    says that it is ready, then reduces for ever
 *   leave <code>            the last rank leaves without MPI_Finalize, the others reduce for ever
 *   abort <code>            the last rank aborts, the others reduce for ever
 */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int rank, size;

static void require(int holds, const char *what, long a, long b)
{
    if (holds) return;
    fprintf(stderr, "rank %d: %s (%ld, %ld)\n", rank, what, a, b);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void deadlock(long mib)
{
    size_t bytes = (size_t)mib << 20;
    char *out = calloc(bytes, 1), *in = malloc(bytes);
    MPI_Send(out, (int)bytes, MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD);
    MPI_Recv(in, (int)bytes, MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    free(out), free(in);
}

static void flood(long messages, long bytes)
{
    unsigned *data = calloc((size_t)bytes + sizeof *data, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        struct timespec pause = {1, 0};
        nanosleep(&pause, NULL);
        for (long i = 0; i < messages; i++)
            for (int from = 1; from < size; from++) {
                MPI_Recv(data, (int)bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                require(data[0] == (unsigned)(i * size + from), "a message is not the next one", i, from);
            }
    } else
        for (long i = 0; i < messages; i++) {
            data[0] = (unsigned)(i * size + rank);
            MPI_Send(data, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("rank %d maximum %ld KiB\n", rank, usage.ru_maxrss);
    free(data);
}

static void send_ahead(unsigned char *data, long messages, long bytes, int to)
{
    for (long i = 0; i < messages; i++) {
        memset(data, (int)(i * 7 + to), (size_t)bytes);
        MPI_Send(data, (int)bytes, MPI_BYTE, to, 1, MPI_COMM_WORLD);
    }
}

static void receive_all(unsigned char *data, long messages, long bytes)
{
    for (long i = 0; i < messages; i++) {
        MPI_Status status;
        int got;
        MPI_Recv(data, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        require(got == bytes, "a message has another length", i, got);
        for (long b = 0; b < bytes; b++)
            require(data[b] == (unsigned char)(i * 7 + rank), "a message is not the next one", i, b);
    }
}

static void ahead(long messages, long bytes, int shared)
{
    unsigned char *data;
    if (shared) MPI_Alloc_mem(bytes + 1, MPI_INFO_NULL, &data);
    else data = malloc((size_t)bytes + 1);
    if (rank == 0) {
        send_ahead(data, messages, bytes, 1);
        MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        receive_all(data, messages, bytes);
    }
    if (shared) MPI_Free_mem(data);
    else free(data);
}

static void late(long messages, long bytes)
{
    unsigned char *data = malloc((size_t)bytes + 1);
    if (rank == 0) send_ahead(data, messages, bytes, 1);
    else if (rank == 1)
        for (long i = 0; i < messages; i++) {
            struct timespec pause = {0, i * 7919 % 500 * 1000};
            nanosleep(&pause, NULL);
            MPI_Recv(data, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (long b = 0; b < bytes; b++)
                require(data[b] == (unsigned char)(i * 7 + rank), "a message is not the next one", i, b);
        }
    free(data);
}

static void asleep(long messages, long bytes, const char *file)
{
    unsigned char *data = malloc((size_t)bytes + 1);
    struct timespec pause = {0, 1000000};
    if (rank == 0) {
        send_ahead(data, messages, bytes, 1);
        memset(data, 0, (size_t)bytes);
        FILE *done = fopen(file, "w");
        require(done && !fclose(done), "the file cannot be made", 0, 0);
    } else if (rank == 1) {
        while (access(file, F_OK)) nanosleep(&pause, NULL);
        receive_all(data, messages, bytes);
    }
    free(data);
}

static void mourned(long messages, long bytes)
{
    unsigned char *data = malloc((size_t)bytes + 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        for (long i = 0; i < messages; i++) {
            memset(data, (int)(i * 7 + 1), (size_t)bytes);
            MPI_Send(data, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Send(data, (int)bytes, MPI_BYTE, 2, 1, MPI_COMM_WORLD);
        }
        /* All is sent ahead to both: now one may die. A receive from it ends when that is noticed. */
        MPI_Send(NULL, 0, MPI_BYTE, 2, 2, MPI_COMM_WORLD);
        require(MPI_Recv(data, 1, MPI_BYTE, 2, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS, "a dead rank has sent", 0, 0);
        /* What was kept for the dead one is gone, so there is room to go on ahead of the other one. */
        for (long i = messages; i < 2 * messages; i++) {
            memset(data, (int)(i * 7 + 1), (size_t)bytes);
            MPI_Send(data, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        }
        MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        receive_all(data, 2 * messages, bytes);
        puts("all received");
        fflush(stdout);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        raise(SIGKILL);
    }
    free(data);
}

static unsigned char byte(int from, long at, long salt) { return (unsigned char)(from * 37 + at * 11 + (at >> 9) + salt); }

static void fill(unsigned char *data, long n, int from, long salt)
{
    for (long i = 0; i < n; i++) data[i] = byte(from, i, salt);
}

static void check(const unsigned char *data, long n, int from, long salt, const char *what)
{
    for (long i = 0; i < n; i++) require(data[i] == byte(from, i, salt), what, n, i);
}

/* Both ways with the neighbours at once, then one way; the receive is posted first, or late. */
static void transfers(unsigned char *out, unsigned char *in, long n)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Request requests[2];
    fill(out, n, rank, n);
    memset(in, 0, (size_t)n);
    MPI_Irecv(in, (int)n, MPI_BYTE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, (int)n, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check(in, n, left, n, "exchange: wrong byte (size, place)");
    memset(in, 0, (size_t)n);
    for (int turn = 0; turn < 2; turn++)
        if (rank % 2 == turn && rank + 1 - 2 * turn < size)
            MPI_Send(out, (int)n, MPI_BYTE, rank + 1 - 2 * turn, 2, MPI_COMM_WORLD);
        else if (rank % 2 != turn) {
            int from = turn == 0 ? rank - 1 : rank + 1;
            if (from >= size) continue;
            MPI_Probe(from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(in, (int)n, MPI_BYTE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(in, n, from, n, "one way: wrong byte (size, place)");
        }
}

static void collectives(unsigned char *out, unsigned char *in, long n)
{
    int root = size - 1;
    long part = n / size;
    if (rank == root) fill(in, n, root, 1);
    MPI_Bcast(in, (int)n, MPI_BYTE, root, MPI_COMM_WORLD);
    check(in, n, root, 1, "broadcast: wrong byte (size, place)");
    fill(out, n, rank, 2);
    MPI_Alltoall(out, (int)part, MPI_BYTE, in, (int)part, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        for (long i = 0; i < part; i++)
            require(in[r * part + i] == byte(r, rank * part + i, 2), "all to all: wrong byte", n, i);
    MPI_Allgather(out, (int)part, MPI_BYTE, in, (int)part, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) check(in + r * part, part, r, 2, "all gather: wrong byte");
    int32_t *numbers = (int32_t *)out, *sums = (int32_t *)in;
    for (long i = 0; i < n / 4; i++) numbers[i] = (int32_t)(i % 1000 + rank);
    MPI_Allreduce(numbers, sums, (int)(n / 4), MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
    for (long i = 0; i < n / 4; i++)
        require(sums[i] == (int32_t)(size * (i % 1000) + size * (size - 1) / 2), "sum: wrong number", n, i);
    MPI_Reduce(numbers, sums, (int)(n / 4), MPI_INT32_T, MPI_MAX, root, MPI_COMM_WORLD);
    for (long i = 0; rank == root && i < n / 4; i++)
        require(sums[i] == (int32_t)(i % 1000 + size - 1), "maximum: wrong number", n, i);
}

static void hide(void)
{
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static void sweep(int darkening)
{
    static const long sizes[] = {0,     1,     8,      40,     41,     1000,    4096,    5000,    16384,  65536,
                                 65537, 99999, 262144, 524288, 524289, 1 << 20, 3000001, 4 << 20, 16 << 20};
    enum { MOST = 16 << 20 };
    unsigned char *plain[2] = {malloc(MOST), malloc(MOST)}, *shared[2];
    MPI_Alloc_mem(MOST, MPI_INFO_NULL, &shared[0]);
    MPI_Alloc_mem(MOST, MPI_INFO_NULL, &shared[1]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        transfers(plain[0], plain[1], sizes[i]);
        transfers(shared[0], plain[1], sizes[i]);
        transfers(plain[0], shared[1], sizes[i]);
        if (!darkening) collectives(plain[0], plain[1], sizes[i]);
        else if (sizes[i] == 524288) hide();
    }
    MPI_Free_mem(shared[0]);
    MPI_Free_mem(shared[1]);
    free(plain[0]), free(plain[1]);
}

static void reduce_for_ever(void)
{
    for (;;) {
        long one = 1, sum;
        MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    long a = argc > 2 ? strtol(argv[2], NULL, 10) : 0, b = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(what, "deadlock")) deadlock(a);
    else if (!strcmp(what, "stuck")) {
        if (rank < size - 1) MPI_Barrier(MPI_COMM_WORLD);
        else MPI_Recv(&a, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (!strcmp(what, "flood")) flood(a, b);
    else if (!strcmp(what, "ahead")) ahead(a, b, 0);
    else if (!strcmp(what, "shared")) ahead(a, b, 1);
    else if (!strcmp(what, "late")) late(a, b);
    else if (!strcmp(what, "asleep")) asleep(a, b, argv[4]);
    else if (!strcmp(what, "mourned")) mourned(a, b);
    else if (!strcmp(what, "sweep")) sweep(0);
    else if (!strcmp(what, "unreadable")) hide(), sweep(0);
    else if (!strcmp(what, "darkening")) sweep(1);
    else {
        MPI_Barrier(MPI_COMM_WORLD);
        puts("ready");
        fflush(stdout);
        if (!strcmp(what, "leave") && rank == size - 1) _exit((int)a);
        if (!strcmp(what, "abort") && rank == size - 1) MPI_Abort(MPI_COMM_WORLD, (int)a);
        reduce_for_ever();
    }
    MPI_Finalize();
    if (rank == 0) puts("whole");
    return 0;
}
