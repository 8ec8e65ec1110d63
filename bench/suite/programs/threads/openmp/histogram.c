/*
 * Building a tree by histograms, as gradient boosting does: for each node of a level the gradients of its samples are summed by bins in
 * a loop with a reduction of arrays, the best bin splits the node, and another loop sends the samples to the children. Gradients are
 * whole numbers, so that sums do not depend on the order. The figure is for a tree.
 */
#include "../kernels.h"

enum { SAMPLES = 16384, FEATURES = 4, BINS = 32, DEPTH = 5, NODES = 1 << DEPTH, SUMS = FEATURES * BINS };

typedef struct {
    int feature, bin;
} Split;

static unsigned char bins[SAMPLES][FEATURES];
static long gradients[SAMPLES];
static int order[2][SAMPLES], begins[NODES + 1], node_of[SAMPLES], expected_node[SAMPLES];
static Split splits[2 * NODES], expected_splits[2 * NODES];

static inline void __attribute__((always_inline)) add(long *sums, int sample) {
    for (int feature = 0; feature < FEATURES; feature++) sums[feature * BINS + bins[sample][feature]] += gradients[sample];
}

/* The split at which the sums on both sides differ most. */
static Split best(const long *sums) {
    Split split = {0, 0};
    long most = -1;
    for (int feature = 0; feature < FEATURES; feature++) {
        long all = 0, left = 0;
        for (int bin = 0; bin < BINS; bin++) all += sums[feature * BINS + bin];
        for (int bin = 0; bin < BINS - 1; bin++) {
            left += sums[feature * BINS + bin];
            const long gain = labs(2 * left - all);
            if (gain > most) most = gain, split = (Split){feature, bin};
        }
    }
    return split;
}

static inline void __attribute__((always_inline)) send(int sample, int node) {
    node_of[sample] = 2 * node + (bins[sample][splits[node].feature] > splits[node].bin);
}

/* The samples of each node of the next level one after another. */
static void sort(int level) {
    const int *from = order[level & 1];
    int *to = order[~level & 1], first = 2 << level, counts[NODES + 1] = {0};
    if (level + 1 == DEPTH) return;
    for (int n = 0; n < SAMPLES; n++) counts[node_of[n] - first + 1]++;
    for (int node = 0; node < first; node++) counts[node + 1] += counts[node];
    memcpy(begins, counts, sizeof begins);
    for (int n = 0; n < SAMPLES; n++) to[counts[node_of[from[n]] - first]++] = from[n];
}

static void sequential(void) {
    for (int level = 0; level < DEPTH; level++)
        for (int node = 0; node < 1 << level; node++) {
            long sums[SUMS] = {0};
            const int *samples = order[level & 1];
            const int place = (1 << level) + node;
            for (int n = begins[node]; n < begins[node + 1]; n++) add(sums, samples[n]);
            splits[place] = best(sums);
            for (int n = begins[node]; n < begins[node + 1]; n++) send(samples[n], place);
            if (node + 1 == 1 << level) sort(level);
        }
}

static void body(void) {
    for (int level = 0; level < DEPTH; level++)
        for (int node = 0; node < 1 << level; node++) {
            long sums[SUMS] = {0};
            const int *samples = order[level & 1];
            const int place = (1 << level) + node, begin = begins[node], end = begins[node + 1];
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sums[:SUMS])
            for (int n = begin; n < end; n++) add(sums, samples[n]);
            splits[place] = best(sums);
#pragma omp parallel for num_threads(threads) schedule(static)
            for (int n = begin; n < end; n++) send(samples[n], place);
            if (node + 1 == 1 << level) sort(level);
        }
}

static void prepare(void) {
    memset(splits, 0, sizeof splits);
    memset(node_of, 0, sizeof node_of);
    begins[0] = 0, begins[1] = SAMPLES;
    for (int n = 0; n < SAMPLES; n++) order[0][n] = n;
}

static long wrong(void) {
    return kernels_differ(node_of, expected_node, sizeof node_of) + kernels_differ(splits, expected_splits, sizeof splits);
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "histogram", openmp_symbol);
    for (int n = 0; n < SAMPLES; n++) {
        const uint64_t random = threads_mix((uint64_t)n);
        for (int feature = 0; feature < FEATURES; feature++) bins[n][feature] = (unsigned char)(random >> (8 * feature)) % BINS;
        gradients[n] = (long)(random >> 40) % 1000 - 500 + 10 * bins[n][1] - 5 * bins[n][2];
    }
    prepare();
    sequential();
    memcpy(expected_node, node_of, sizeof node_of);
    memcpy(expected_splits, splits, sizeof splits);
    threads_measure("tree", "us", 1e6, prepare, body, wrong);
    return suite_failed;
}
