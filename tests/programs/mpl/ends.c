/* A task ends, as the argument names it, while the thread that calls routines is inside the library nearly always. */
#include "check.h"
#include <stdatomic.h>
#include <unistd.h>

enum { ROUNDS = 100 };
static atomic_int calls;
static int value, source = DONTCARE, type = 1, id;

/* Posts itself again and sends itself the next message. */
static void come(int *which) {
    size_t n;
    CHECK(mpc_wait(which, &n) == 0);
    calls++;
    source = DONTCARE;
    CHECK(mpc_rcvncall(&value, sizeof value, &source, &type, &id, come) == 0);
    CHECK(mpc_bsend(&me, sizeof me, me, 1) == 0);
}

int main(int argc, char **argv) {
    mpc_environ(&tasks, &me);
    CHECK(mpc_rcvncall(&value, sizeof value, &source, &type, &id, come) == 0);
    CHECK(mpc_sync(ALLGRP) == 0);
    CHECK(mpc_bsend(&me, sizeof me, me, 1) == 0);
    while (calls < ROUNDS) usleep(100);
    if (argc > 1 && !strcmp(argv[1], "_exit")) _exit(0);
    return argc > 1 && !strcmp(argv[1], "wrong") ? 3 : 0;
}
