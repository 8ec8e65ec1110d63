/* Messages: blocking and with ids, wildcards by query, truncation and overflow, vectors, pack, wait for any and all. */
#include "check.h"

static int dontcare, allmsg, nulltask, allgrp;

static void lengths(void) {
    static const size_t sizes[] = {0, 1, 40, 41, 4096, 4097, 65536, 65537, 1000000};
    int right = (me + 1) % tasks, left = (me + tasks - 1) % tasks;
    char *out = malloc(1000000), *in = malloc(1000000);
    for (int i = 0; i < 9; i++) {
        size_t n = sizes[i], got = 1;
        int source = left, type = 10 + i, id, sent;
        memset(out, me + i, n);
        memset(in, 0x55, 1000000);
        CHECK(mpc_recv(in, 1000000, &source, &type, &id) == 0);
        CHECK(mpc_send(out, n, right, 10 + i, &sent) == 0);
        CHECK(mpc_wait(&id, &got) == 0 && got == n && source == left && type == 10 + i);
        CHECK(mpc_wait(&sent, &got) == 0 && got == n);
        CHECK(n == 0 || (in[0] == (char)(left + i) && in[n - 1] == (char)(left + i)));
        CHECK(n == 1000000 || in[n] == 0x55);
        if (tasks % 2 == 0 || n <= 65536) {
            source = dontcare;
            type = dontcare;
            if (me % 2 == 0) CHECK(mpc_bsend(out, n, right, 30 + i) == 0);
            CHECK(mpc_brecv(in, n, &source, &type, &got) == 0 && got == n && source == left && type == 30 + i);
            if (me % 2 == 1) CHECK(mpc_bsend(out, n, right, 30 + i) == 0);
        }
        mpc_sync(allgrp);
        source = left;
        if (tasks == 2 || n <= 65536)
            CHECK(mpc_bsendrecv(out, n, right, 60 + i, in, n, &source, &got) == 0 && got == n && source == left);
        mpc_sync(allgrp);
    }
    free(out);
    free(in);
}

static void to_the_own_task(void) {
    char text[16] = "";
    size_t n;
    int source = dontcare, type = dontcare, id[40], which, on = 1, off = 0, setting;
    CHECK(mpc_probe(&source, &type, &n) == 0 && n == (size_t)-1 && source == dontcare);
    CHECK(mpc_bsend("abcdefgh", 9, me, 5) == 0);
    do CHECK(mpc_probe(&source, &type, &n) == 0);
    while (n == (size_t)-1);
    CHECK(n == 9 && source == me && type == 5);
    /* Truncated, or an error, as the task likes. */
    CHECK(mpc_brecv(text, 4, &source, &type, &n) == 0 && n == 4 && !memcmp(text, "abcd\0", 5));
    CHECK(mpc_task_set(&on, 1) == 0 && mpc_task_query(&setting, 1, 1) == 0 && setting == 1);
    CHECK(mpc_bsend("abcdefgh", 9, me, 5) == 0);
    CHECK(mpc_brecv(text, 4, &source, &type, &n) == -1 && mperrno == MPL_OVERFLOW);
    CHECK(mpc_task_set(&off, 1) == 0);
    /* To and from nobody. */
    CHECK(mpc_bsend("x", 1, nulltask, 5) == 0);
    source = nulltask;
    CHECK(mpc_brecv(text, 4, &source, &type, &n) == 0 && n == 0 && source == nulltask);

    /* Any of several, and all. */
    int values[40], sources[40], types[40];
    for (int i = 0; i < 40; i++) {
        sources[i] = me;
        types[i] = 100 + i;
        values[i] = -1;
        CHECK(mpc_recv(&values[i], sizeof(int), &sources[i], &types[i], &id[i]) == 0);
    }
    for (int i = 0; i < 20; i++) {
        int value = 39 - i;
        CHECK(mpc_status(id[value]) == -1);
        CHECK(mpc_bsend(&value, sizeof value, me, 100 + value) == 0);
        which = dontcare;
        CHECK(mpc_wait(&which, &n) == 0 && which == id[value] && n == sizeof(int) && values[value] == value);
        CHECK(mpc_status(id[value]) < -1);
    }
    for (int i = 0; i < 20; i++) CHECK(mpc_bsend(&i, sizeof i, me, 100 + i) == 0);
    while ((which = mpc_status(id[3])) == -1) {}
    CHECK(which == sizeof(int) && values[3] == 3);
    which = allmsg;
    CHECK(mpc_wait(&which, &n) == 0 && n == 19 * sizeof(int));
    for (int i = 0; i < 20; i++) CHECK(values[i] == i && sources[i] == me);

    /* The receive that was posted first gets the message, wildcard or not. */
    int a = 0, b = 0, one = 1, two = 2, any = dontcare, seven = 7;
    source = me;
    CHECK(mpc_recv(&a, sizeof a, &source, &any, &id[0]) == 0);
    CHECK(mpc_recv(&b, sizeof b, &source, &seven, &id[1]) == 0);
    CHECK(mpc_bsend(&one, sizeof one, me, 7) == 0 && mpc_bsend(&two, sizeof two, me, 7) == 0);
    CHECK(mpc_wait(&id[0], &n) == 0 && mpc_wait(&id[1], &n) == 0 && a == 1 && b == 2 && any == 7);

    /* A column of a matrix, and one that is spread again. */
    int matrix[6][5], column[6], packed[12], spread[6][5];
    for (int i = 0; i < 30; i++) matrix[i / 5][i % 5] = i;
    memset(spread, 0, sizeof spread);
    CHECK(mpc_bvsend(&matrix[0][2], sizeof(int), sizeof matrix[0], 6, me, 8) == 0);
    type = 8;
    CHECK(mpc_brecv(column, sizeof column, &source, &type, &n) == 0 && n == sizeof column);
    for (int i = 0; i < 6; i++) CHECK(column[i] == 5 * i + 2);
    CHECK(mpc_vrecv(&spread[0][1], sizeof(int), sizeof spread[0], 6, &source, &type, &id[0]) == 0);
    CHECK(mpc_vsend(column, sizeof(int), sizeof(int), 6, me, 8, &id[1]) == 0);
    CHECK(mpc_wait(&id[0], &n) == 0 && n == sizeof column && mpc_wait(&id[1], &n) == 0);
    for (int i = 0; i < 6; i++) CHECK(spread[i][1] == 5 * i + 2 && spread[i][0] == 0 && spread[i][2] == 0);
    CHECK(mpc_bsend(column, sizeof column, me, 8) == 0);
    CHECK(mpc_bvrecv(&spread[0][4], sizeof(int), sizeof spread[0], 6, &source, &type, &n) == 0 && spread[5][4] == 27);
    CHECK(mpc_pack(&matrix[0][1], packed, 2 * sizeof(int), sizeof matrix[0], 6) == 0);
    for (int i = 0; i < 6; i++) CHECK(packed[2 * i] == 5 * i + 1 && packed[2 * i + 1] == 5 * i + 2);
    memset(spread, 0, sizeof spread);
    CHECK(mpc_unpack(packed, &spread[0][3], 2 * sizeof(int), sizeof spread[0], 6) == 0);
    CHECK(spread[2][3] == 11 && spread[2][4] == 12 && spread[2][2] == 0);
}

