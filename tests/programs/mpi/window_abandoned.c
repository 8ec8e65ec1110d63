/*
 * The last rank dies while the others wait for it in a synchronizing call of a window: each gets an
 * error, can end its epochs and free the window, and works on with another one.
 * Argument, what the last rank does before it dies:
 *   exclusive   holds the exclusive lock of rank 0; the others ask for it, exclusively and shared
 *   shared      holds it shared; the others ask for it exclusively, and get it shared
 *   all         holds all; the others ask for rank 0's exclusively, and lock all, too
 *   asks        waits for an exclusive lock that rank 0 holds and releases afterwards; the others may get
 *               an error or not
 *   posts       does not post; the others start, to rank 0 as well, which posts
 *   completes   does not complete; the others wait, for rank 0 as well, which completes
 *   tests       the same with MPI_Win_test
 *   target      its memory is put to
 */
#include "check.h"

#include <mpi_ext.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 16 };

static int rank, size;
static MPI_Win win;
static MPI_Comm pairs;

static void pause_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* The last rank is where the others wait for it. */
static void ready(void)
{
    int word = 1;
    if (rank == size - 1) {
        for (int to = 0; to < size - 1; to++)
            MPI_Send(&word, 1, MPI_INT, to, 1, pairs);
        pause_ms(30);
        kill(getpid(), SIGKILL);
    }
    MPI_Recv(&word, 1, MPI_INT, size - 1, 1, pairs, MPI_STATUS_IGNORE);
}

