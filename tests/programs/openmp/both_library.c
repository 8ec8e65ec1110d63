/* The part of both_main.c's program that gcc compiles. */
#include <omp.h>

int gcc_sum(int members, int *here)
{
	int sum = 0;
	*here = omp_get_max_threads();
#pragma omp parallel num_threads(members) reduction(+ : sum)
	sum += omp_get_thread_num();
	return sum;
}

/* In a region of the program: its level, and the members of one more. */
int gcc_inside(void)
{
	int sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
	sum += omp_get_level() == 2 && omp_get_num_threads() == 2 ? 11 : 0;
	return sum;
}
