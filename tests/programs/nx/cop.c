/* Routines on the second processor: they run beside the program, in the order of the calls, and may not pass messages. */
#include "check.h"
#include <stdatomic.h>

struct part {
    const double *x;
    long n;
    double sum;
    long order;
};

static atomic_long turn;
static long refused;

static void add(void *params) {
    struct part *part = params;
    part->sum = 0;
    for (long i = 0; i < part->n; i++) part->sum += part->x[i];
    part->order = atomic_fetch_add(&turn, 1);
}

static void sends(void *params) {
    errno = 0;
    refused = _csend(1, params, 1, 0, 0) == -1 && errno == EQSTATE && _gsync() == -1;
}

int main(void) {
    enum { N = 200000 };
    double *x = malloc(N * sizeof *x);
    for (long i = 0; i < N; i++) x[i] = i;
    struct part second = {x, N / 2, 0, -1}, own = {x + N / 2, N / 2, 0, -1};
    long done = 5;
    cop(add, &second, &done);
    add(&own); /* at the same time */
    while (!*(volatile long *)&done) flick();
    CHECK(done == 1 && second.sum + own.sum == N * (N - 1.0) / 2);
    struct part many[20];
    long all[20];
    atomic_store(&turn, 0);
    for (int i = 0; i < 20; i++) {
        many[i] = (struct part){x, 100 * i, 0, -1};
        cop(add, &many[i], &all[i]);
    }
    for (int i = 0; i < 20; i++) {
        while (!*(volatile long *)&all[i]) flick();
        CHECK(many[i].order == i && many[i].sum == 100.0 * i * (100 * i - 1) / 2);
    }
    cop(sends, x, &done);
    while (!*(volatile long *)&done) flick();
    CHECK(refused);
    free(x);
    all_is_well();
}
