/* Variables that the program sets before it first uses OpenMP count, and later ones do not. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static int members(void)
{
	int count = 0;
#pragma omp parallel reduction(+ : count)
	count++;
	return count;
}

int main(void)
{
	setenv("OMP_NUM_THREADS", "3", 1);
	int first = members();
	setenv("OMP_NUM_THREADS", "4", 1);
	int second = members();
	printf("%d %d %s\n", first, second, first == 3 && second == 3 ? "PASSED" : "FAILED");
	return 0;
}
