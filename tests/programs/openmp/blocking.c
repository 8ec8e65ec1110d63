/* Members that wait for each other outside of OpenMP: in the kernel, or by spinning. Each case ends
 * in any implementation where members are threads. Arguments: the case, and the number of members. */
#define _GNU_SOURCE
#include <errno.h>
#include <omp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* From a shared library, spin_library.c. */
void spin_in_library(volatile int *word, int until, int yields);

static int members;
static int failures;

#define CHECK(condition)                                                           \
	do {                                                                       \
		if (!(condition)) {                                                \
			__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);        \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition);    \
		}                                                                  \
	} while (0)

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void compute(double seconds)
{
	double until = now_s() + seconds;
	volatile double x = 1;
	while (now_s() < until)
		for (int i = 0; i < 200; i++)
			x = x * 1.0000001;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;

/* Long and short work with the mutex held, and some without. */
static void take_turns(int turns)
{
	for (int turn = 0; turn < turns; turn++) {
		pthread_mutex_lock(&mutex);
		long before = counter;
		compute(turn % 4 == 0 ? 4e-3 : 5e-5);
		counter = before + 1;
		pthread_mutex_unlock(&mutex);
		compute(5e-5);
	}
}

static void mutex_flat(void)
{
#pragma omp parallel num_threads(members)
	take_turns(8);
	CHECK(counter == 8L * members);
}

static void mutex_nested(void)
{
	omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2)
#pragma omp parallel num_threads(members)
	take_turns(4);
	CHECK(counter == 8L * members);
}

static void mutex_recursive(void)
{
	pthread_mutexattr_t kind;
	pthread_mutex_t recursive, checking;
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &kind);
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&checking, &kind);
	volatile int inside = 0;
#pragma omp parallel num_threads(members)
	for (int turn = 0; turn < 5; turn++) {
		pthread_mutex_lock(&recursive);
		CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) == 1);
		pthread_mutex_lock(&recursive);
		compute(turn == 0 ? 1.2e-2 : 1e-4);
		pthread_mutex_unlock(&recursive);
		__atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
		pthread_mutex_unlock(&recursive);
		CHECK(pthread_mutex_lock(&checking) == 0);
		CHECK(pthread_mutex_lock(&checking) == EDEADLK);
		compute(1e-4);
		CHECK(pthread_mutex_unlock(&checking) == 0);
		CHECK(pthread_mutex_unlock(&checking) == EPERM);
	}
}

static void mutex_and_critical(void)
{
	long others = 0;
#pragma omp parallel num_threads(members)
	for (int turn = 0; turn < 4; turn++) {
		take_turns(2);
#pragma omp critical
		{
			others++;
			take_turns(1);
		}
	}
	CHECK(counter == 12L * members && others == 4L * members);
}

static void barrier(void)
{
	pthread_barrier_t barrier;
	pthread_barrier_init(&barrier, NULL, members);
	int serial = 0;
#pragma omp parallel num_threads(members)
	for (int turn = 0; turn < 10; turn++) {
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			__atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
		if (turn % 5 == 0) {
#pragma omp barrier
		}
	}
	CHECK(serial == 10);
}

static void condition(void)
{
	pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
	int turn = 0;
#pragma omp parallel num_threads(members)
	for (int round = 0; round < 5; round++) {
		int mine = round * members + omp_get_thread_num();
		pthread_mutex_lock(&mutex);
		while (turn != mine)
			pthread_cond_wait(&changed, &mutex);
		turn++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);
	}
	CHECK(turn == 5 * members);
}

static void semaphore(void)
{
	sem_t turns[256];
	for (int i = 0; i < members; i++)
		sem_init(&turns[i], 0, i == 0);
#pragma omp parallel num_threads(members)
	for (int round = 0; round < 5; round++) {
		int me = omp_get_thread_num();
		while (sem_wait(&turns[me]) != 0)
			CHECK(errno == EINTR);
		sem_post(&turns[(me + 1) % members]);
	}
}

static void condition_in_time(void)
{
	pthread_cond_t never = PTHREAD_COND_INITIALIZER;
#pragma omp parallel num_threads(members)
	{
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 30000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_mutex_lock(&mutex);
		int result;
		while ((result = pthread_cond_timedwait(&never, &mutex, &until)) == 0)
			;
		pthread_mutex_unlock(&mutex);
		CHECK(result == ETIMEDOUT);
	}
}

static volatile int turn_word;

static void wait_for_word(int until, int in_library, int yields)
{
	if (in_library) {
		spin_in_library(&turn_word, until, yields);
	} else {
		while (turn_word != until)
			if (yields)
				sched_yield();
	}
}

/* Each of the last eight waits for the one behind it, and all others for the first of those: a turn
 * may cost the time slices of all members. */
