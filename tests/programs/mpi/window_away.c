/*
 * One-sided operations of all ranks on memory of rank 0 that it has from elsewhere: while it computes without a call, in turn
 * with calls, and while it waits. What was completed is there before rank 0 calls MPI again.
 */
#include "check.h"

enum { SLOTS = 64, LONG = 8192, ROUNDS = 40 };

typedef struct {
    long finished, tickets;
    long sums[LONG];
    int slots[16][SLOTS];
} Memory;

static int rank, size;
static Memory memory;

static void operate(MPI_Win win, int phase)
{
    static long ones[LONG], before[LONG];
    long one = 1, ticket, last = -1, zero = 0;
    int values[SLOTS], seen[SLOTS];
    MPI_Aint slots = (MPI_Aint)((char *)memory.slots[rank % 16] - (char *)&memory);
    MPI_Aint sums = (MPI_Aint)((char *)memory.sums - (char *)&memory);
    MPI_Aint tickets = (MPI_Aint)((char *)&memory.tickets - (char *)&memory);
    for (int i = 0; i < LONG; i++)
        ones[i] = 1;
    for (int round = 0; round < ROUNDS; round++) {
        /* More than fits at a time, some next to each other, some not. */
        for (int i = 0; i < SLOTS; i++) {
            int at = round % 2 ? i : i * 7 % SLOTS;
            values[at] = phase * 1000000 + rank * 10000 + round * 100 + at;
            MPI_Put(values + at, 1, MPI_INT, 0, slots + 4 * at, 1, MPI_INT, win);
        }
        MPI_Win_flush_local(0, win);
        MPI_Win_flush(0, win);
        for (int i = 0; i < SLOTS; i++)
            MPI_Get(seen + i, 1, MPI_INT, 0, slots + 4 * i, 1, MPI_INT, win);
        MPI_Fetch_and_op(&one, &ticket, MPI_LONG, 0, tickets, MPI_SUM, win);
        /* Accumulates are ordered: the sum of the first is what the second finds. */
        int most = round % 4 == 0 ? LONG : round % 4 == 1 ? 1000 : round + 1;
        MPI_Accumulate(ones, most, MPI_LONG, 0, sums, most, MPI_LONG, MPI_SUM, win);
        MPI_Get_accumulate(&zero, 0, MPI_LONG, before, 1, MPI_LONG, 0, sums, 1, MPI_LONG, MPI_NO_OP, win);
        MPI_Win_flush_local(0, win);
        for (int i = 0; i < SLOTS; i++)
            CHECK(seen[i] == values[i]);
        CHECK(ticket > last);
        CHECK(before[0] >= phase * (size - 1) * ROUNDS + round + 1);
        last = ticket;
    }
    MPI_Win_flush(0, win);
    MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
    MPI_Win_flush(0, win);
}

static void check(int phase)
{
    long origins = size - 1, done = phase + 1;
    CHECK(memory.tickets == done * origins * ROUNDS);
    CHECK(memory.sums[0] == done * origins * ROUNDS);
    CHECK(memory.sums[999] == done * origins * ROUNDS / 2);
    CHECK(memory.sums[LONG - 1] == done * origins * ROUNDS / 4);
    for (int origin = 1; origin < size; origin++)
        for (int i = 0; i < SLOTS; i++)
            CHECK(memory.slots[origin % 16][i] == phase * 1000000 + origin * 10000 + (ROUNDS - 1) * 100 + i);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win win;
    MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int phase = 0; phase < 6; phase++) {
        MPI_Win_lock_all(0, win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            /* Computing, now and then in a call, or waiting in one. */
            volatile long *finished = &memory.finished;
            while (phase % 3 < 2 && *finished < (phase + 1) * (size - 1)) {
                int flag;
                if (phase % 3 == 1)
                    MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            }
            if (phase % 3 < 2)
                check(phase);
        } else {
            operate(win, phase);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(win);
        if (rank == 0)
            check(phase);
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&win);
    return finish();
}
