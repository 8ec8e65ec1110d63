/* OMP_DISPLAY_AFFINITY: the members of a region show themselves, and do so again only when there is
 * something else to show. */
#include <omp.h>
#include <stdio.h>

static volatile int entered;

static void region(int members)
{
#pragma omp parallel num_threads(members)
	{
#pragma omp atomic
		entered++;
	}
}

int main(void)
{
	omp_set_max_active_levels(2);
	omp_set_affinity_format("level %L member %n of %N");
	region(8);
	region(8);
	region(3);
	region(8);
#pragma omp parallel num_threads(2)
	{
		region(2);
		region(2);
	}
	region(1);
	/* Another format is nothing else to show. */
	omp_set_affinity_format("%N members, this is %n");
	region(1);
	region(2);
	puts("PASSED");
	return 0;
}
