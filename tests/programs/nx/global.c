/* Global operations against what one node computes alone. */
#include "check.h"

static long me, nodes;

#define EACH(type, call, n, start, combine)                                                       \
    do {                                                                                          \
        type *x = malloc((n) * sizeof(type)), *work = malloc((n) * sizeof(type));                 \
        for (long i = 0; i < (n); i++) x[i] = (type)(1 + (me + i) % 5);                           \
        call(x, n, work);                                                                         \
        for (long i = 0; i < (n); i++) {                                                          \
            type a = (type)(1 + i % 5);                                                           \
            for (long node = 1; node < nodes; node++) {                                           \
                type b = (type)(1 + (node + i) % 5);                                              \
                a = combine;                                                                      \
            }                                                                                     \
            CHECK(x[i] == a);                                                                     \
        }                                                                                         \
        free(x);                                                                                  \
        free(work);                                                                               \
    } while (0)

static long longest(long *x, long *work) {
    if (work[0] > x[0] || (work[0] == x[0] && work[1] < x[1])) memcpy(x, work, 2 * sizeof *x);
    return 0;
}

int main(void) {
    me = mynode();
    nodes = numnodes();
    static const long lengths[] = {1, 3, 100, 20000};
    for (int l = 0; l < 4; l++) {
        long n = lengths[l];
        EACH(double, gdsum, n, 0, a + b);
        EACH(double, gdprod, n, 1, a * b);
        EACH(double, gdhigh, n, 0, a > b ? a : b);
        EACH(double, gdlow, n, 0, a < b ? a : b);
        EACH(float, gssum, n, 0, a + b);
        EACH(float, gsprod, n, 1, a * b);
        EACH(float, gshigh, n, 0, a > b ? a : b);
        EACH(float, gslow, n, 0, a < b ? a : b);
        EACH(long, gisum, n, 0, a + b);
        EACH(long, giprod, n, 1, a * b);
        EACH(long, gihigh, n, 0, a > b ? a : b);
        EACH(long, gilow, n, 0, a < b ? a : b);
        EACH(long, giand, n, 0, a & b);
        EACH(long, gior, n, 0, a | b);
        EACH(long, gixor, n, 0, a ^ b);
    }
    long flag = me == 0, work;
    gland(&flag, 1, &work);
    CHECK(flag == (nodes == 1));
    flag = me == nodes - 1;
    glor(&flag, 1, &work);
    CHECK(flag == 1);
    flag = 1;
    glxor(&flag, 1, &work);
    CHECK(flag == nodes % 2);

    long pair[2] = {(me * 3) % nodes, me}, scratch[2];
    gopf((void *)pair, sizeof pair, (void *)scratch, longest);
    long best[2] = {0, 0};
    for (long node = 1; node < nodes; node++) {
        long other[2] = {(node * 3) % nodes, node};
        longest(best, other);
    }
    CHECK(pair[0] == best[0] && pair[1] == best[1]);

    /* Node i has i + 1 numbers, or none at all on odd nodes. */
    for (int odd = 0; odd < 2; odd++) {
        int own[64], all[64 * 64], at = 0;
        long count = odd && me % 2 ? 0 : me + 1, got = -1, known[64];
        for (long i = 0; i < count; i++) own[i] = (int)(100 * me + i);
        gcol(own, count * sizeof(int), all, sizeof all, &got);
        for (long node = 0; node < nodes; node++) {
            known[node] = (odd && node % 2 ? 0 : node + 1) * (long)sizeof(int);
            for (long i = 0; i < known[node] / (long)sizeof(int); i++) CHECK(all[at++] == 100 * node + i);
        }
        CHECK(got == at * (long)sizeof(int));
        memset(all, 0, sizeof all);
        gcolx(own, known, all);
        at = 0;
        for (long node = 0; node < nodes; node++)
            for (long i = 0; i < known[node] / (long)sizeof(int); i++) CHECK(all[at++] == 100 * node + i);
    }
    for (int i = 0; i < 500; i++) gsync();
    all_is_well();
}
