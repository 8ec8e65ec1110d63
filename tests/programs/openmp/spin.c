/* One member waits for a lock, another one on the same core spins until the first has it. The
 * member that holds the lock releases it only after the spinning one has used more processor time
 * than the library watches a spinning member for while there is nothing else to do. */
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static omp_lock_t lock;
static volatile int is_held, is_over;

static double processor_s(void)
{
	struct timespec used;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec + 1e-9 * used.tv_nsec;
}

static void *hold(void *unused)
{
	(void)unused;
	omp_set_lock(&lock);
	is_held = 1;
	double begin = processor_s();
	while (processor_s() - begin < 2)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	omp_unset_lock(&lock);
	return NULL;
}

int main(void)
{
	pthread_t holder;
	omp_init_lock(&lock);
	pthread_create(&holder, NULL, hold, NULL);
	while (!is_held)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
#pragma omp parallel num_threads(2)
	{
		if (omp_get_thread_num() == 0) {
			omp_set_lock(&lock);
			omp_unset_lock(&lock);
			is_over = 1;
		} else {
			while (!is_over)
				;
		}
	}
	pthread_join(holder, NULL);
	puts("PASSED");
	return 0;
}
