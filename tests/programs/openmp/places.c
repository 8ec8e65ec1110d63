/* Places: wherever a member runs, the processors that the system lets it run on are those of the
 * place that the routines report to it, in flat and nested regions, after every wait, with more
 * members than places, with clauses, and in threads of the program. */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

/* With a variable of their own members are distinguished as threads are. */
static int visits;
#pragma omp threadprivate(visits)

#define CHECK(condition, ...)                                                                                          \
	do                                                                                                                 \
		if (!(condition)) {                                                                                            \
			fprintf(stderr, "line %d: %s: ", __LINE__, #condition);                                                    \
			fprintf(stderr, __VA_ARGS__);                                                                              \
			fprintf(stderr, "\n");                                                                                     \
			_Pragma("omp atomic") failures++;                                                                          \
		}                                                                                                              \
	while (0)

/* The member's place, after a check of what the system says. */
static int here(const char *where)
{
	int place = omp_get_place_num();
	visits++;
	cpu_set_t allowed, same;
	sched_getaffinity(0, sizeof allowed, &allowed);
	pthread_getaffinity_np(pthread_self(), sizeof same, &same);
	CHECK(CPU_EQUAL(&allowed, &same), "%s: another thread's processors", where);
	int count = place < 0 ? 0 : omp_get_place_num_procs(place);
	CHECK(place >= 0 && count > 0, "%s: no place", where);
	if (count <= 0)
		return place;
	int *processors = malloc(count * sizeof *processors);
	omp_get_place_proc_ids(place, processors);
	CHECK(CPU_COUNT(&allowed) == count, "%s: %d processors, place %d has %d", where, CPU_COUNT(&allowed), place, count);
	int is_inside = 0;
	for (int i = 0; i < count; i++) {
		CHECK(CPU_ISSET(processors[i], &allowed), "%s: not %d of place %d", where, processors[i], place);
		is_inside |= processors[i] == sched_getcpu();
	}
	CHECK(is_inside, "%s: on %d, outside of place %d", where, sched_getcpu(), place);
	char captured[100], expected[100] = "";
	omp_capture_affinity(captured, sizeof captured, "%A");
	for (int i = 0, length = 0; i < count;) {
		int last = i;
		while (last + 1 < count && processors[last + 1] == processors[last] + 1)
			last++;
		length += sprintf(expected + length, last > i ? "%s%d-%d" : "%s%d", i ? "," : "", processors[i], processors[last]);
		i = last + 1;
	}
	CHECK(strcmp(captured, expected) == 0, "%s: '%s' instead of '%s'", where, captured, expected);
	free(processors);
	int of_partition = omp_get_partition_num_places();
	int *partition = malloc((of_partition > 0 ? of_partition : 1) * sizeof *partition);
	omp_get_partition_place_nums(partition);
	int is_in_partition = 0;
	for (int i = 0; i < of_partition; i++)
		is_in_partition |= partition[i] == place;
	CHECK(is_in_partition, "%s: place %d is not in its partition", where, place);
	free(partition);
	return place;
}

static void region(int members)
{
	int places = omp_get_num_places(), mine = omp_get_place_num();
	int *of = calloc(members, sizeof *of);
#pragma omp parallel num_threads(members) proc_bind(close)
	{
		int place = of[omp_get_thread_num()] = here("close");
		for (int round = 0; round < 3; round++) {
#pragma omp barrier
			CHECK(here("after a barrier") == place, "moved");
#pragma omp critical
			here("critical");
#pragma omp task
			here("task");
#pragma omp taskwait
			CHECK(here("after taskwait") == place, "moved");
		}
#pragma omp for ordered schedule(static, 1)
		for (int i = 0; i < 3 * members; i++)
#pragma omp ordered
			CHECK(here("ordered") == place, "moved");
	}
	for (int id = 0; id < members; id++) {
		int expected = members <= places ? (mine + id) % places : -1;
		CHECK(expected < 0 || of[id] == expected, "member %d is in place %d", id, of[id]);
	}
	CHECK(here("after the region") == mine, "moved");
#pragma omp parallel num_threads(members) proc_bind(master)
	CHECK(here("primary") == mine, "not in the place of the first member");
#pragma omp parallel num_threads(members) proc_bind(spread)
	{
		int place = here("spread");
		int parts = omp_get_partition_num_places();
		CHECK(parts >= 1 && parts <= places && (members < places || parts == 1), "%d places", parts);
#pragma omp parallel num_threads(3) proc_bind(close)
		{
			here("inside of spread");
#pragma omp barrier
			here("inside, after a barrier");
		}
		CHECK(here("after an inner region") == place, "moved");
	}
	CHECK(here("in the end") == mine, "moved");
	free(of);
}

static void *thread(void *unused)
{
	(void)unused;
	for (int members = 1; members <= 4; members++)
		region(members);
	return NULL;
}

int main(void)
{
	omp_set_max_active_levels(3);
	CHECK(omp_get_proc_bind() != omp_proc_bind_false, "not bound");
	CHECK(omp_get_num_places() > 0, "no places");
	printf("%d places\n", omp_get_num_places());
	for (int round = 0; round < 20; round++)
		for (int members = 1; members <= 6; members++)
			region(members);
	pthread_t other;
	pthread_create(&other, NULL, thread, NULL);
	thread(NULL);
	pthread_join(other, NULL);
	puts(failures ? "FAILED" : "PASSED");
	return failures != 0;
}
