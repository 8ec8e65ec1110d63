/* Groups by list and by partition with key and label, and the collective operations on them. */
#include "check.h"

static void subtract(int *a, int *b, int *c, size_t *len) {
    for (size_t i = 0; i < *len / sizeof(int); i++) c[i] = a[i] - b[i];
}

static void collectives(int gid) {
    int size, rank, task;
    CHECK(mpc_getsize(&size, gid) == 0 && mpc_getrank(&rank, me, gid) == 0);
    CHECK(mpc_gettaskid(rank, &task, gid) == 0 && task == me);
    int members[64];
    CHECK(mpc_getmembers(members, gid) == 0 && members[rank] == me);
    for (int root = 0; root < size; root++) {
        int value = rank == root ? 1000 + root : -1, all[64], out[64], own = rank;
        CHECK(mpc_bcast(&value, sizeof value, root, gid) == 0 && value == 1000 + root);
        CHECK(mpc_gather(&own, all, sizeof own, root, gid) == 0);
        for (int i = 0; rank == root && i < size; i++) {
            CHECK(all[i] == i);
            out[i] = 10 * i;
        }
        CHECK(mpc_scatter(out, &own, sizeof own, root, gid) == 0 && own == 10 * rank);
        double x = rank + 1, sum = -1;
        CHECK(mpc_reduce(&x, &sum, sizeof x, root, d_vadd, gid) == 0);
        CHECK(sum == (rank == root ? size * (size + 1) / 2.0 : -1));
        int a = rank + 1, b = -1;
        CHECK(mpc_reduce(&a, &b, sizeof a, root, (void (*)())subtract, gid) == 0);
        CHECK(b == (rank == root ? 1 - (size * (size + 1) / 2 - 1) : -1));
    }
    int own = rank + 1, all[64], out[64], result;
    CHECK(mpc_concat(&own, all, sizeof own, gid) == 0);
    for (int i = 0; i < size; i++) {
        CHECK(all[i] == i + 1);
        out[i] = 100 * rank + i;
    }
    CHECK(mpc_index(out, all, sizeof(int), gid) == 0);
    for (int i = 0; i < size; i++) CHECK(all[i] == 100 * i + rank);
    CHECK(mpc_combine(&own, &result, sizeof own, i_vadd, gid) == 0 && result == size * (size + 1) / 2);
    CHECK(mpc_combine(&own, &result, sizeof own, i_vmax, gid) == 0 && result == size);
    CHECK(mpc_combine(&own, &result, sizeof own, i_vmin, gid) == 0 && result == 1);
    int bits = 1 << rank % 16, product = 1 + (rank == 0);
    CHECK(mpc_combine(&bits, &result, sizeof bits, i_vor, gid) == 0 && result == (1 << (size < 16 ? size : 16)) - 1);
    CHECK(mpc_combine(&bits, &result, sizeof bits, i_vxor, gid) == 0 && result == (1 << size) - 1);
    CHECK(mpc_combine(&bits, &result, sizeof bits, i_vand, gid) == 0 && result == (size == 1 ? 1 : 0));
    CHECK(mpc_combine(&product, &result, sizeof product, i_vmul, gid) == 0 && result == 2);
    float f[3] = {1, rank, -rank}, g[3];
    CHECK(mpc_combine(f, g, sizeof f, s_vadd, gid) == 0 && g[0] == size && g[1] == -g[2]);
    long l = rank, m;
    CHECK(mpc_combine(&l, &m, sizeof l, l_vmax, gid) == 0 && m == size - 1);
    signed char c = 1, d;
    CHECK(mpc_combine(&c, &d, 1, b_vadd, gid) == 0 && d == size);
    CHECK(mpc_combine(&own, &result, sizeof own, (void (*)())subtract, gid) == 0 && result == 2 - size * (size + 1) / 2);
    CHECK(mpc_prefix(&own, &result, sizeof own, i_vadd, gid) == 0 && result == own * (own + 1) / 2);
    CHECK(mpc_prefix(&own, &result, sizeof own, (void (*)())subtract, gid) == 0 && result == 2 - own * (own + 1) / 2);
    size_t len = sizeof(int);
    i_vadd(&own, &own, &result, &len);
    CHECK(result == 2 * own);
    for (int step = -2; step <= 2; step++) {
        result = -1;
        CHECK(mpc_shift(&own, &result, sizeof own, step, 1, gid) == 0);
        CHECK(result == ((rank - step) % size + size) % size + 1);
        result = -1;
        CHECK(mpc_shift(&own, &result, sizeof own, step, 0, gid) == 0);
        CHECK(result == (rank - step < 0 || rank - step >= size ? -1 : rank - step + 1));
    }
    CHECK(mpc_sync(gid) == 0);
}

int main(void) {
    int gid, label, list[64], size, rank;
    mpc_environ(&tasks, &me);
    collectives(ALLGRP);
    /* All tasks in reverse order. */
    for (int i = 0; i < tasks; i++) list[i] = tasks - 1 - i;
    CHECK(mpc_group(tasks, list, 7, &gid) == 0 && gid > 0);
    CHECK(mpc_getlabel(&label, gid) == 0 && label == 7);
    CHECK(mpc_getrank(&rank, me, gid) == 0 && rank == tasks - 1 - me);
    collectives(gid);
    /* Even and odd tasks, ordered by a key that turns them round; then the same by lists. */
    int half, again;
    CHECK(mpc_partition(ALLGRP, -me, me % 2, &half) == 0);
    CHECK(mpc_getlabel(&label, half) == 0 && label == me % 2);
    CHECK(mpc_getsize(&size, half) == 0 && size == (tasks + 1 - me % 2) / 2);
    CHECK(mpc_getrank(&rank, me, half) == 0 && rank == size - 1 - me / 2);
    collectives(half);
    for (int i = 0; i < size; i++) list[i] = 2 * i + me % 2;
    CHECK(mpc_group(size, list, 5, &again) == 0);
    collectives(again);
    /* Of the parts parts, and some stay out. */
    CHECK(mpc_partition(half, 0, rank == 0 ? DONTCARE : 3, &gid) == 0);
    CHECK((gid == -1) == (rank == 0));
    if (gid != -1) collectives(gid);
    collectives(ALLGRP);
    all_is_well();
}