#define FAILS(call, number)                                                                       \
    do {                                                                                          \
        mperrno = 0;                                                                              \
        CHECK((call) == -1 && mperrno == (number));                                               \
    } while (0)

static void errors(void) {
    char x[8] = "";
    size_t n;
    int source = me, type = 1, id, wild = -7, bad = 99;
    FAILS(mpc_bsend(x, 8, tasks, 1), MPL_TASK);
    FAILS(mpc_bsend(x, 8, 0, -1), MPL_TYPE);
    FAILS(mpc_bsend(NULL, 8, 0, 1), MPL_ARGUMENT);
    FAILS(mpc_bsend(x, (size_t)-1, 0, 1), MPL_ARGUMENT);
    FAILS(mpc_send(x, 8, 0, 1, NULL), MPL_ARGUMENT);
    FAILS(mpc_brecv(x, 8, &bad, &type, &n), MPL_TASK);
    FAILS(mpc_brecv(x, 8, &source, &wild, &n), MPL_TYPE);
    FAILS(mpc_recv(x, 8, NULL, &type, &id), MPL_ARGUMENT);
    FAILS(mpc_bsendrecv(x, 8, 99, 1, x, 8, &source, &n), MPL_TASK);
    FAILS(mpc_bvsend(x, 4, 2, 2, 0, 1), MPL_ARGUMENT);
    FAILS(mpc_bvrecv(x, 4, 2, 2, &source, &type, &n), MPL_ARGUMENT);
    FAILS(mpc_vsend(x, 1, 2, 4, 99, 1, &id), MPL_TASK);
    FAILS(mpc_vrecv(x, 1, 2, 4, &bad, &type, &id), MPL_TASK);
    FAILS(mpc_pack(NULL, x, 1, 2, 4), MPL_ARGUMENT);
    FAILS(mpc_unpack(x, x, 4, 1, 2), MPL_ARGUMENT);
    id = 12345;
    FAILS(mpc_wait(&id, &n), MPL_MSGID);
    id = dontcare;
    FAILS(mpc_wait(&id, &n), MPL_MSGID);
    CHECK(mpc_status(12345) < -1 && mperrno == MPL_MSGID);
    FAILS(mpc_probe(&bad, &type, &n), MPL_TASK);
    FAILS(mpc_rcvncall(x, 8, &source, &type, &id, NULL), MPL_ARGUMENT);
    FAILS(mpc_lockrnc(2, &id), MPL_ARGUMENT);
    FAILS(mpc_task_query(&id, 1, 9), MPL_ARGUMENT);
    FAILS(mpc_task_query(&id, 5, 2), MPL_ARGUMENT);
    FAILS(mpc_task_set(&id, 9), MPL_ARGUMENT);
    FAILS(mpc_environ(NULL, &id), MPL_ARGUMENT);
    FAILS(mpc_stopall(-1), MPL_ARGUMENT);
    FAILS(mpc_sync(77), MPL_GROUP);
    FAILS(mpc_bcast(x, 8, tasks, 0), MPL_TASK);
    FAILS(mpc_scatter(x, x, 1, -1, 0), MPL_GROUP);
    FAILS(mpc_gather(x, x, 1, 99, 0), MPL_GROUP);
    FAILS(mpc_concat(x, NULL, 1, 0), MPL_ARGUMENT);
    FAILS(mpc_index(NULL, x, 1, 0), MPL_ARGUMENT);
    FAILS(mpc_combine(x, x, 8, NULL, 0), MPL_ARGUMENT);
    FAILS(mpc_combine(x, x, 7, d_vadd, 0), MPL_ARGUMENT);
    FAILS(mpc_reduce(x, x, 8, 99, d_vadd, 0), MPL_GROUP);
    FAILS(mpc_prefix(x, x, 8, d_vadd, 5), MPL_GROUP);
    FAILS(mpc_shift(x, NULL, 8, 1, 1, 0), MPL_ARGUMENT);
    FAILS(mpc_group(1, &bad, 1, &id), MPL_TASK);
    FAILS(mpc_group(-1, &bad, 1, &id), MPL_ARGUMENT);
    FAILS(mpc_partition(0, 0, -5, &id), MPL_ARGUMENT);
    FAILS(mpc_getlabel(&id, 9), MPL_GROUP);
    FAILS(mpc_getsize(&id, -1), MPL_GROUP);
    FAILS(mpc_getmembers(NULL, 0), MPL_ARGUMENT);
    FAILS(mpc_getrank(&id, 99, 0), MPL_TASK);
    FAILS(mpc_gettaskid(99, &id, 0), MPL_GROUP);
}

