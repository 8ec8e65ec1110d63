/* Which CPUs the threads have: one line for each thread, and the report. The arguments are the numbers of threads. */
#include "check.h"
#include <omp.h>
#include <sched.h>

int main(int argc, char **argv) {
    int nthread[64] = {0}, numpro = argc - 1, nowpro = 0;
    for (int n = 0; n < numpro; n++) nthread[n] = atoi(argv[n + 1]);
    char *lines = mlp_alloc("lines", 1 << 16);
    forkit(nthread, numpro, &nowpro);
    CHECK(omp_get_max_threads() == nthread[nowpro - 1]);
    CHECK(atoi(getenv("OMP_NUM_THREADS")) == nthread[nowpro - 1]);
#pragma omp parallel
    {
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        char *line = lines + 64 * (8 * nowpro + omp_get_thread_num());
        int at = sprintf(line, "%d.%d:", nowpro, omp_get_thread_num());
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set)) at += sprintf(line + at, " %d", cpu);
    }
    mlp_barrier();
    if (nowpro == 1) {
        for (int n = 1; n <= numpro; n++)
            for (int t = 0; t < nthread[n - 1]; t++) puts(lines + 64 * (8 * n + t));
        char text[4096];
        CHECK(mlp_report_text(text, sizeof text) == (long)strlen(text));
        fputs(text, stdout);
    }
    mlp_barrier();
    return 0;
}
