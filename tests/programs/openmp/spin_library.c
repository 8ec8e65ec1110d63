/* A library in which members spin. */
#include <sched.h>

void spin_in_library(volatile int *word, int until, int yields)
{
	while (*word != until)
		if (yields)
			sched_yield();
}
