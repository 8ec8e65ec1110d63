/* A program that is at work for a while after MPI_Init, as any of use is. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    nanosleep(&(struct timespec){1, 0}, NULL);
    MPI_Finalize();
    puts(size == 1 ? "alone" : "together");
    return 0;
}
