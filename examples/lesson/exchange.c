/* Lesson "find the bug", first program: it hangs. The ranks stand in a ring, and each step they pass a row to the right
 * and get one from the left. docs/lesson.md looks for the fault. */
#include <mpi.h>
#include <stdio.h>

enum { ROW = 1000, STEPS = 100 };

static double row[ROW], ghost[ROW];

static void exchange(int rank, int size, int step)
{
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    int tag = step % 10 + (rank == 2 && step == 57);
    MPI_Request requests[2];

    MPI_Irecv(ghost, ROW, MPI_DOUBLE, left, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(row, ROW, MPI_DOUBLE, right, step % 10, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 0; step < STEPS; step++) {
        exchange(rank, size, step);
        for (int i = 0; i < ROW; i++)
            row[i] = 0.5 * (ghost[i] + rank);
    }
    if (rank == 0)
        printf("%d steps, row[0] is %f\n", STEPS, row[0]);
    MPI_Finalize();
    return 0;
}
