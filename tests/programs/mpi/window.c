/* One-sided communication: windows of all kinds, all operations, all kinds of synchronization. */
#include "check.h"

static int rank, size;

static MPI_Win made(int kind, MPI_Aint bytes, int unit, void *memory, void *base)
{
    MPI_Win win;
    void **out = base;
    switch (kind) {
    case 0:
        MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, out, &win);
        break;
    case 1:
        memset(memory, 0, (size_t)bytes);
        *out = memory;
        MPI_Win_create(memory, bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        break;
    case 2:
        MPI_Alloc_mem(bytes, MPI_INFO_NULL, out);
        memset(*out, 0, (size_t)bytes);
        MPI_Win_create(*out, bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        break;
    default: {
        MPI_Comm comm;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm);
        int all;
        MPI_Comm_size(comm, &all);
        if (all == size)
            MPI_Win_allocate_shared(bytes, unit, MPI_INFO_NULL, comm, out, &win);
        else
            MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, out, &win);
        MPI_Comm_free(&comm);
    }
    }
    return win;
}

#define N 1000

static void fences(MPI_Win win, int *base)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int out[N], in[N];
    for (int i = 0; i < N; i++) {
        out[i] = rank * N + i;
        base[i] = -1;
    }
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    MPI_Put(out, N, MPI_INT, next, 0, N, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < N; i++)
        CHECK(base[i] == before * N + i);
    MPI_Get(in, N, MPI_INT, next, 0, N, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < N; i++)
        CHECK(in[i] == out[i]);
    MPI_Win_fence(0, win);
    for (int i = 0; i < N; i++)
        base[i] = i;
    MPI_Win_fence(0, win);
    for (int r = 0; r < size; r++)
        MPI_Accumulate(out, N, MPI_INT, r, 0, N, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    int ranks = size * (size - 1) / 2;
    for (int i = 0; i < N; i++)
        CHECK(base[i] == i + ranks * N + size * i);
}

