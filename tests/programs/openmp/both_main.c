/* Compiled by clang, with a library that gcc compiles: both call the same runtime. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
#include <stdlib.h>

int gcc_sum(int members, int *here);
int gcc_inside(void);

static int threads(void)
{
	char line[256];
	int count = 0;
	FILE *file = fopen("/proc/self/status", "r");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "Threads: %d", &count) == 1)
			break;
	if (file)
		fclose(file);
	return count;
}

int main(void)
{
	int failures = 0, before, sum = 0, here = 0;
#pragma omp parallel num_threads(4) reduction(+ : sum)
	sum += omp_get_thread_num();
	before = threads();
	/* The library's regions take the same threads, and know what the program has set. */
	omp_set_num_threads(3);
	failures += gcc_sum(4, &here) != 6 || here != 3;
	failures += threads() > before;
	failures += sum != 6;
	/* Regions of one inside those of the other. */
	omp_set_max_active_levels(2);
	int inner = 0;
#pragma omp parallel num_threads(3) reduction(+ : inner)
	inner += gcc_inside();
	failures += inner != 3 * (2 * 10 + 2);
	printf("%s\n", failures ? "FAILED" : "PASSED");
	return failures != 0;
}