static void spin(int in_library, int yields)
{
	int last = members < 8 ? members : 8;
#pragma omp parallel num_threads(members)
	{
		int mine = members - 1 - omp_get_thread_num();
		wait_for_word(mine < last ? mine : last, in_library, yields);
		if (mine < last)
			turn_word = mine + 1;
	}
	CHECK(turn_word == last);
}

static void spinning(void) { spin(0, 0); }
static void spinning_with_yield(void) { spin(0, 1); }
static void spinning_in_library(void) { spin(1, 0); }

/* The members take turns, many times: as OpenBLAS's threads do within one product. */
static void turns_in_library(void)
{
	int rounds = 80000 / members;
	turn_word = 0;
#pragma omp parallel num_threads(members)
	for (int round = 0; round < rounds; round++) {
		int mine = round * members + omp_get_thread_num();
		spin_in_library(&turn_word, mine, 1);
		turn_word = mine + 1;
	}
	CHECK(turn_word == rounds * members);
}

static void spinning_in_library_with_yield(void) { spin(1, 1); }

static void sleeping(void)
{
	double least = 1;
	int begun = 0;
#pragma omp parallel num_threads(members) reduction(min : least)
	{
		__atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
		for (int kind = 0; kind < 4; kind++) {
			double begin = now_s();
			struct timespec time = {0, 20000000}, left = {0, 0};
			int result;
			if (kind == 0) {
				result = usleep(20000);
			} else if (kind == 1) {
				result = nanosleep(&time, NULL);
			} else if (kind == 2) {
				result = nanosleep(&time, &left);
			} else {
				clock_gettime(CLOCK_MONOTONIC, &time);
				time.tv_nsec += 20000000;
				if (time.tv_nsec >= 1000000000) {
					time.tv_nsec -= 1000000000;
					time.tv_sec++;
				}
				result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
			}
			CHECK(result == 0);
			double took = now_s() - begin;
			if (took < least)
				least = took;
		}
	}
	CHECK(least >= 0.02);
	CHECK(begun == members);
	/* sleep() returns the seconds that are left. */
	double begin = now_s();
#pragma omp parallel num_threads(members)
	{
		if (omp_get_thread_num() == members - 1)
			CHECK(sleep(1) == 0);
		else
			compute(1e-3);
	}
	CHECK(now_s() - begin >= 1);
}

