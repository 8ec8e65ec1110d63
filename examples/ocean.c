/* The ocean of a coupled model. Two programs, ocean.c and air.c, run as one job and exchange heat:
 *
 *     mpicc examples/ocean.c -o ocean
 *     mpicc examples/air.c -o air
 *     mpiexec -n 2 ./ocean : -n 2 ./air
 *
 * Both programs are in one MPI_COMM_WORLD. Each makes a communicator of its own ranks for its own work, and an
 * intercommunicator for the work with the other program. The numbers of their ranks may differ. */
#include <mpi.h>
#include <stdio.h>

/* Joules that warm a square metre of ocean, 50 m deep, by a kelvin; watts that pass for each kelvin of difference. */
static const double CAPACITY = 2.1e8, CONDUCTANCE = 40.0;

/* Time steps of a day. air.c has the same, because the two programs exchange temperatures in each step. */
enum { STEPS = 365 };
static const double STEP_S = 86400.0;

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int world_rank, world_size, *program, is_set;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);

    /* Which of the programs between the colons this is: 0, 1, ... Ranks of one program get one communicator. */
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &is_set);
    MPI_Comm ocean, to_air;
    MPI_Comm_split(MPI_COMM_WORLD, *program, world_rank, &ocean);
    int rank, size;
    MPI_Comm_rank(ocean, &rank);
    MPI_Comm_size(ocean, &size);
    if (size == world_size) {
        fprintf(stderr, "ocean: there is no air; run: mpiexec -n 2 ./ocean : -n 2 ./air\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    /* The ranks of a program are one behind the other, so the other program begins at world rank 0 or where this one
     * ends. The first ranks of both introduce their programs to each other. */
    int other = world_rank - rank == 0 ? size : 0, air_ranks;
    MPI_Intercomm_create(ocean, 0, MPI_COMM_WORLD, other, 1, &to_air);
    MPI_Comm_remote_size(to_air, &air_ranks);

    /* Each rank has a part of the ocean, warmer in the south than in the north. */
    double sea_k = 283.0 + 10.0 * (rank + 0.5) / size, air_k, before_k;
    MPI_Allreduce(&sea_k, &before_k, 1, MPI_DOUBLE, MPI_SUM, ocean);
    for (int step = 0; step < STEPS; step++) {
        /* Over an intercommunicator each side gets the sum of the other side: here the sum of the air's temperatures. */
        MPI_Allreduce(&sea_k, &air_k, 1, MPI_DOUBLE, MPI_SUM, to_air);
        sea_k += STEP_S * CONDUCTANCE * (air_k / air_ranks - sea_k) / CAPACITY;
    }

    double after_k;
    MPI_Allreduce(&sea_k, &after_k, 1, MPI_DOUBLE, MPI_SUM, ocean);
    if (rank == 0) {
        printf("ocean on %d ranks: from %.2f to %.2f kelvin in %d days\n", size, before_k / size, after_k / size, STEPS);
    }
    MPI_Comm_free(&to_air);
    MPI_Comm_free(&ocean);
    MPI_Finalize();
    return 0;
}
