/* What the MPL programs share: each task checks, task 0 says "ok" when all of them have come through. */
#include <mpl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, tasks;

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: task %d: %s\n", __FILE__, __LINE__, me, #condition);          \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

static inline void all_is_well(void) {
    CHECK(mpc_sync(ALLGRP) == 0);
    if (me == 0) puts("ok");
}
