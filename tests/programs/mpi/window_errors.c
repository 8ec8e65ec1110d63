/* Errors of one-sided communication: their classes, and that they go to the window's error handler. */
#include "check.h"

static MPI_Win expected_win;
static int calls, last_class;

static void handler(MPI_Win *win, int *code, ...)
{
    CHECK(*win == expected_win);
    calls++;
    last_class = class_of(*code);
}

static void says(int code, const char *part)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    if (!strstr(text, part)) {
        fprintf(stderr, "'%s' does not say '%s'\n", text, part);
        failures++;
    }
}

#define FAILS(call, class)                    \
    do {                                      \
        int code_ = (call);                   \
        if (class_of(code_) != (class))       \
            fprintf(stderr, "%s gives class %d\n", #call, class_of(code_)); \
        CHECK(class_of(code_) == (class));    \
    } while (0)

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, memory[8] = {0}, one = 1, got;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win win, dynamic;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    FAILS(MPI_Win_create(memory, -1, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_SIZE);
    FAILS(MPI_Win_create(memory, 4, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_DISP);
    FAILS(MPI_Win_create(NULL, 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_BASE);
    FAILS(MPI_Win_create(memory, 4, 4, MPI_INFO_NULL, MPI_COMM_NULL, &win), MPI_ERR_COMM);
    FAILS(MPI_Win_create(memory, 4, 4, MPI_Info_fromint(12345), MPI_COMM_WORLD, &win), MPI_ERR_INFO);
    FAILS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);

    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
    MPI_Errhandler own, seen;
    MPI_Win_get_errhandler(win, &seen);
    CHECK(seen == MPI_ERRORS_ARE_FATAL);
    MPI_Win_create_errhandler(handler, &own);
    MPI_Win_set_errhandler(win, own);
    MPI_Win_get_errhandler(win, &seen);
    CHECK(seen == own);
    MPI_Errhandler_free(&seen);
    MPI_Errhandler_free(&own);
    expected_win = win;
    MPI_Win_call_errhandler(win, MPI_ERR_OTHER);
    CHECK(calls == 1 && last_class == MPI_ERR_OTHER);
    FAILS(MPI_Put(&one, 1, MPI_INT, size, 0, 1, MPI_INT, win), MPI_ERR_RANK);
    CHECK(calls == 2 && last_class == MPI_ERR_RANK);

    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    MPI_Win_set_name(win, "small");
    int code = MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    CHECK(class_of(code) == MPI_ERR_RMA_SYNC);
    says(code, "no epoch covers rank 0 of window 'small'");
    FAILS(MPI_Win_unlock(0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_test(win, &got), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_flush(0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_flush_all(win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_fence(MPI_MODE_NOCHECK, win), MPI_ERR_ASSERT);
    FAILS(MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOPUT, win), MPI_ERR_ASSERT);
    FAILS(MPI_Win_lock(7, 0, 0, win), MPI_ERR_LOCKTYPE);
    FAILS(MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win), MPI_ERR_RANK);
    FAILS(MPI_Win_attach(win, memory, 4), MPI_ERR_RMA_FLAVOR);
    FAILS(MPI_Win_detach(win, memory), MPI_ERR_RMA_FLAVOR);
    void *where;
    MPI_Aint bytes;
    FAILS(MPI_Win_shared_query(dynamic, 0, &bytes, &got, &where), MPI_ERR_RMA_FLAVOR);

    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    FAILS(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    if (size > 1)
        FAILS(MPI_Put(&one, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    code = MPI_Put(&one, 1, MPI_INT, rank, 8, 1, MPI_INT, win);
    CHECK(class_of(code) == MPI_ERR_RMA_RANGE);
    says(code, "displacement 8 (times 4 bytes)");
    FAILS(MPI_Get(&one, 1, MPI_INT, rank, -1, 1, MPI_INT, win), MPI_ERR_DISP);
    FAILS(MPI_Get(&one, 1, MPI_INT, rank, (MPI_Aint)1 << 62, 1, MPI_INT, win), MPI_ERR_DISP);
    FAILS(MPI_Put(&one, 2, MPI_INT, rank, 0, 1, MPI_INT, win), MPI_ERR_TRUNCATE);
    FAILS(MPI_Put(NULL, 1, MPI_INT, rank, 0, 1, MPI_INT, win), MPI_ERR_BUFFER);
    FAILS(MPI_Put(&one, -1, MPI_INT, rank, 0, 1, MPI_INT, win), MPI_ERR_COUNT);
    FAILS(MPI_Put(&one, 1, MPI_DATATYPE_NULL, rank, 0, 1, MPI_INT, win), MPI_ERR_TYPE);
    FAILS(MPI_Accumulate(&one, 1, MPI_INT, rank, 0, 1, MPI_INT, MPI_OP_NULL, win), MPI_ERR_OP);
    FAILS(MPI_Accumulate(&one, 1, MPI_INT, rank, 0, 1, MPI_INT, MPI_MAXLOC, win), MPI_ERR_OP);
    FAILS(MPI_Accumulate(&one, 1, MPI_INT, rank, 0, 1, MPI_FLOAT, MPI_SUM, win), MPI_ERR_TYPE);
    float f = 1, g, h = 2;
    FAILS(MPI_Compare_and_swap(&f, &h, &g, MPI_FLOAT, rank, 0, win), MPI_ERR_TYPE);
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_INT, &two);
    FAILS(MPI_Put(memory, 1, two, rank, 0, 1, two, win), MPI_ERR_TYPE);
    MPI_Type_commit(&two);
    FAILS(MPI_Fetch_and_op(memory, memory, two, rank, 0, MPI_SUM, win), MPI_ERR_TYPE);
    MPI_Type_free(&two);
    CHECK(MPI_Put(NULL, 0, MPI_INT, rank, 100, 0, MPI_INT, win) == MPI_SUCCESS);
    CHECK(MPI_Put(&one, 1, MPI_INT, MPI_PROC_NULL, 100, 1, MPI_INT, win) == MPI_SUCCESS);
    MPI_Win_unlock(rank, win);

    MPI_Group world, self;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(MPI_COMM_SELF, &self);
    MPI_Win_post(self, 0, win);
    FAILS(MPI_Win_post(self, 0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    MPI_Win_start(self, 0, win);
    FAILS(MPI_Win_start(self, 0, win), MPI_ERR_RMA_SYNC);
    FAILS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    MPI_Win_complete(win);
    FAILS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    MPI_Win_wait(win);

    /* The epoch of a fence ends when another kind of epoch begins. */
    MPI_Win_fence(0, win);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, MPI_MODE_NOCHECK, win);
    MPI_Win_unlock(rank, win);
    FAILS(MPI_Get(&got, 1, MPI_INT, rank, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);

    /* A window of some processes refuses groups with others. */
    if (size > 1) {
        MPI_Win alone;
        MPI_Win_allocate(4, 4, MPI_INFO_NULL, MPI_COMM_SELF, &where, &alone);
        MPI_Win_set_errhandler(alone, MPI_ERRORS_RETURN);
        FAILS(MPI_Win_post(world, 0, alone), MPI_ERR_GROUP);
        MPI_Win_free(&alone);
    }
    MPI_Group_free(&world);
    MPI_Group_free(&self);

    MPI_Aint address, next;
    MPI_Win_attach(dynamic, memory, sizeof memory);
    FAILS(MPI_Win_attach(dynamic, memory + 1, 4), MPI_ERR_RMA_ATTACH);
    FAILS(MPI_Win_detach(dynamic, memory + 1), MPI_ERR_RMA_ATTACH);
    FAILS(MPI_Win_attach(dynamic, NULL, 4), MPI_ERR_BASE);
    FAILS(MPI_Win_attach(dynamic, memory, -4), MPI_ERR_SIZE);
    MPI_Get_address(memory, &address);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Sendrecv(&address, 1, MPI_AINT, from, 0, &next, 1, MPI_AINT, to, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, dynamic);
    CHECK(MPI_Get(&got, 1, MPI_INT, to, next + 28, 1, MPI_INT, dynamic) == MPI_SUCCESS);
    CHECK(MPI_Win_flush(to, dynamic) == MPI_SUCCESS);
    /* Behind the attached memory: reported at once, or when the operation is completed. */
    code = MPI_Get(&got, 1, MPI_INT, to, next + 32, 1, MPI_INT, dynamic);
    if (code == MPI_SUCCESS)
        code = MPI_Win_flush(to, dynamic);
    CHECK(class_of(code) == MPI_ERR_RMA_RANGE);
    CHECK(MPI_Win_unlock(to, dynamic) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(dynamic, memory);
    MPI_Win_free(&dynamic);
    MPI_Win_free(&win);
    FAILS(MPI_Win_free(&win), MPI_ERR_WIN);
    return finish();
}
