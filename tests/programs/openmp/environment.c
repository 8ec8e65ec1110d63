/* Prints what the runtime makes of its environment. */
#include <omp.h>
#include <stdio.h>

int main(void)
{
	omp_sched_t kind;
	int chunk;
	omp_get_schedule(&kind, &chunk);
	printf("threads %d, schedule %d,%d, levels %d, limit %d, places %d, bind %d\n", omp_get_max_threads(),
	       (int)(kind & ~omp_sched_monotonic), chunk, omp_get_max_active_levels(), omp_get_thread_limit(),
	       omp_get_num_places(), (int)omp_get_proc_bind());
	char line[200];
#pragma omp parallel
#pragma omp single
	{
		omp_capture_affinity(line, sizeof line, "%{thread_num}/%0.3N level %L");
		line[1] = '/';
		printf("x%s\n", line + 1);
	}
	return 0;
}
