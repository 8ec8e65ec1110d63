/*
 * Pairs of ranks, r with r + half of all, all at once, for every size from 1 B to 4 MiB: microseconds of one message or operation
 * of the slowest rank.
 *   latency     half of a round trip
 *   oneway      a message in windows of nonblocking ones, each window answered by an empty message; at more than 2 ranks the rate of pairs
 *   bothways    the same in both directions at once
 *   put, get, accumulate, get_accumulate   one operation and its flush
 *   fetch_and_op, compare_and_swap         the same for 8 B
 *   puts, gets                             operations in windows, with one flush
 * One-sided operations are on memory of MPI_Win_allocate, in one epoch of MPI_Win_lock_all; sums are of floats, from 4 B on.
 * With `--data written` a rank writes what it sends before each message or operation, inside of the measured time.
 * Usage: grid_pairs --operation latency --data written|untouched [--batch-ms 3] [--step 4] [--max-bytes 4194304]
 */
#include "bench.h"

enum { WINDOW = 64, WINDOW_BYTES = 16 << 20, TAG = 1, ANSWER = 2 };

typedef struct { char *send, *receive, *base; int bytes, window, peer, is_first, written; MPI_Win win; } Pair;

/* Zeros are as good as anything for moving, and sums of them stay what they are. */
static void write_anew(Pair *p, int n) {
    if (p->written) memset(p->send + (size_t)n * (size_t)p->bytes, 0, (size_t)p->bytes);
}