/* A chain of pipes; `polls` waits by poll first: 1 for ever, 2 with a limit. */
static void pass_on(int polls)
{
	int pipes[256][2];
	for (int i = 0; i < members; i++)
		CHECK(pipe(pipes[i]) == 0);
#pragma omp parallel num_threads(members)
	{
		int me = omp_get_thread_num();
		long value = 0;
		for (long round = 0; round < 5; round++) {
			if (me == 0 && round == 0) {
				value = 0;
			} else {
				struct pollfd ready = {pipes[me][0], POLLIN, 0};
				if (polls)
					CHECK(poll(&ready, 1, polls == 1 ? -1 : 60000) == 1);
				CHECK(read(pipes[me][0], &value, sizeof value) == sizeof value);
			}
			value++;
			CHECK(write(pipes[(me + 1) % members][1], &value, sizeof value) == sizeof value);
		}
	}
	long value;
	CHECK(read(pipes[0][0], &value, sizeof value) == sizeof value);
	CHECK(value == 5L * members);
	for (int i = 0; i < members; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}

static void pipes(void) { pass_on(0); }
static void pipes_with_poll(void) { pass_on(1); }
static void pipes_with_poll_in_time(void) { pass_on(2); }

static void poll_in_time(void)
{
	int silent[2];
	CHECK(pipe(silent) == 0);
#pragma omp parallel num_threads(members)
	{
		struct pollfd never = {silent[0], POLLIN, 0};
		double begin = now_s();
		CHECK(poll(&never, 1, 30) == 0);
		CHECK(now_s() - begin >= 0.03);
	}
}

static void select_in_time(void)
{
	int silent[2];
	CHECK(pipe(silent) == 0);
#pragma omp parallel num_threads(members)
	{
		for (int turn = 0; turn < 2; turn++) {
			fd_set watched;
			FD_ZERO(&watched);
			FD_SET(silent[0], &watched);
			double begin = now_s();
			struct timeval limit = {0, 20000};
			struct timespec same = {0, 20000000};
			if (turn == 0)
				CHECK(select(silent[0] + 1, &watched, 0, 0, &limit) == 0);
			else
				CHECK(pselect(silent[0] + 1, &watched, 0, 0, &same, 0) == 0);
			CHECK(now_s() - begin >= 0.02);
		}
	}
}

/* More than a pipe holds, in one call. */
static void long_write(void)
{
	enum { SIZE = 1 << 20 };
	int ends[2];
	CHECK(pipe(ends) == 0);
	char *from = malloc(SIZE), *to = calloc(SIZE, 1);
	for (int i = 0; i < SIZE; i++)
		from[i] = (char)(i * 7 + i / 251);
#pragma omp parallel num_threads(members)
	{
		if (omp_get_thread_num() == 0) {
			CHECK(write(ends[1], from, SIZE) == SIZE);
		} else if (omp_get_thread_num() == members - 1) {
			for (long got = 0; got < SIZE;) {
				long count = read(ends[0], to + got, SIZE - got);
				CHECK(count > 0);
				if (count <= 0)
					break;
				got += count;
			}
		} else {
			compute(1e-3);
		}
	}
	CHECK(memcmp(from, to, SIZE) == 0);
}

static void children(void)
{
#pragma omp parallel num_threads(members)
	{
		int status = 0;
		pid_t child = fork();
		if (child == 0) {
			usleep(10000);
			_exit(7);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
}

static void error_numbers(void)
{
#pragma omp parallel num_threads(members)
	for (int turn = 0; turn < 20; turn++) {
		int mine = 1000 + omp_get_thread_num();
		errno = mine;
#pragma omp barrier
		CHECK(errno == mine);
#pragma omp critical
		{
			CHECK(errno == mine);
			errno = mine + 1;
		}
		CHECK(errno == mine + 1);
#pragma omp single
		close(-1);
#pragma omp for schedule(dynamic)
		for (int i = 0; i < 64; i++)
			;
		CHECK(errno == mine + 1 || errno == EBADF);
		if (turn % 10 == 0)
			compute(6e-3);
	}
	errno = 77;
#pragma omp parallel num_threads(members)
	{
		if (omp_get_thread_num() == 0)
			errno = 78;
		else
			errno = 79;
	}
	CHECK(errno == 78);
}

static pthread_key_t key;

static void identities(void)
{
	pthread_t *threads = calloc(members, sizeof *threads);
	int **places = calloc(members, sizeof *places);
	pthread_key_create(&key, NULL);
	for (int turn = 0; turn < 3; turn++) {
#pragma omp parallel num_threads(members)
		{
			int me = omp_get_thread_num();
			pthread_setspecific(key, &places[me]);
			threads[me] = pthread_self();
			places[me] = &errno;
#pragma omp barrier
			CHECK(pthread_getspecific(key) == &places[me]);
			CHECK(pthread_equal(threads[me], pthread_self()));
			for (int other = 0; other < members; other++)
				if (other != me) {
					CHECK(!pthread_equal(threads[other], pthread_self()));
					CHECK(places[other] != places[me]);
				}
		}
		pthread_t before = threads[members - 1];
#pragma omp parallel num_threads(members)
		{
			if (omp_get_thread_num() == members - 1)
				CHECK(pthread_equal(before, pthread_self()));
		}
	}
	/* In nested regions, too. */
	omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2)
	{
		pthread_t inner[2];
#pragma omp parallel num_threads(2) shared(inner)
		{
			inner[omp_get_thread_num()] = pthread_self();
			pthread_setspecific(key, &inner[omp_get_thread_num()]);
#pragma omp barrier
			CHECK(!pthread_equal(inner[0], inner[1]));
			CHECK(pthread_getspecific(key) == &inner[omp_get_thread_num()]);
		}
	}
	free(threads);
	free(places);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"mutex_flat", mutex_flat},
	{"mutex_nested", mutex_nested},
	{"mutex_recursive", mutex_recursive},
	{"mutex_and_critical", mutex_and_critical},
	{"barrier", barrier},
	{"condition", condition},
	{"condition_in_time", condition_in_time},
	{"semaphore", semaphore},
	{"spinning", spinning},
	{"spinning_with_yield", spinning_with_yield},
	{"spinning_in_library", spinning_in_library},
	{"spinning_in_library_with_yield", spinning_in_library_with_yield},
	{"turns_in_library", turns_in_library},
	{"sleeping", sleeping},
	{"pipes", pipes},
	{"pipes_with_poll", pipes_with_poll},
	{"pipes_with_poll_in_time", pipes_with_poll_in_time},
	{"poll_in_time", poll_in_time},
	{"select_in_time", select_in_time},
	{"long_write", long_write},
	{"children", children},
	{"error_numbers", error_numbers},
	{"identities", identities},
};

int main(int argc, char **argv)
{
	members = argc > 2 ? atoi(argv[2]) : 4;
	for (unsigned at = 0; at < sizeof cases / sizeof *cases; at++) {
		if (argc > 1 && strcmp(argv[1], cases[at].name) != 0)
			continue;
		double begin = now_s();
		cases[at].run();
		printf("%s %d %.3f s\n", cases[at].name, members, now_s() - begin);
		if (failures == 0)
			puts("PASSED");
		return failures != 0;
	}
	return 2;
}
