/*
 * Breadth-first search of a graph level by level: members claim vertices by atomics, and append them to the next level by an atomic
 * counter one by one, or by a critical section some at a time. The distances do not depend on the order.
 */
#include "../kernels.h"

enum { VERTICES = 48000, DEGREE = 6, SOME = 32 };

static int edges[VERTICES][DEGREE], distance[VERTICES], expected[VERTICES], claimed[VERTICES], queue[2][VERTICES];

/* Whether the caller is the first to claim this vertex. */
static inline int claim(int vertex) {
    int before;
    if (__atomic_load_n(&claimed[vertex], __ATOMIC_RELAXED)) return 0;
#pragma omp atomic capture
    { before = claimed[vertex]; claimed[vertex] = 1; }
    return !before;
}

static void sequential(void) {
    int begin = 0, end = 1;
    queue[0][0] = 0;
    distance[0] = 1;
    while (begin < end) {
        const int vertex = queue[0][begin++];
        for (int n = 0; n < DEGREE; n++) {
            const int to = edges[vertex][n];
            if (distance[to]) continue;
            distance[to] = distance[vertex] + 1;
            queue[0][end++] = to;
        }
    }
}

static void by_atomic(void) {
    int count = 1;
    queue[0][0] = 0;
    distance[0] = claimed[0] = 1;
    for (int level = 0; count; level++) {
        const int *from = queue[level & 1], all = count;
        int *to = queue[~level & 1];
        count = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 64) shared(count)
        for (int n = 0; n < all; n++)
            for (int edge = 0; edge < DEGREE; edge++) {
                const int vertex = edges[from[n]][edge];
                if (!claim(vertex)) continue;
                int place;
                distance[vertex] = level + 2;
#pragma omp atomic capture
                place = count++;
                to[place] = vertex;
            }
    }
}

static void by_critical(void) {
    int counts[2] = {1, 0};
    queue[0][0] = 0;
    distance[0] = claimed[0] = 1;
#pragma omp parallel num_threads(threads)
    for (int level = 0; counts[level & 1]; level++) {
        const int *from = queue[level & 1], all = counts[level & 1];
        int *to = queue[~level & 1], *count = &counts[~level & 1], found[SOME], have = 0;
#pragma omp for schedule(dynamic, 64)
        for (int n = 0; n < all; n++)
            for (int edge = 0; edge < DEGREE; edge++) {
                const int vertex = edges[from[n]][edge];
                if (!claim(vertex)) continue;
                distance[vertex] = level + 2;
                found[have++] = vertex;
                if (have < SOME) continue;
#pragma omp critical
                {
                    memcpy(to + *count, found, sizeof found);
                    *count += have;
                }
                have = 0;
            }
        if (have) {
#pragma omp critical
            {
                memcpy(to + *count, found, (size_t)have * sizeof *found);
                *count += have;
            }
        }
#pragma omp barrier
#pragma omp single
        counts[level & 1] = 0;
    }
}

static void prepare(void) {
    memset(distance, 0, sizeof distance);
    memset(claimed, 0, sizeof claimed);
}

static long wrong(void) { return kernels_differ(distance, expected, sizeof distance); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "levels", openmp_symbol);
    for (int vertex = 0; vertex < VERTICES; vertex++)
        for (int n = 0; n < DEGREE; n++) {
            const uint64_t random = threads_mix((uint64_t)(vertex * DEGREE + n));
            /* Mostly neighbours, so that there are many levels. */
            edges[vertex][n] = n < 4 ? (int)((uint64_t)vertex + random % 1600) % VERTICES : (int)(((uint64_t)vertex + VERTICES - random % 800) % VERTICES);
        }
    prepare();
    sequential();
    memcpy(expected, distance, sizeof distance);
    threads_measure("atomic", "us", 1e6, prepare, by_atomic, wrong);
    threads_measure("critical", "us", 1e6, prepare, by_critical, wrong);
    return suite_failed;
}
