/* Which processors a program sees where it is started: by MPI, MLP, OpenMP or IML, as its argument says. A line for each process or
 * thread: how many processors its library counts, and the cores on which it may run. */
#include <iml.h>
#include <mlp.h>
#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(int number)
{
    char line[4096];
    cpu_set_t set;
    int length = snprintf(line, sizeof line, "%d:", number);
    sched_getaffinity(0, sizeof set, &set);
    for (int cpu = 0; cpu < CPU_SETSIZE && length < (int)sizeof line - 16; cpu++)
        if (CPU_ISSET(cpu, &set)) length += snprintf(line + length, sizeof line - (size_t)length, " %d", cpu);
    line[length++] = '\n';
    if (write(1, line, (size_t)length) < 0) _exit(1);
}

static void piece(int64_t begin, int64_t end, void *data)
{
    (void)begin, (void)end, (void)data;
    say(iml_NumThreads());
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "mpi")) {
        int size;
        MPI_Init(&argc, &argv);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        say(size);
        MPI_Finalize();
    } else if (!strcmp(what, "omp")) {
#pragma omp parallel
        say(omp_get_num_procs() == omp_get_num_threads() ? omp_get_num_procs() : -1);
    } else if (!strcmp(what, "mlp")) {
        int threads[2] = {1, 1}, me;
        forkit(threads, 2, &me);
        say(mlp_processes());
        mlp_barrier();
    } else if (!strcmp(what, "iml")) {
        iml_For(0, 64, 1, piece, NULL, NULL);
    }
    return 0;
}
