/* The parallel utility calls: markers, output, terminals, and messages that move while the program computes. With an argument
 * it shows markers until its input ends. */
#include "check.h"
#include <time.h>

static void wrong(void) {
    CHECK(mpc_marker(mpc_nlights(), 1, "x") == -1 && mperrno == MPL_ARGUMENT);
    CHECK(mpc_marker(0, 100, "x") == -1 && mperrno == MPL_ARGUMENT);
    CHECK(mpc_marker(0, -1, NULL) == -1);
    CHECK(mpc_flush(0) == -1 && mpc_flush(3) == -1 && mperrno == MPL_ARGUMENT);
    CHECK(mpc_isatty(3) == -1 && mpc_isatty(-1) == -1);
    CHECK(mpc_setintrdelay(-1) == -1 && mpc_setintrdelay(2000000) == -1);
}

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A long message that both sides only begin: it moves while they compute if there are interrupts. */
static void moves_while_computing(void) {
    enum { BYTES = 1 << 20 };
    static char from[BYTES], to[BYTES];
    int right = (me + 1) % tasks, source = (me + tasks - 1) % tasks, type = 7, out, in;
    memset(from, me + 1, BYTES);
    CHECK(mpc_recv(to, BYTES, &source, &type, &in) == 0);
    CHECK(mpc_send(from, BYTES, right, 7, &out) == 0);
    volatile char *last = to + BYTES - 1;
    double end = seconds() + 20;
    while (*last == 0 && seconds() < end) {}
    CHECK(*last == (me + tasks - 1) % tasks + 1);
    size_t n;
    CHECK(mpc_wait(&in, &n) == 0 && n == BYTES);
    CHECK(mpc_wait(&out, &n) == 0 && n == BYTES);
}

int main(int argc, char **argv) {
    mpc_environ(&tasks, &me);
    if (argc > 1) {
        char text[64];
        CHECK(mpc_marker(me % mpc_nlights(), 10 + me, NULL) == 0);
        snprintf(text, sizeof text, "task %d is %s", me, argv[1]);
        CHECK(mpc_marker(-1, 0, text) == 0);
        if (me == 0) CHECK(mpc_marker(mpc_nlights() - 1, 99, "first") == 0);
        CHECK(mpc_sync(ALLGRP) == 0);
        if (me == 0) printf("ready"); /* no newline: the line is not whole, and the buffer not full */
        CHECK(mpc_flush(1) == 0);
        while (getchar() != EOF) {}
        return 0;
    }
    wrong();
    CHECK(mpc_nlights() == 8);
    CHECK(mpc_isatty(0) == 0 && mpc_isatty(1) == 0);
    CHECK(mpc_queryintr() == 0 && mpc_queryintrdelay() == 200);
    CHECK(mpc_setintrdelay(50) == 0 && mpc_queryintrdelay() == 50);
    CHECK(mpc_enableintr() == 0 && mpc_queryintr() == 1);
    CHECK(mpc_sync(ALLGRP) == 0);
    moves_while_computing();
    CHECK(mpc_sync(ALLGRP) == 0);
    CHECK(mpc_disableintr() == 0 && mpc_queryintr() == 0);
    CHECK(mpc_enableintr() == 0 && mpc_enableintr() == 0 && mpc_queryintr() == 1);
    CHECK(mpc_disableintr() == 0 && mpc_disableintr() == 0 && mpc_queryintr() == 0);
    CHECK(mpc_marker(0, 1, "a text") == 0);
    all_is_well();
    return 0;
}
