/* Lesson "find the bug", second program: it is slow. The ranks share the rows of a grid, and after each step they add up
 * how much has changed. docs/lesson.md looks for the fault. */
#include <mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1100, COLUMNS = 400 };

static double grid[ROWS][COLUMNS];

static double smooth(int first, int last)
{
    double change = 0;
    for (int row = first; row < last; row++)
        for (int column = 1; column < COLUMNS - 1; column++) {
            double value = sqrt(fabs(grid[row][column - 1] * grid[row][column + 1]) + row);
            change += fabs(value - grid[row][column]);
            grid[row][column] = value;
        }
    return change;
}

int main(int argc, char **argv)
{
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 200;
    double change = 0, total = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int share = ROWS / (3 * size);
    int first = rank * share, last = rank == size - 1 ? ROWS : first + share;
    for (int step = 0; step < steps; step++) {
        change = smooth(first, last);
        MPI_Allreduce(&change, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%d steps, the last one changed %g\n", steps, total);
    MPI_Finalize();
    return 0;
}
