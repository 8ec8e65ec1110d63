/* Parallel regions, flat and nested, with more members than cores; work shares; threadprivate at each depth. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static int failures;
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("line %d: %s\n", __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

static int own = 7;
#pragma omp threadprivate(own)

static void flat(int members)
{
	int seen[64] = { 0 }, sum = 0, singles = 0, last = -1, copied = 0, ordered[100], at = 0;
#pragma omp parallel num_threads(members) firstprivate(copied)
	{
		CHECK(omp_get_num_threads() == members);
#pragma omp atomic
		seen[omp_get_thread_num()]++;
#pragma omp barrier
		CHECK(seen[(omp_get_thread_num() + 1) % members] == 1);
#pragma omp for schedule(dynamic, 3) reduction(+ : sum) nowait
		for (int i = 0; i < 100; i++)
			sum += i;
#pragma omp for schedule(guided) reduction(+ : sum)
		for (int i = 100; i > 0; i--)
			sum += i;
#pragma omp for schedule(runtime) lastprivate(last)
		for (unsigned long long i = 5; i < 50; i += 4)
			last = (int)i;
#pragma omp for ordered schedule(dynamic, 2)
		for (int i = 0; i < 100; i++)
#pragma omp ordered
			ordered[at++] = i;
#pragma omp single
		singles++;
#pragma omp single copyprivate(copied)
		copied = 42;
		CHECK(copied == 42);
#pragma omp sections
		{
#pragma omp section
#pragma omp atomic
			singles++;
#pragma omp section
#pragma omp atomic
			singles++;
		}
#pragma omp critical
		own = 100 + omp_get_thread_num();
#pragma omp barrier
		CHECK(own == 100 + omp_get_thread_num());
	}
	for (int i = 0; i < members; i++)
		CHECK(seen[i] == 1);
	CHECK(sum == 4950 + 5050);
	CHECK(last == 49);
	CHECK(singles == 3);
	for (int i = 0; i < 100; i++)
		CHECK(ordered[i] == i);
	/* Values stay from one region to the next of the same size. */
#pragma omp parallel num_threads(members)
	CHECK(own == 100 + omp_get_thread_num());
	own = 9;
#pragma omp parallel num_threads(members) copyin(own)
	CHECK(own == 9);
}

static void nest(int depth, int path, int members)
{
	if (depth == 0)
		return;
#pragma omp parallel num_threads(members)
	{
		int here = path * members + omp_get_thread_num();
		int *where = &own;
		own = here;
		CHECK(omp_get_num_threads() == members);
		CHECK(omp_get_ancestor_thread_num(omp_get_level()) == omp_get_thread_num());
#pragma omp barrier
		CHECK(own == here && where == &own);
		if (omp_get_thread_num() != 0)
			nest(depth - 1, here, members);
#pragma omp barrier
		/* The first member of a region inside is the same thread as its parent. */
		CHECK(own == here || (omp_get_thread_num() != 0 && depth > 1));
	}
}

static void doacross(void)
{
	enum { N = 40 };
	static int grid[N][N];
#pragma omp parallel for ordered(2) num_threads(4) schedule(static, 1)
	for (int i = 1; i < N; i++)
		for (int j = 1; j < N; j++) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
			grid[i][j] = 1 + grid[i - 1][j] + grid[i][j - 1];
#pragma omp ordered depend(source)
		}
	static int right[N][N];
	for (int i = 1; i < N; i++)
		for (int j = 1; j < N; j++) {
			right[i][j] = (int)(1u + (unsigned)right[i - 1][j] + (unsigned)right[i][j - 1]);
			CHECK(grid[i][j] == right[i][j]);
		}
}

static void spinning(void)
{
	/* Members that wait for each other without calls of the runtime, more than there are cores. Clang forgets that a shared
	   variable of the stack is volatile. */
	static volatile int turn;
	turn = 0;
#pragma omp parallel num_threads(6)
	{
		int me = omp_get_thread_num();
		while (turn != 5 - me)
			;
		turn++;
	}
	CHECK(turn == 6);
}

static void locks(void)
{
	omp_lock_t lock;
	omp_nest_lock_t nested;
	int count = 0;
	omp_init_lock(&lock);
	omp_init_nest_lock(&nested);
#pragma omp parallel num_threads(8)
	for (int i = 0; i < 200; i++) {
		omp_set_lock(&lock);
		count++;
		omp_unset_lock(&lock);
		omp_set_nest_lock(&nested);
		CHECK(omp_test_nest_lock(&nested) == 2);
		count++;
		omp_unset_nest_lock(&nested);
		omp_unset_nest_lock(&nested);
	}
	CHECK(count <= 3200 && count > 1600);
	omp_destroy_lock(&lock);
	omp_destroy_nest_lock(&nested);
}

int main(void)
{
	omp_set_max_active_levels(4);
	for (int round = 0; round < 20; round++)
		for (int members = 1; members <= 9; members += 2)
			flat(members);
	for (int round = 0; round < 10; round++) {
		nest(3, 1, 2);
		nest(2, 1, 5);
	}
	for (int round = 0; round < 20; round++)
		doacross();
	spinning();
	locks();
	printf("%s\n", failures ? "FAILED" : "PASSED");
	return failures != 0;
}
