/* A bulk-synchronous program: each phase is some milliseconds of CPU time and a barrier. Prints the
 * seconds that its phases took, and for each rank the gaps in which it did not run: when it was
 * last there, and when again, in seconds of the machine's clock, and whether it computed then.
 *
 *     gangs PHASES MILLISECONDS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096 };
/* A gap is longer than any wait for the other ranks, and shorter than a quantum. */
static const double GAP = 0.1;

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static double gaps[MOST][3];
static int count;
static double last;

static void look(int computes) {
    double time = now(CLOCK_MONOTONIC);
    if (last > 0 && time - last > GAP && count < MOST) {
        gaps[count][0] = last;
        gaps[count][1] = time;
        gaps[count++][2] = computes;
    }
    last = time;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int phases = argc > 1 ? atoi(argv[1]) : 1000;
    double length = argc > 2 ? atof(argv[2]) / 1000 : 0.005;
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = now(CLOCK_MONOTONIC);
    last = begun;
    for (int phase = 0; phase < phases; phase++) {
        double end = now(CLOCK_THREAD_CPUTIME_ID) + length;
        while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
            look(1);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        look(0);
    }
    double ended = now(CLOCK_MONOTONIC);
    for (int each = 0; each < size; each++) {
        if (each == rank) {
            for (int at = 0; at < count; at++) {
                printf("gap %d %.9f %.9f %d\n", rank, gaps[at][0], gaps[at][1], (int)gaps[at][2]);
            }
            fflush(stdout);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        printf("seconds %.6f\n", ended - begun);
    }
    MPI_Finalize();
    return 0;
}
