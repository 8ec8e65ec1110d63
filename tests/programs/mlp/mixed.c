/* MPI ranks that fork: the processes of a rank share its arena and its CPUs, and the first one passes messages. */
#include "check.h"
#include <mpi.h>
#include <sched.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    cpu_set_t before, now;
    sched_getaffinity(0, sizeof before, &before);
    double *sums = mlp_alloc("sums", sizeof(double) * 8);
    int me = fork_all(3, 1);
    sched_getaffinity(0, sizeof now, &now);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) CHECK(!CPU_ISSET(cpu, &now) || CPU_ISSET(cpu, &before));
    CHECK(CPU_COUNT(&now) == 1);
    if (argc > 1 && strcmp(argv[1], "die") == 0 && rank == 1 && me == 2) abort();
    for (int round = 0; round < 50; round++) {
        sums[me] = 100.0 * rank + me + round;
        mlp_barrier();
        if (me == 1) {
            double own = sums[1] + sums[2] + sums[3], all = 0;
            MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            sums[0] = all;
        }
        mlp_barrier();
        double wanted = 0;
        for (int r = 0; r < size; r++) wanted += 300.0 * r + 6 + 3 * round;
        CHECK(sums[0] == wanted);
    }
    if (me != 1) return 0;
    MPI_Finalize();
    if (rank == 0) printf("ok\n");
    return 0;
}
