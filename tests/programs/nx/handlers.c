/* Handlers run while the program only computes, one at a time, and not while they are held. */
#include "check.h"
#include <stdatomic.h>

enum { ROUNDS = 200 };
static long me, nodes, right, left;
static atomic_long calls, running, at_once, sum, sent, last_param;
static long buffer[ROUNDS];

static void received(long type, long count, long node, long ptype) {
    if (atomic_fetch_add(&running, 1) != 0) atomic_store(&at_once, 1);
    CHECK(type >= 100 && count == sizeof(long) && node == left && ptype == 0);
    CHECK(infocount() == count && infonode() == node && infotype() == type);
    atomic_fetch_add(&sum, buffer[type - 100]);
    atomic_fetch_sub(&running, 1);
    atomic_fetch_add(&calls, 1);
}

static void went(long type, long count, long node, long ptype) {
    CHECK(type == 90 && count == 100000 && node == right && ptype == 0);
    atomic_fetch_add(&sent, 1);
}

static void with_parameter(long hparam) { atomic_store(&last_param, hparam); }

static long again;
static void posts_the_next(long type, long count, long node, long ptype) {
    (void)count, (void)node, (void)ptype;
    /* A handler may itself receive and send. */
    if (again > 0) {
        again--;
        hrecv(type, buffer, sizeof(long), posts_the_next);
        csend(71, &again, sizeof again, left, 0);
    }
    atomic_fetch_add(&calls, 1);
}

/* Computes, and calls nothing, until the value is there. */
static void compute_until(atomic_long *what, long value) {
    double x = 1;
    while (atomic_load(what) < value)
        for (int i = 0; i < 1000; i++) x = x * 1.0000001 + 1e-9;
    CHECK(x > 0);
}

int main(void) {
    me = mynode();
    nodes = numnodes();
    right = (me + 1) % nodes;
    left = (me + nodes - 1) % nodes;
    for (long i = 0; i < ROUNDS; i++) hrecv(100 + i, &buffer[i], sizeof(long), received);
    gsync();
    for (long i = 0; i < ROUNDS; i++) {
        long value = i + 1;
        csend(100 + i, &value, sizeof value, right, 0);
    }
    compute_until(&calls, ROUNDS);
    CHECK(atomic_load(&sum) == ROUNDS * (ROUNDS + 1) / 2 && !atomic_load(&at_once));

    /* Held: nothing runs until they are let go. */
    CHECK(masktrap(1) == 0);
    atomic_store(&calls, 0);
    hrecv(100, &buffer[0], sizeof(long), received);
    gsync();
    csend(100, &me, sizeof me, right, 0);
    double until = dclock() + 0.05;
    while (dclock() < until) flick();
    CHECK(atomic_load(&calls) == 0);
    CHECK(masktrap(0) == 1);
    compute_until(&calls, 1);
    CHECK(buffer[0] == left);

    /* Sends with handlers, long enough to need the other side. */
    char *out = calloc(1, 100000), *in = malloc(100000);
    hsend(90, out, 100000, right, 0, went);
    crecv(90, in, 100000);
    compute_until(&sent, 1);
    hsendx(91, out, 10, right, 0, with_parameter, 4711);
    crecv(91, in, 10);
    compute_until(&last_param, 4711);
    hrecvx(92, in, 10, left, 0, with_parameter, 4712);
    gsync();
    csend(92, "123456789", 10, right, 0);
    compute_until(&last_param, 4712);
    CHECK(!strcmp(in, "123456789"));
    atomic_store(&calls, 0);
    hsendrecv(100, &me, sizeof me, right, 0, 100, &buffer[0], sizeof(long), received);
    compute_until(&calls, 1);
    CHECK(buffer[0] == left);

    /* A handler that posts itself again, while the program receives what it answers. */
    again = 50;
    atomic_store(&calls, 0);
    hrecv(70, buffer, sizeof(long), posts_the_next);
    gsync();
    for (int i = 0; i < 50; i++) {
        long answer;
        csend(70, &me, sizeof me, right, 0);
        crecv(71, &answer, sizeof answer);
        CHECK(infonode() == right && infotype() == 71);
    }
    csend(70, &me, sizeof me, right, 0);
    compute_until(&calls, 51);
    /* Without a handler hrecv withdraws what was posted for the same messages: the program receives them itself. */
    atomic_store(&calls, 0);
    hrecv(180, buffer, sizeof(long), received);
    hrecv(181, buffer, sizeof(long), received);
    hrecv(180, NULL, 0, NULL);
    gsync();
    csend(180, &me, sizeof me, right, 0);
    csend(181, &me, sizeof me, right, 0);
    long withdrawn = -1;
    crecv(180, &withdrawn, sizeof withdrawn);
    CHECK(withdrawn == left);
    compute_until(&calls, 1);
    CHECK(buffer[0] == left);
    /* The calls of the program still work with the thread beside it. */
    for (int i = 0; i < 100; i++) {
        double x = 1, work;
        gdsum(&x, 1, &work);
        CHECK(x == nodes);
    }
    free(out);
    free(in);
    all_is_well();
}
