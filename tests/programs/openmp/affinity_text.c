/* What is shown of members without a format of the program's own, and with one. */
#include <omp.h>
#include <stdio.h>

static volatile int entered;

int main(void)
{
	char text[100];
	puts("first");
	omp_display_affinity(NULL);
	size_t length = omp_get_affinity_format(text, sizeof text);
	printf("%zu %s\n", length, text);
#pragma omp parallel num_threads(2)
	{
#pragma omp atomic
		entered++;
	}
	omp_set_affinity_format("member %n in {%A}");
	omp_display_affinity(NULL);
	omp_display_affinity("%N member");
	length = omp_capture_affinity(text, sizeof text, "<%0.3n>");
	printf("%zu %s\n", length, text);
	puts("PASSED");
	return 0;
}
