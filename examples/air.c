/* The air of a coupled model; ocean.c says how the two programs are compiled, run and connected. */
#include <mpi.h>
#include <stdio.h>

/* Joules that warm the air above a square metre by a kelvin; watts that pass for each kelvin of difference. */
static const double CAPACITY = 1.0e7, CONDUCTANCE = 40.0;

/* Time steps of a day, as in ocean.c. */
enum { STEPS = 365 };
static const double STEP_S = 86400.0;

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int world_rank, world_size, *program, is_set;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &is_set);
    MPI_Comm air, to_ocean;
    MPI_Comm_split(MPI_COMM_WORLD, *program, world_rank, &air);
    int rank, size;
    MPI_Comm_rank(air, &rank);
    MPI_Comm_size(air, &size);
    if (size == world_size) {
        fprintf(stderr, "air: there is no ocean; run: mpiexec -n 2 ./ocean : -n 2 ./air\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int other = world_rank - rank == 0 ? size : 0, ocean_ranks;
    MPI_Intercomm_create(air, 0, MPI_COMM_WORLD, other, 1, &to_ocean);
    MPI_Comm_remote_size(to_ocean, &ocean_ranks);

    /* The air is colder than the ocean, and it follows the ocean quickly because it holds little heat. */
    double air_k = 263.0, sea_k, before_k, after_k;
    MPI_Allreduce(&air_k, &before_k, 1, MPI_DOUBLE, MPI_SUM, air);
    for (int step = 0; step < STEPS; step++) {
        MPI_Allreduce(&air_k, &sea_k, 1, MPI_DOUBLE, MPI_SUM, to_ocean);
        air_k += STEP_S * CONDUCTANCE * (sea_k / ocean_ranks - air_k) / CAPACITY;
    }

    MPI_Allreduce(&air_k, &after_k, 1, MPI_DOUBLE, MPI_SUM, air);
    if (rank == 0) {
        printf("air on %d ranks: from %.2f to %.2f kelvin in %d days\n", size, before_k / size, after_k / size, STEPS);
    }
    MPI_Comm_free(&to_ocean);
    MPI_Comm_free(&air);
    MPI_Finalize();
    return 0;
}
