/* Lesson "find the bug", third program: its result is wrong. The workers send how many points they have seen and what
 * they add up to; rank 0 prints the mean. docs/lesson.md looks for the faults. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0) {
        int points = 1000 * rank;
        double sum = 0;
        MPI_Request request;
        for (int i = 0; i < points; i++)
            sum += rank;
        MPI_Send(&points, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Isend(&sum, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD, &request);
    } else {
        long points = 0;
        double sum = 0;
        for (int from = 1; from < size; from++) {
            long some = -1;
            double part;
            MPI_Recv(&some, 1, MPI_LONG, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(&part, 1, MPI_DOUBLE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            points += some;
            sum += part;
        }
        printf("the mean of %ld points is %f\n", points, sum / points);
    }
    MPI_Finalize();
    return 0;
}