/* Waits until this rank knows of the death. */
static void learn(void)
{
    int word;
    CHECK(class_of(MPI_Recv(&word, 1, MPI_INT, size - 1, 2, pairs, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
}

static MPI_Group group_of(int first, int second)
{
    MPI_Group world, group;
    int ranks[2] = {first, second};
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, first == second ? 1 : 2, ranks, &group);
    MPI_Group_free(&world);
    return group;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &pairs);
    MPI_Comm_set_errhandler(pairs, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(argc == 2 && size >= 3 && size <= RANKS_MOST);
    const char *what = argv[1];
    int last = size - 1, dies = rank == last;
    int *base;
    MPI_Win_allocate(size * (MPI_Aint)sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    for (int n = 0; n < size; n++)
        base[n] = 0;
    MPI_Barrier(MPI_COMM_WORLD);

    if (strcmp(what, "exclusive") == 0) {
        if (dies)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        ready();
        int kind = rank % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE;
        for (int again = 0; again < 3; again++)
            CHECK(class_of(MPI_Win_lock(kind, 0, 0, win)) == MPIX_ERR_PROC_FAILED);
        CHECK(class_of(MPI_Win_lock_all(0, win)) == MPIX_ERR_PROC_FAILED);
        /* What the dead one does not hold is there for all. */
        for (int again = 0; again < 20; again++) {
            int one = 1;
            CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win) == MPI_SUCCESS);
            CHECK(MPI_Put(&one, 1, MPI_INT, 1, rank, 1, MPI_INT, win) == MPI_SUCCESS);
            CHECK(MPI_Win_unlock(1, win) == MPI_SUCCESS);
        }
    } else if (strcmp(what, "shared") == 0) {
        if (dies)
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        ready();
        if (rank == 0)
            CHECK(class_of(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win)) == MPIX_ERR_PROC_FAILED);
        else
            learn();
        CHECK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win) == MPI_SUCCESS);
        CHECK(MPI_Win_unlock(0, win) == MPI_SUCCESS);
        CHECK(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
        CHECK(MPI_Win_unlock_all(win) == MPI_SUCCESS);
    } else if (strcmp(what, "all") == 0) {
        if (dies)
            MPI_Win_lock_all(0, win);
        ready();
        CHECK(class_of(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win)) == MPIX_ERR_PROC_FAILED);
        CHECK(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
        CHECK(MPI_Win_unlock_all(win) == MPI_SUCCESS);
    } else if (strcmp(what, "asks") == 0) {
        if (rank == 0)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Barrier(pairs);
        if (dies) {
            /* Killed by rank 0's word, since it will wait itself. */
            if (fork() == 0) {
                pause_ms(40);
                kill(getppid(), SIGKILL);
                _exit(0);
            }
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        }
        learn();
        if (rank == 0)
            CHECK(MPI_Win_unlock(1, win) == MPI_SUCCESS);
        int class_ = class_of(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
        CHECK(class_ == MPI_SUCCESS || class_ == MPIX_ERR_PROC_FAILED);
        if (class_ == MPI_SUCCESS)
            CHECK(MPI_Win_unlock(1, win) == MPI_SUCCESS);
    } else if (strcmp(what, "posts") == 0) {
        MPI_Group origins = group_of(1, size - 2), targets = group_of(0, last);
        if (rank == 0 && size > 3)
            MPI_Win_post(origins, 0, win);
        ready();
        if (rank != 0 && (rank == 1 || rank == size - 2)) {
            int one = rank;
            if (size == 3) {
                /* The only one beside rank 0. */
                MPI_Group_free(&targets);
                targets = group_of(last, last);
            }
            CHECK(class_of(MPI_Win_start(targets, 0, win)) == MPIX_ERR_PROC_FAILED);
            if (size > 3)
                CHECK(MPI_Put(&one, 1, MPI_INT, 0, rank, 1, MPI_INT, win) == MPI_SUCCESS);
            CHECK(class_of(MPI_Put(&one, 1, MPI_INT, last, rank, 1, MPI_INT, win)) == MPI_ERR_RMA_SYNC);
            CHECK(MPI_Win_complete(win) == MPI_SUCCESS);
        }
        if (rank == 0 && size > 3) {
            CHECK(MPI_Win_wait(win) == MPI_SUCCESS);
            CHECK(base[1] == 1 && base[size - 2] == size - 2);
        }
        MPI_Group_free(&origins);
        MPI_Group_free(&targets);
    } else if (strcmp(what, "completes") == 0 || strcmp(what, "tests") == 0) {
        MPI_Group origins = group_of(0, last), targets = group_of(1, 1);
        if (rank == 1)
            MPI_Win_post(origins, 0, win);
        if (rank == 0 || dies)
            MPI_Win_start(targets, 0, win);
        ready();
        int one = 7;
        if (rank == 0) {
            CHECK(MPI_Put(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, win) == MPI_SUCCESS);
            CHECK(MPI_Win_complete(win) == MPI_SUCCESS);
        } else if (rank == 1) {
            int flag = 0, code = MPI_SUCCESS;
            if (what[0] == 'c')
                code = MPI_Win_wait(win);
            while (what[0] == 't' && !flag && code == MPI_SUCCESS)
                code = MPI_Win_test(win, &flag);
            CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
            /* The epoch is over, and what lives has completed it. */
            CHECK(class_of(MPI_Win_wait(win)) == MPI_ERR_RMA_SYNC);
            CHECK(base[0] == 7);
        }
        MPI_Group_free(&origins);
        MPI_Group_free(&targets);
    } else if (strcmp(what, "target") == 0) {
        CHECK(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
        ready();
        int one = 1, refused = 0;
        for (int n = 0; n < 1000000 && !refused; n++) {
            int code = MPI_Put(&one, 1, MPI_INT, last, rank, 1, MPI_INT, win);
            if (!code)
                code = MPI_Win_flush(last, win);
            CHECK(!code || class_of(code) == MPIX_ERR_PROC_FAILED);
            refused = code != MPI_SUCCESS;
            /* Mapped memory stays as long as anybody maps it. */
            if (!refused && getenv("MARGAY_BYTES_ONLY")[0] == '0')
                break;
        }
        CHECK(refused == (getenv("MARGAY_BYTES_ONLY")[0] == '1'));
        CHECK(MPI_Put(&one, 1, MPI_INT, 0, rank, 1, MPI_INT, win) == MPI_SUCCESS);
        CHECK(MPI_Win_unlock_all(win) == MPI_SUCCESS);
    } else {
        CHECK(!"an argument that is known");
    }

    CHECK(MPI_Win_free(&win) == MPI_SUCCESS && win == MPI_WIN_NULL);
    MPI_Comm rest;
    CHECK(MPIX_Comm_shrink(MPI_COMM_WORLD, &rest) == MPI_SUCCESS);
    int left, one = 1;
    MPI_Comm_size(rest, &left);
    CHECK(left == size - 1);
    MPI_Win_allocate(sizeof *base, sizeof *base, MPI_INFO_NULL, rest, &base, &win);
    *base = 0;
    MPI_Barrier(rest);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_unlock(0, win);
    MPI_Barrier(rest);
    CHECK(rank != 0 || *base == left);
    MPI_Win_free(&win);
    int all;
    CHECK(MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, rest) == MPI_SUCCESS);
    if (rank == 0)
        puts(all ? "failed" : "ok");
    MPI_Finalize();
    return all != 0;
}
