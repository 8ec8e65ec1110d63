/* Ranks with teams of OpenMP. With `hangs` the members of rank 0 wait in different ways for ever, one of them for a message;
 * with `stays` one member computes for ever; with `passes` they exchange messages; else all of it comes to an end, with times that a profile shows. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int rank, size;

static void work(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    double end = at.tv_sec + at.tv_nsec * 1e-9 + seconds;
    do {
        clock_gettime(CLOCK_MONOTONIC, &at);
    } while (at.tv_sec + at.tv_nsec * 1e-9 < end);
}

static void meet(void)
{
#pragma omp barrier /* LINE barrier */
}

static void take(void)
{
#pragma omp critical /* LINE critical */
    work(0.02);
}

static void hangs(void)
{
    omp_lock_t lock;
    omp_init_lock(&lock);
    omp_set_lock(&lock);
#pragma omp parallel num_threads(4) /* LINE team */
    {
        int number = 0;
        if (omp_get_thread_num() == 1) {
            printf("ready\n");
            fflush(stdout);
            MPI_Recv(&number, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE receive */
        } else if (omp_get_thread_num() == 2) {
            omp_set_lock(&lock); /* LINE lock */
        }
        meet();
    }
}

static void ends(void)
{
#pragma omp parallel num_threads(2) /* LINE region */
    {
        work(omp_get_thread_num() == 0 ? 0.01 : 0.15);
        meet();
        take();
    }
}

/* One member stays in a critical construct, another one waits for it, and two wait at a barrier. */
static void stays(void)
{
    int has_entered = 0;
#pragma omp parallel num_threads(4) shared(has_entered) /* LINE stays */
    {
        int seen = 0;
        if (omp_get_thread_num() == 1) {
#pragma omp critical(only)
            {
#pragma omp atomic write
                has_entered = 1;
                printf("ready\n");
                fflush(stdout);
                for (;;) {
                    work(0.01);
                }
            }
        }
        while (omp_get_thread_num() == 2 && !seen) {
#pragma omp atomic read
            seen = has_entered;
        }
        if (omp_get_thread_num() == 2) {
#pragma omp critical(only) /* LINE enters */
            work(0.0);
        }
        meet();
    }
}

/* A member waits for a message of another one, which may be one that nobody has begun. */
static void passes(void)
{
    for (int round = 0; round < 10; round++) {
#pragma omp parallel num_threads(4)
        {
            int number = 0;
            if (omp_get_thread_num() == 0) {
                MPI_Recv(&number, 1, MPI_INT, rank, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else if (omp_get_thread_num() == 3) {
                MPI_Send(&number, 1, MPI_INT, rank, round, MPI_COMM_WORLD);
            }
        }
    }
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && strcmp(argv[1], "hangs") == 0) {
        if (rank == 0) {
            hangs();
        }
        MPI_Barrier(MPI_COMM_WORLD); /* LINE all */
    } else if (argc > 1 && strcmp(argv[1], "stays") == 0) {
        stays();
    } else if (argc > 1 && strcmp(argv[1], "passes") == 0) {
        passes();
    } else {
        ends();
    }
    MPI_Finalize();
    return 0;
}