static void latency(void *context, int calls) {
    Pair *p = context;
    for (int n = 0; n < calls; n++) {
        if (!p->is_first) MPI_Recv(p->receive, p->bytes, MPI_BYTE, p->peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        write_anew(p, 0);
        MPI_Send(p->send, p->bytes, MPI_BYTE, p->peer, TAG, MPI_COMM_WORLD);
        if (p->is_first) MPI_Recv(p->receive, p->bytes, MPI_BYTE, p->peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void windows(Pair *p, int calls, int sends, int receives) {
    MPI_Request requests[2 * WINDOW];
    size_t bytes = (size_t)p->bytes;
    for (int n = 0; n < calls; n++) {
        int open = 0;
        for (int m = 0; receives && m < p->window; m++)
            MPI_Irecv(p->receive + bytes * (size_t)m, p->bytes, MPI_BYTE, p->peer, TAG, MPI_COMM_WORLD, &requests[open++]);
        for (int m = 0; sends && m < p->window; m++) {
            write_anew(p, m);
            MPI_Isend(p->send + bytes * (size_t)m, p->bytes, MPI_BYTE, p->peer, TAG, MPI_COMM_WORLD, &requests[open++]);
        }
        MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
        if (p->is_first) MPI_Recv(NULL, 0, MPI_BYTE, p->peer, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(NULL, 0, MPI_BYTE, p->peer, ANSWER, MPI_COMM_WORLD);
    }
}

static void oneway(void *context, int calls) {
    Pair *p = context;
    windows(p, calls, p->is_first, !p->is_first);
}
static void bothways(void *context, int calls) { windows(context, calls, 1, 1); }

/* Operations of the first of a pair, `count` of them before each flush. */
#define ONE_SIDED(name, count, operation) \
    static void name(void *context, int calls) { \
        Pair *p = context; \
        for (int n = 0; p->is_first && n < calls; n++) { \
            for (int m = 0; m < (count); m++) { \
                size_t at = (size_t)m * (size_t)p->bytes; \
                write_anew(p, m); \
                operation; \
            } \
            MPI_Win_flush(p->peer, p->win); \
        } \
    }

#define PUT MPI_Put(p->send + at, p->bytes, MPI_BYTE, p->peer, (MPI_Aint)at, p->bytes, MPI_BYTE, p->win)
#define GET MPI_Get(p->receive + at, p->bytes, MPI_BYTE, p->peer, (MPI_Aint)at, p->bytes, MPI_BYTE, p->win)
#define FLOATS(place) (place), p->bytes / 4, MPI_FLOAT

ONE_SIDED(put, 1, PUT)
ONE_SIDED(get, 1, GET)
ONE_SIDED(puts_in_windows, p->window, PUT)
ONE_SIDED(gets_in_windows, p->window, GET)
ONE_SIDED(accumulate, 1, MPI_Accumulate(FLOATS(p->send + at), p->peer, 0, p->bytes / 4, MPI_FLOAT, MPI_SUM, p->win))
ONE_SIDED(get_accumulate, 1, MPI_Get_accumulate(FLOATS(p->send + at), FLOATS(p->receive + at), p->peer, 0, p->bytes / 4, MPI_FLOAT, MPI_SUM, p->win))
ONE_SIDED(fetch_and_op, 1, MPI_Fetch_and_op(p->send + at, p->receive, MPI_INT64_T, p->peer, 0, MPI_SUM, p->win))
ONE_SIDED(compare_and_swap, 1, MPI_Compare_and_swap(p->send + at, p->send + at, p->receive, MPI_INT64_T, p->peer, 0, p->win))

typedef enum { MESSAGES, MOVES, SUMS, WORDS } Kind;
static const struct { const char *name; void (*body)(void *, int); Kind kind; int in_windows; } operations[] = {
    {"latency", latency, MESSAGES, 0}, {"oneway", oneway, MESSAGES, 1}, {"bothways", bothways, MESSAGES, 1},
    {"put", put, MOVES, 0}, {"get", get, MOVES, 0}, {"puts", puts_in_windows, MOVES, 1}, {"gets", gets_in_windows, MOVES, 1},
    {"accumulate", accumulate, SUMS, 0}, {"get_accumulate", get_accumulate, SUMS, 0},
    {"fetch_and_op", fetch_and_op, WORDS, 0}, {"compare_and_swap", compare_and_swap, WORDS, 0}
};

/* One call with contents of its own, checked whole where the data arrives. */
static void verify(void (*body)(void *, int), Kind kind, Pair *p, const char *name) {
    size_t bytes = (size_t)p->bytes * (size_t)p->window;
    const int written = p->written;
    /* The first of a pair may still be busy with the operations that were measured last. */
    MPI_Barrier(MPI_COMM_WORLD);
    p->written = 0;
    memset(p->receive, 0, bytes);
    for (size_t n = 0; kind == SUMS && n < bytes / 4; n++) {
        ((float *)(void *)p->send)[n] = (float)(n % 61);
        ((float *)(void *)p->base)[n] = 0.5f;
    }
    if (kind == WORDS) {
        *(int64_t *)(void *)p->send = 41;
        *(int64_t *)(void *)p->base = 41;
    }
    if (kind == MESSAGES || kind == MOVES) bench_fill(p->send, bytes, (unsigned)bench_rank);
    if (kind == MOVES) bench_fill(p->base, bytes, (unsigned)bench_rank + 100);
    if (kind != MESSAGES) MPI_Win_sync(p->win);
    MPI_Barrier(MPI_COMM_WORLD);
    body(p, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (kind != MESSAGES) MPI_Win_sync(p->win);
    int gets = body == get || body == gets_in_windows;
    if (kind == MESSAGES && (body != oneway || !p->is_first)) bench_check(p->receive, bytes, (unsigned)p->peer, name);
    if (kind == MOVES && gets && p->is_first) bench_check(p->receive, bytes, (unsigned)p->peer + 100, name);
    if (kind == MOVES && !gets && !p->is_first) bench_check(p->base, bytes, (unsigned)p->peer, name);
    for (size_t n = 0; kind == SUMS && n < bytes / 4; n++) {
        if (!p->is_first && ((float *)(void *)p->base)[n] != (float)(n % 61) + 0.5f) bench_fail(name);
        if (p->is_first && body == get_accumulate && ((float *)(void *)p->receive)[n] != 0.5f) bench_fail(name);
    }
    if (kind == WORDS && !p->is_first && *(int64_t *)(void *)p->base != (body == fetch_and_op ? 82 : 41)) bench_fail(name);
    if (kind == WORDS && p->is_first && *(int64_t *)(void *)p->receive != 41) bench_fail(name);
    MPI_Barrier(MPI_COMM_WORLD);
    memset(p->send, 0, bytes);
    p->written = written;
}

int main(int argc, char **argv) {
    bench_start(&argc, &argv, MPI_THREAD_SINGLE);
    if (bench_ranks % 2 != 0) bench_fail("grid_pairs runs on an even number of ranks");
    const char *name = bench_option(argc, argv, "--operation", "latency"), *data = bench_option(argc, argv, "--data", "untouched");
    const int largest = atoi(bench_option(argc, argv, "--max-bytes", "4194304")), step = atoi(bench_option(argc, argv, "--step", "4"));
    if (step < 2) bench_fail("--step takes 2 or more");
    size_t o = 0, operations_count = sizeof operations / sizeof operations[0];
    while (o < operations_count && strcmp(operations[o].name, name) != 0) o++;
    if (o == operations_count) bench_fail("there is no such operation");
    const Kind kind = operations[o].kind;
    size_t room = operations[o].in_windows ? WINDOW_BYTES : (size_t)largest;
    if (room < (size_t)largest) room = (size_t)largest;
    Pair p = {.send = bench_buffer(room, 0), .receive = bench_buffer(room, 0), .win = MPI_WIN_NULL,
              .peer = (bench_rank + bench_ranks / 2) % bench_ranks, .is_first = bench_rank < bench_ranks / 2,
              .written = strcmp(data, "written") == 0};
    if (kind != MESSAGES) {
        MPI_Win_allocate((MPI_Aint)room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p.base, &p.win);
        memset(p.base, 0, room);
        MPI_Win_lock_all(0, p.win);
    }
    for (long size = kind == WORDS ? 8 : 1; size <= largest; size *= step) {
        if (kind == SUMS && size < 4) continue;
        double median, best;
        p.bytes = (int)size;
        p.window = !operations[o].in_windows ? 1 : size * WINDOW > WINDOW_BYTES ? WINDOW_BYTES / (int)size : WINDOW;
        if (p.window < 1) p.window = 1;
        verify(operations[o].body, kind, &p, name);
        bench_measure(operations[o].body, &p, 1, &median, &best);
        double us = 1e6 / (operations[o].body == latency ? 2 : p.window);
        bench_report(name, data, (size_t)size, "us", median * us, best * us);
        if (kind == WORDS) break;
    }
    if (kind != MESSAGES) {
        MPI_Win_unlock_all(p.win);
        MPI_Win_free(&p.win);
    }
    bench_free(p.send, 0);
    bench_free(p.receive, 0);
    MPI_Finalize();
    return 0;
}
