/* Receive and call under load: routines run while the program only computes, receives or is held; each posts itself again. */
#include "check.h"
#include <stdatomic.h>

enum { ROUNDS = 300, TYPES = 4 };
struct slot {
    int value, source, type, id;
};
static struct slot slots[TYPES];
static atomic_int calls, running, at_once;
static atomic_long sum;

static void come(int *id) {
    if (atomic_fetch_add(&running, 1) != 0) atomic_store(&at_once, 1);
    struct slot *slot = slots;
    while (slot->id != *id) slot++;
    size_t n;
    int which = *id;
    CHECK(mpc_wait(&which, &n) == 0 && n == sizeof(int) && slot->type == 100 + (int)(slot - slots));
    atomic_fetch_add(&sum, slot->value);
    slot->source = DONTCARE;
    CHECK(mpc_rcvncall(&slot->value, sizeof(int), &slot->source, &slot->type, &slot->id, come) == 0);
    atomic_fetch_sub(&running, 1);
    atomic_fetch_add(&calls, 1);
}

static void compute_until(int value) {
    double x = 1;
    while (atomic_load(&calls) < value)
        for (int i = 0; i < 1000; i++) x = x * 1.0000001 + 1e-9;
    CHECK(x > 0);
}

int main(void) {
    int old;
    mpc_environ(&tasks, &me);
    CHECK(mpc_lockrnc(1, &old) == 0 && old == 0);
    for (int i = 0; i < TYPES; i++) {
        slots[i] = (struct slot){0, DONTCARE, 100 + i, -1};
        CHECK(mpc_rcvncall(&slots[i].value, sizeof(int), &slots[i].source, &slots[i].type, &slots[i].id, come) == 0);
    }
    mpc_sync(ALLGRP);
    int first = 0;
    CHECK(mpc_bsend(&first, sizeof first, (me + 1) % tasks, 100) == 0);
    mpc_sync(ALLGRP);
    CHECK(atomic_load(&calls) == 0);
    CHECK(mpc_lockrnc(0, &old) == 0 && old == 1);
    compute_until(1);
    /* Everybody floods everybody, and receives other messages meanwhile. */
    for (int i = 0; i < ROUNDS; i++) {
        int one = 1, answer = -1, source = (me + tasks - 1) % tasks, type = 50;
        size_t n;
        for (int to = 0; to < tasks; to++) CHECK(mpc_bsend(&one, sizeof one, to, 100 + (i + to) % TYPES) == 0);
        CHECK(mpc_bsendrecv(&i, sizeof i, (me + 1) % tasks, 50, &answer, sizeof answer, &source, &n) == 0);
        CHECK(answer == i && type == 50);
        if (i % 50 == 0) {
            CHECK(mpc_lockrnc(1, &old) == 0 && old == 0);
            int before = atomic_load(&calls);
            CHECK(atomic_load(&running) == 0 && atomic_load(&calls) == before);
            CHECK(mpc_lockrnc(0, &old) == 0 && old == 1);
        }
    }
    compute_until(1 + ROUNDS * tasks);
    CHECK(atomic_load(&sum) == ROUNDS * tasks && !atomic_load(&at_once));
    all_is_well();
}