/* Lengths in an int, an id that is waited for after mpc_status has reported it as complete, and
 * calls by reference. */
int mp_bsend(void *, int *, int *, int *), mp_brecv(void *, int *, int *, int *, int *), mp_status(int *);

static void as_on_the_sp1(void) {
    struct {
        int n, beyond;
    } length = {0, 77};
    int x = me, y = -1, source = me, type = 3, in, out, two = 2, four = 4, n = 0;
    CHECK(mpc_send(&x, 4, me, 3, &out) == 0 && out > 0);
    CHECK(mpc_recv(&y, 4, &source, &type, &in) == 0 && in > 0);
    while (mpc_status(in) == -1) {}
    CHECK(mpc_wait(&in, &length.n) == 0 && length.n == 4 && length.beyond == 77 && y == me);
    CHECK(mpc_wait(&in, &length.n) == -1);
    while (mp_status(&out) == -1) {}
    CHECK(mp_bsend(&x, &four, &me, &two) == 0);
    source = DONTCARE, type = 2;
    CHECK(mp_brecv(&y, &four, &source, &type, &n) == 0 && n == 4 && source == me);
    CHECK(mp_bsend(&x, &four, &tasks, &two) == -1 && mperrno == MPL_TASK);
    CHECK(mpc_probe(&source, &type, &length.n) == 0 && length.n == -1 && length.beyond == 77);
}

int main(int argc, char **argv) {
    (void)argv;
    int n[4], range[2];
    CHECK(mpc_environ(&tasks, &me) == 0);
    CHECK(mpc_task_query(n, 4, 3) == 0 && mpc_task_query(range, 2, 2) == 0 && range[0] == 0);
    dontcare = n[0], allmsg = n[1], nulltask = n[2], allgrp = n[3];
    CHECK(dontcare == DONTCARE && allmsg == ALLMSG && nulltask == NULLTASK && allgrp == ALLGRP);
    if (argc > 1) {
        if (me == 0) mpc_stopall(atoi(argv[1]));
        mpc_sync(0);
    }
    lengths();
    as_on_the_sp1();
    to_the_own_task();
    errors();
    all_is_well();
}
