// Ranks on several hosts: who is where, messages of all lengths in both directions, memory within a
// host, and a window over all. Arguments: ranks on each host.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "rank %d, line %d: %s\n", me, __LINE__, #what);                         \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                           \
        }                                                                                           \
    } while (0)

static int me, size;

static unsigned char byte_of(int from, size_t length, size_t at) {
    return (unsigned char)(from * 31 + length * 7 + at);
}

static void lengths(void) {
    static const size_t some[] = {0,    1,    40,    41,    4095,   4096,    4097,    65535, 65536,
                                  65537, 70000, 262144, 300001, 1048576, 5000003};
    const size_t most = 5000003;
    unsigned char *out = malloc(most), *in = malloc(most);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        size_t length = some[i];
        for (size_t at = 0; at < length; at++) out[at] = byte_of(me, length, at);
        for (int by = 1; by < size; by++) {
            int to = (me + by) % size, from = (me - by + size) % size;
            MPI_Status status;
            int count;
            memset(in, 0, length);
            MPI_Sendrecv(out, (int)length, MPI_BYTE, to, by, in, (int)length, MPI_BYTE, from, by,
                         MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            CHECK(count == (int)length && status.MPI_SOURCE == from && status.MPI_TAG == by);
            for (size_t at = 0; at < length; at++) CHECK(in[at] == byte_of(from, length, at));
        }
    }
    free(out);
    free(in);
}

/* All send to all at once, more than any buffer holds, and nobody receives before. */
static void flood(void) {
    enum { EACH = 40, LENGTH = 30000 };
    MPI_Request *requests = malloc(sizeof *requests * 2 * EACH * size);
    unsigned char *in = malloc((size_t)EACH * LENGTH * size), *out = malloc(LENGTH);
    int n = 0;
    memset(out, me + 1, LENGTH);
    for (int k = 0; k < EACH; k++)
        for (int to = 0; to < size; to++)
            MPI_Isend(out, LENGTH, MPI_BYTE, to, k, MPI_COMM_WORLD, &requests[n++]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = EACH - 1; k >= 0; k--)
        for (int from = 0; from < size; from++)
            MPI_Irecv(in + ((size_t)k * size + from) * LENGTH, LENGTH, MPI_BYTE, from, k,
                      MPI_COMM_WORLD, &requests[n++]);
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    for (int k = 0; k < EACH; k++)
        for (int from = 0; from < size; from++)
            for (int at = 0; at < LENGTH; at += 997)
                CHECK(in[((size_t)k * size + from) * LENGTH + at] == (unsigned char)(from + 1));
    free(requests);
    free(in);
    free(out);
}

static void memory(int each) {
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int here, rank;
    MPI_Comm_size(host, &here);
    MPI_Comm_rank(host, &rank);
    CHECK(here == each);
    char own[MPI_MAX_PROCESSOR_NAME] = "", first[MPI_MAX_PROCESSOR_NAME];
    int len;
    MPI_Get_processor_name(own, &len);
    memcpy(first, own, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, host);
    CHECK(strcmp(own, first) == 0);
    MPI_Win window;
    int *base, *all;
    MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, host, &base, &window);
    *base = me;
    MPI_Win_fence(0, window);
    MPI_Aint bytes;
    int unit, leader = me;
    MPI_Win_shared_query(window, 0, &bytes, &unit, &all);
    MPI_Bcast(&leader, 1, MPI_INT, 0, host);
    CHECK(all[0] == leader && all[rank] == me);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    for (int i = 0; i < 50; i++) {
        int sum = 0, one = 1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, host);
        CHECK(sum == here);
    }
    MPI_Comm_free(&host);
    // A window of ranks that share no memory: one-sided communication is messages.
    MPI_Win_allocate(sizeof(int) * size, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    for (int i = 0; i < size; i++) base[i] = -1;
    MPI_Win_fence(0, window);
    for (int to = 0; to < size; to++) MPI_Put(&me, 1, MPI_INT, to, me, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < size; i++) CHECK(base[i] == i);
    MPI_Win_free(&window);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int each = argc > 1 ? atoi(argv[1]) : 1;
    lengths();
    flood();
    memory(each);
    char name[MPI_MAX_PROCESSOR_NAME];
    int len;
    MPI_Get_processor_name(name, &len);
    printf("rank %d of %d on %s is content\n", me, size, name);
    MPI_Finalize();
    return 0;
}
