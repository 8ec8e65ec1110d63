/* oneTBB as the programs use it: an arena of `threads` threads, and as many threads in the process, also beyond the cores. */
#ifndef THREADS_TBB_H
#define THREADS_TBB_H
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include "threads.h"

template <typename Body> static inline void tbb_within(const Body &body) {
    tbb::global_control most(tbb::global_control::max_allowed_parallelism, (size_t)threads);
    tbb::task_arena arena(threads);
    arena.execute(body);
}

static inline void tbb_measure(const char *name, const char *unit, double per_second, void (*prepare)(void), void (*body)(void),
                               long (*wrong)(void)) {
    tbb_within([&] { threads_measure(name, unit, per_second, prepare, body, wrong); });
}

static const char *const tbb_symbol = "TBB_runtime_version";
#endif
