/*
 * What the programs of `margay bench threads` share, beside what all programs share (../report.h): which runtime is measured,
 * and how. C and C++.
 *
 * A figure `x` is the median of the rounds; with it come `x.max`, the longest round, and `x.cpu-wall`, the processor time of the
 * process over the time of the rounds. Every round is verified: with a wrong one the program ends with 1.
 */
#ifndef THREADS_H
#define THREADS_H
#include <dlfcn.h>
#include <time.h>

#include "../report.h"

/* Rounds at most and at least; of rounds shorter than a microsecond, how many are timed together, and how often. */
enum { THREADS_ROUNDS = 1 << 17, THREADS_LEAST = 3, THREADS_TOGETHER = 64, THREADS_BATCHES = 301 };

/* Size of teams, on each level. */
static int threads;
static double threads_budget_s;
static double *threads_seconds;

static void suite_abort(void) { exit(3); }
static void suite_leave(void) {}

static inline double threads_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Reads the options and reports the file that `symbol` comes from; NULL: no runtime, the program is sequential. */
static inline void threads_start(int argc, char **argv, const char *program, const char *symbol) {
    static SuiteOption options[] = {
        {"-threads", "size of teams", 2, 1, 1024, NULL, 0},
        {"-ms", "milliseconds to measure each figure for", 200, 1, 100000, NULL, 0},
    };
    suite_read(argc, argv, program, options, 2);
    threads = (int)options[0].value;
    threads_budget_s = (double)options[1].value * 1e-3;
    threads_seconds = (double *)malloc(THREADS_ROUNDS * sizeof *threads_seconds);
    if (!threads_seconds) suite_fail("no memory for the times of the rounds");
    memset(threads_seconds, 1, THREADS_ROUNDS * sizeof *threads_seconds);
    if (!symbol) {
        printf("library none\n");
        return;
    }
    Dl_info found;
    void *address = dlsym(RTLD_DEFAULT, symbol);
    char *file = address && dladdr(address, &found) ? realpath(found.dli_fname, NULL) : NULL;
    if (!file) suite_fail("%s is in no library", symbol);
    printf("library %s\n", file);
    free(file);
}

/*
 * Reports rounds of `body`, after some that do not count, which make the runtime's threads. `prepare` (or NULL) comes before each
 * round and `wrong` (or NULL) after it, outside of its time; `wrong` gives the number of wrong results. `unit` is a second
 * divided by `per_second`. Without `prepare` and `wrong` a round goes from one reading of the clock to the next. Where these readings
 * would be most of it, the median is that of batches of rounds.
 */
static inline void threads_measure(const char *name, const char *unit, double per_second, void (*prepare)(void), void (*body)(void),
                                   long (*wrong)(void)) {
    const int apart = prepare || wrong;
    double began = 0, wall = 0, processor = 0, spent = 0;
    long failures = 0;
    int count = 0;
    for (int round = -THREADS_LEAST; round < 0; round++) {
        if (prepare) prepare();
        body();
        if (wrong) failures += wrong();
    }
    const double start = threads_clock(CLOCK_MONOTONIC), start_processor = threads_clock(CLOCK_PROCESS_CPUTIME_ID);
    began = threads_clock(CLOCK_MONOTONIC);
    while (count < THREADS_ROUNDS && (count < THREADS_LEAST || began - start < threads_budget_s)) {
        if (prepare) prepare();
        if (apart) {
            spent = threads_clock(CLOCK_PROCESS_CPUTIME_ID);
            began = threads_clock(CLOCK_MONOTONIC);
        }
        body();
        const double now = threads_clock(CLOCK_MONOTONIC);
        threads_seconds[count++] = now - began;
        wall += now - began;
        began = now;
        if (apart) processor += threads_clock(CLOCK_PROCESS_CPUTIME_ID) - spent;
        if (wrong) failures += wrong();
    }
    if (!apart) processor = threads_clock(CLOCK_PROCESS_CPUTIME_ID) - start_processor;
    suite_check(name, (double)failures, 0);
    if (failures) return;

    double most = 0;
    char label[64];
    for (int n = 0; n < count; n++) most = threads_seconds[n] > most ? threads_seconds[n] : most;
    double median = suite_median(threads_seconds, count);
    if (!apart && median < 1e-6) {
        for (count = 0; count < THREADS_BATCHES; count++) {
            began = threads_clock(CLOCK_MONOTONIC);
            for (int n = 0; n < THREADS_TOGETHER; n++) body();
            threads_seconds[count] = (threads_clock(CLOCK_MONOTONIC) - began) / THREADS_TOGETHER;
        }
        median = suite_median(threads_seconds, count);
    }
    suite_figure(name, unit, median * per_second, suite_noise(threads_seconds, count));
    snprintf(label, sizeof label, "%s.max", name);
    suite_figure(label, unit, most * per_second, -1);
    snprintf(label, sizeof label, "%s.cpu-wall", name);
    suite_figure(label, "cpu/wall", processor / wall, -1);
}

/* Sebastiano Vigna's splitmix64: the finalizer of a counter. */
static inline uint64_t threads_mix(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number from 0 to 1 that `seed` decides. */
static inline double threads_random(uint64_t seed) { return (double)(threads_mix(seed) >> 11) * 0x1p-53; }
#endif