/* Every second element, read back as a column; both sides derived. */
static void datatypes(MPI_Win win, int *base)
{
    MPI_Datatype odd, pairs;
    MPI_Type_vector(N / 2, 1, 2, MPI_INT, &odd);
    MPI_Type_commit(&odd);
    MPI_Type_contiguous(2, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    int out[N], in[N];
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < N; i++) {
        base[i] = 0;
        out[i] = rank + 3 * i;
        in[i] = -1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    MPI_Put(out, 1, odd, next, 1, 1, odd, win);
    MPI_Win_flush(next, win);
    MPI_Get(in, N / 4, pairs, next, 1, 1, odd, win);
    MPI_Win_unlock(next, win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < N / 2; i++) {
        CHECK(base[2 * i] == 0);
        CHECK(base[2 * i + 1] == before + 6 * i);
        CHECK(in[i] == out[2 * i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    MPI_Accumulate(out, N / 4, pairs, next, 1, 1, odd, MPI_SUM, win);
    MPI_Get_accumulate(out, 1, odd, in, N / 2, MPI_INT, before, 0, 1, odd, MPI_REPLACE, win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < N / 2; i++) {
        CHECK(base[2 * i + 1] == before + 6 * i + before + 3 * i);
        CHECK(base[2 * i] == next + 6 * i);
        CHECK(in[i] == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_free(&odd);
    MPI_Type_free(&pairs);
}

static void groups(MPI_Win win, int *base)
{
    MPI_Group world, to, from;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &next, &to);
    MPI_Group_incl(world, 1, &before, &from);
    for (int turn = 0; turn < 20; turn++) {
        int value = rank * 100 + turn;
        base[0] = -1;
        MPI_Win_post(from, 0, win);
        MPI_Win_start(to, 0, win);
        MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, win);
        MPI_Win_complete(win);
        if (turn % 2) {
            MPI_Win_wait(win);
        } else {
            int flag = 0;
            while (!flag)
                MPI_Win_test(win, &flag);
        }
        CHECK(base[0] == before * 100 + turn);
    }
    /* All to rank 0. */
    if (rank == 0) {
        memset(base, 0, sizeof(int) * (size_t)size);
        MPI_Win_post(world, MPI_MODE_NOSTORE, win);
    }
    int zero = 0, mine = rank + 1;
    MPI_Group root;
    MPI_Group_incl(world, 1, &zero, &root);
    MPI_Win_start(root, 0, win);
    MPI_Put(&mine, 1, MPI_INT, 0, rank, 1, MPI_INT, win);
    MPI_Win_complete(win);
    if (rank == 0) {
        MPI_Win_wait(win);
        for (int r = 0; r < size; r++)
            CHECK(base[r] == r + 1);
    }
    MPI_Group_free(&root);
    MPI_Group_free(&world);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Counters that all ranks count up, each in its way; and a lock by compare-and-swap. */
static void atomics(MPI_Win win, long *base)
{
    const int turns = 200;
    long one = 1, before, free_ = 0, mine = rank + 1, last = -1;
    if (rank == 0)
        memset(base, 0, 8 * sizeof *base);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    /* A char counts as an integer, as programs expect that accumulate one. */
    char step = 1, seen = 0, got = 0;
    MPI_Fetch_and_op(&step, &seen, MPI_CHAR, 0, 7, MPI_SUM, win);
    MPI_Accumulate(&step, 1, MPI_CHAR, 0, 7, 1, MPI_CHAR, MPI_SUM, win);
    MPI_Win_flush(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Fetch_and_op(NULL, &got, MPI_CHAR, 0, 7, MPI_NO_OP, win);
    MPI_Win_flush(0, win);
    CHECK(seen >= 0 && seen < 2 * size && got == 2 * size);
    for (int i = 0; i < turns; i++) {
        MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 1, MPI_SUM, win);
        MPI_Win_flush_local(0, win);
        CHECK(before > last);
        last = before;
        MPI_Get_accumulate(&one, 1, MPI_LONG, &before, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
        MPI_Win_flush_all(win);
    }
    for (int i = 0; i < turns / 4; i++) {
        /* Take the lock, count without atomics, give it back. */
        for (;;) {
            MPI_Compare_and_swap(&mine, &free_, &before, MPI_LONG, 0, 2, win);
            MPI_Win_flush(0, win);
            if (before == 0)
                break;
        }
        long count;
        MPI_Get(&count, 1, MPI_LONG, 0, 3, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        count++;
        MPI_Put(&count, 1, MPI_LONG, 0, 3, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        MPI_Fetch_and_op(&free_, &before, MPI_LONG, 0, 2, MPI_REPLACE, win);
        MPI_Win_flush(0, win);
        CHECK(before == mine);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    long all[4] = {0, 0, 0, 0};
    MPI_Get_accumulate(NULL, 0, MPI_LONG, all, 4, MPI_LONG, 0, 0, 4, MPI_LONG, MPI_NO_OP, win);
    MPI_Win_unlock(0, win);
    CHECK(all[0] == 2L * turns * size && all[1] == (long)turns * size && all[2] == 0);
    CHECK(all[3] == turns / 4L * size);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Exclusive locks make a sequence of operations one. */
static void exclusive(MPI_Win win, int *base)
{
    if (rank == 0)
        base[0] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 50; i++) {
        int value;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
        MPI_Win_flush(0, win);
        value++;
        MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
        MPI_Win_unlock(0, win);
        if (i % 10 == 0) {
            MPI_Win_lock_all(0, win);
            MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
            MPI_Win_unlock_all(win);
            CHECK(value > i);
        }
    }
    /* Shared locks are held together. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOCHECK, win);
    int value;
    MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
    CHECK(value == 50 * size);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Requests, and data of many fragments. */
static void requests(void)
{
    enum { M = 300000 };
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int kind = 0; kind < 3; kind++) {
        double *memory = malloc(M * sizeof *memory), *base;
        double *out = malloc(M * sizeof *out), *in = malloc(M * sizeof *in);
        MPI_Win win = made(kind, M * (MPI_Aint)sizeof *memory, sizeof *memory, memory, &base);
        for (int i = 0; i < M; i++)
            out[i] = rank + i;
        MPI_Request request[2];
        MPI_Win_lock_all(0, win);
        MPI_Rput(out, M, MPI_DOUBLE, next, 0, M, MPI_DOUBLE, win, request);
        MPI_Rput(out, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, 1, MPI_DOUBLE, win, request + 1);
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        MPI_Win_flush(next, win);
        MPI_Raccumulate(out, M, MPI_DOUBLE, next, 0, M, MPI_DOUBLE, MPI_SUM, win, request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        MPI_Win_flush(next, win);
        MPI_Rget(in, M, MPI_DOUBLE, next, 0, M, MPI_DOUBLE, win, request);
        int flag = 0;
        while (!flag)
            MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        for (int i = 0; i < M; i++)
            CHECK(in[i] == 2.0 * out[i]);
        MPI_Rget_accumulate(out, M, MPI_DOUBLE, in, M, MPI_DOUBLE, next, 0, M, MPI_DOUBLE, MPI_MAX, win, request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        for (int i = 0; i < M; i++)
            CHECK(in[i] == 2.0 * out[i]);
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
        for (int i = 0; i < M; i++)
            CHECK(base[i] == 2.0 * (before + i));
        MPI_Win_unlock(rank, win);
        MPI_Win_free(&win);
        CHECK(win == MPI_WIN_NULL);
        if (kind == 2)
            MPI_Free_mem(base);
        free(memory);
        free(out);
        free(in);
    }
}

static void dynamic(void)
{
    MPI_Win win;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    enum { K = 40 };
    int *pieces[K], *shared;
    MPI_Aint mine[K + 1], *all = malloc(sizeof(MPI_Aint) * (K + 1) * (size_t)size);
    for (int k = 0; k < K; k++) {
        pieces[k] = malloc(16 * sizeof(int));
        for (int i = 0; i < 16; i++)
            pieces[k][i] = rank * 1000 + k * 16 + i;
        MPI_Win_attach(win, pieces[k], 16 * sizeof(int));
        MPI_Get_address(pieces[k], &mine[k]);
    }
    MPI_Alloc_mem(64, MPI_INFO_NULL, &shared);
    memset(shared, 0, 64);
    MPI_Win_attach(win, shared, 64);
    MPI_Get_address(shared, &mine[K]);
    MPI_Allgather(mine, K + 1, MPI_AINT, all, K + 1, MPI_AINT, MPI_COMM_WORLD);
    int next = (rank + 1) % size, in[16], one = 1;
    MPI_Win_lock_all(0, win);
    for (int k = 0; k < K; k++) {
        MPI_Get(in, 16, MPI_INT, next, all[next * (K + 1) + k], 16, MPI_INT, win);
        MPI_Win_flush(next, win);
        for (int i = 0; i < 16; i++)
            CHECK(in[i] == next * 1000 + k * 16 + i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) {
        MPI_Accumulate(&one, 1, MPI_INT, r, all[r * (K + 1) + K] + 8, 1, MPI_INT, MPI_SUM, win);
        MPI_Accumulate(&one, 1, MPI_INT, r, MPI_Aint_add(all[r * (K + 1)], 4), 1, MPI_INT, MPI_SUM, win);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(shared[2] == size);
    CHECK(pieces[0][1] == rank * 1000 + 1 + size);
    for (int k = 0; k < K; k++) {
        MPI_Win_detach(win, pieces[k]);
        free(pieces[k]);
    }
    MPI_Win_detach(win, shared);
    /* Pieces that touch each other are one to an operation that reaches across. */
    int whole[32];
    for (int i = 0; i < 32; i++)
        whole[i] = rank * 100 + i;
    MPI_Win_attach(win, whole, 16 * sizeof(int));
    MPI_Win_attach(win, whole + 16, 16 * sizeof(int));
    MPI_Aint address, *addresses = malloc(sizeof(MPI_Aint) * (size_t)size);
    MPI_Get_address(whole, &address);
    MPI_Allgather(&address, 1, MPI_AINT, addresses, 1, MPI_AINT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) {
        MPI_Win_lock(MPI_LOCK_SHARED, r, 0, win);
        MPI_Get(in, 16, MPI_INT, r, addresses[r] + 32, 16, MPI_INT, win);
        MPI_Win_unlock(r, win);
        for (int i = 0; i < 16; i++)
            CHECK(in[i] == r * 100 + 8 + i);
    }
    free(addresses);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(win, whole);
    MPI_Win_detach(win, whole + 16);
    MPI_Win_free(&win);
    MPI_Free_mem(shared);
    free(all);
}

static void shared(void)
{
    MPI_Comm comm;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm);
    int me, all;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    for (int apart = 0; apart < 2; apart++) {
        MPI_Info info;
        MPI_Info_create(&info);
        if (apart)
            MPI_Info_set(info, "alloc_shared_noncontig", "true");
        int *base;
        MPI_Win win;
        MPI_Win_allocate_shared((me + 1) * (MPI_Aint)sizeof(int), sizeof(int), info, comm, &base, &win);
        MPI_Info_free(&info);
        for (int i = 0; i <= me; i++)
            base[i] = 10 * me + i;
        MPI_Win_fence(0, win);
        char *end = NULL;
        for (int r = 0; r < all; r++) {
            MPI_Aint bytes;
            int unit, *part;
            MPI_Win_shared_query(win, r, &bytes, &unit, &part);
            CHECK(bytes == (r + 1) * (MPI_Aint)sizeof(int) && unit == sizeof(int));
            for (int i = 0; i <= r; i++)
                CHECK(part[i] == 10 * r + i);
            if (!apart && end)
                CHECK((char *)part == end);
            end = (char *)part + bytes;
        }
        void *first;
        MPI_Aint bytes, large;
        int unit;
        MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first);
        CHECK(bytes == sizeof(int) && *(int *)first == 0);
        MPI_Win_shared_query_c(win, all - 1, &bytes, &large, &first);
        CHECK(large == sizeof(int) && bytes == all * (MPI_Aint)sizeof(int));
        MPI_Win_fence(0, win);
        MPI_Win_free(&win);
    }
    MPI_Comm_free(&comm);
}

/* Larger than any memory: pages that nobody touches cost nothing. */
static void sparse(void)
{
    MPI_Aint bytes = (MPI_Aint)1 << 40;
    long *base, one = rank, got = -1;
    MPI_Win win;
    MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_fence(0, win);
    int next = (rank + 1) % size;
    MPI_Put(&one, 1, MPI_LONG, next, bytes / 8 - 1, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    MPI_Get(&got, 1, MPI_LONG, rank, bytes / 8 - 1, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    CHECK(got == (rank + size - 1) % size && base[0] == 0);
    MPI_Win_free(&win);
}

static int deleted;

static int delete_function(MPI_Win win, int key, void *value, void *extra)
{
    (void)win;
    (void)key;
    CHECK(extra == &deleted);
    deleted += *(int *)value;
    return MPI_SUCCESS;
}

static void objects(void)
{
    int memory[4] = {0}, *base, flag, *number, key, value = 5;
    MPI_Aint *bytes;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag);
    CHECK(flag && base == memory);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag);
    CHECK(flag && *bytes == sizeof memory);
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &number, &flag);
    CHECK(flag && *number == 4);
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &number, &flag);
    CHECK(flag && *number == MPI_WIN_FLAVOR_CREATE);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &number, &flag);
    CHECK(flag && *number == MPI_WIN_UNIFIED);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_function, &key, &deleted);
    MPI_Win_get_attr(win, key, &number, &flag);
    CHECK(!flag);
    MPI_Win_set_attr(win, key, &value);
    MPI_Win_get_attr(win, key, &number, &flag);
    CHECK(flag && number == &value);
    MPI_Win_delete_attr(win, key);
    CHECK(deleted == 5);
    MPI_Win_set_attr(win, key, &value);
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Win_get_name(win, name, &length);
    CHECK(length == 0 && name[0] == 0);
    MPI_Win_set_name(win, "halo");
    MPI_Win_get_name(win, name, &length);
    CHECK(length == 4 && strcmp(name, "halo") == 0);
    MPI_Group group, world;
    MPI_Win_get_group(win, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &flag);
    CHECK(flag == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    MPI_Info info, used;
    MPI_Info_create(&info);
    MPI_Info_set(info, "no_locks", "true");
    MPI_Win_set_info(win, info);
    MPI_Info_free(&info);
    MPI_Win_get_info(win, &used);
    char text[64];
    MPI_Info_get(used, "no_locks", 63, text, &flag);
    CHECK(flag && strcmp(text, "true") == 0);
    MPI_Info_get(used, "accumulate_ops", 63, text, &flag);
    CHECK(flag && strcmp(text, "same_op_no_op") == 0);
    MPI_Info_free(&used);
    CHECK(MPI_Win_fromint(MPI_Win_toint(win)) == win);
    MPI_Win_free(&win);
    CHECK(deleted == 10);
    MPI_Win_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
}

/* The alignment that is asked for is given. */
static void aligned(void)
{
    char *base;
    MPI_Win win;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_minimum_memory_alignment", "4096");
    MPI_Win_allocate(100, 1, info, MPI_COMM_WORLD, &base, &win);
    CHECK((size_t)base % 4096 == 0);
    MPI_Win_free(&win);
    MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static int memory[N + 8];
    for (int kind = 0; kind < 4; kind++) {
        int *base;
        MPI_Win win = made(kind, sizeof memory, sizeof(int), memory, &base);
        fences(win, base);
        datatypes(win, base);
        groups(win, base);
        exclusive(win, base);
        MPI_Win_free(&win);
        if (kind == 2)
            MPI_Free_mem(base);
        long *longs;
        win = made(kind, 64, sizeof(long), memory, &longs);
        atomics(win, longs);
        MPI_Win_free(&win);
        if (kind == 2)
            MPI_Free_mem(longs);
    }
    requests();
    dynamic();
    shared();
    sparse();
    objects();
    aligned();
    return finish();
}
