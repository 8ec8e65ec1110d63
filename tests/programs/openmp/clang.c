/* Constructs for which LLVM's compilers make calls that gcc's do not: teams, task reductions, doacross loops, events, detached
   tasks, taskloops, many variables in a region, locks, schedules. */
#include <omp.h>
#include <stdio.h>

static int failures;
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("line %d: %s\n", __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

static void leagues(void)
{
	int teams = 0, sum = 0, last = -1, in_league = 0;
#pragma omp teams reduction(+ : in_league)
	in_league += omp_get_num_teams();
	CHECK(in_league == 1);
#pragma omp teams num_teams(3) reduction(+ : teams)
	teams += 1 + omp_get_team_num();
	CHECK(teams == 6);
#pragma omp teams distribute parallel for num_teams(2) thread_limit(3) reduction(+ : sum) lastprivate(last)
	for (int i = 0; i < 100; i++) {
		sum += i;
		last = i;
	}
	CHECK(sum == 4950 && last == 99);
	sum = 0;
#pragma omp teams distribute parallel for num_teams(3) dist_schedule(static, 7) schedule(dynamic, 3) reduction(+ : sum)
	for (int i = 0; i < 100; i++)
		sum += i;
	CHECK(sum == 4950);
	sum = 0;
#pragma omp teams distribute num_teams(4) dist_schedule(static, 3) reduction(+ : sum)
	for (unsigned i = 100; i > 0; i -= 2)
		sum += (int)i;
	CHECK(sum == 2550);
}

static void task_reductions(void)
{
	int sum = 0;
	double product = 1;
#pragma omp parallel for reduction(task, + : sum) num_threads(4)
	for (int i = 0; i < 10; i++) {
#pragma omp task in_reduction(+ : sum)
		sum += i;
	}
	CHECK(sum == 45);
#pragma omp parallel num_threads(5) reduction(task, + : sum)
	{
#pragma omp single nowait
		for (int i = 0; i < 100; i++) {
#pragma omp task in_reduction(+ : sum)
			sum += 1;
		}
	}
	CHECK(sum == 145);
#pragma omp parallel num_threads(4)
#pragma omp single
	{
#pragma omp taskloop reduction(+ : sum) grainsize(3)
		for (int i = 0; i < 100; i++)
			sum += i;
#pragma omp taskgroup task_reduction(* : product)
		for (int i = 0; i < 8; i++) {
#pragma omp task in_reduction(* : product)
			product *= 2;
		}
	}
	CHECK(sum == 145 + 4950 && product == 256);
}

static void loops(void)
{
	enum { N = 50 };
	static int grid[N][N], right[N][N];
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++)
			grid[i][j] = right[i][j] = i == 0 || j == 0;
#pragma omp parallel for ordered(2) num_threads(3) schedule(dynamic)
	for (int i = 1; i < N; i++)
		for (int j = 1; j < N; j++) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
			grid[i][j] = (grid[i - 1][j] + grid[i][j - 1]) % 1000;
#pragma omp ordered depend(source)
		}
	for (int i = 1; i < N; i++)
		for (int j = 1; j < N; j++) {
			right[i][j] = (right[i - 1][j] + right[i][j - 1]) % 1000;
			CHECK(grid[i][j] == right[i][j]);
		}
	/* Each way of cutting, for each type of number, has each iteration once. */
	long sums[5] = { 0 };
#pragma omp parallel num_threads(4)
	{
#pragma omp for schedule(static, 3) reduction(+ : sums[:5])
		for (int i = -50; i < 50; i++)
			sums[0] += i;
#pragma omp for simd schedule(simd : static, 4) reduction(+ : sums[:5])
		for (unsigned i = 3; i < 100; i += 7)
			sums[1] += i;
#pragma omp for schedule(guided, 2) reduction(+ : sums[:5])
		for (long i = 100; i > -100; i -= 3)
			sums[2] += i;
#pragma omp for schedule(runtime) reduction(+ : sums[:5])
		for (unsigned long i = 1; i <= 64; i++)
			sums[3] += (long)i;
#pragma omp for collapse(2) schedule(dynamic, 5) reduction(+ : sums[:5])
		for (int i = 0; i < 10; i++)
			for (int j = 0; j < 10; j++)
				sums[4] += i * j;
	}
	CHECK(sums[0] == -50 && sums[1] == 679 && sums[2] == 67 && sums[3] == 2080 && sums[4] == 2025);
}

static void tasks(void)
{
	omp_event_handle_t event;
	int done = 0, order = 0, all = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
	{
#pragma omp task detach(event) shared(done)
		done = 1;
		omp_fulfill_event(event);
#pragma omp taskwait
		CHECK(done == 1);
#pragma omp task depend(out : order) shared(order)
		order = 1;
#pragma omp task depend(inout : order) shared(order) if (0)
		order = order * 10 + 2;
		CHECK(order == 12);
#pragma omp task depend(out : omp_all_memory) shared(order)
		order++;
#pragma omp taskwait depend(in : order)
		CHECK(order == 13);
#pragma omp taskloop num_tasks(7) priority(2) shared(all)
		for (int i = 0; i < 70; i++) {
#pragma omp atomic
			all += i;
		}
	}
	CHECK(all == 2415);
}

/* More variables than registers and than the usual microtask has. */
/* The compiler cuts untied tasks into parts, each of which creates the next one. */
static int untied(int n)
{
	int first = 0, second = 0;
	if (n < 2)
		return n;
#pragma omp task untied shared(first) firstprivate(n) if (n > 5)
	first = untied(n - 1);
#pragma omp task untied shared(second) firstprivate(n)
	{
		second = untied(n - 2);
#pragma omp taskyield
	}
#pragma omp taskwait
	return first + second;
}

static void untied_tasks(void)
{
	int inside = 0;
#pragma omp parallel
#pragma omp single
	inside = untied(12);
	CHECK(inside == 144);
	CHECK(untied(10) == 55);
}

static void many_variables(void)
{
	int a = 0, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7, i = 8, j = 9, k = 10, l = 11, m = 12, n = 13, o = 14, p = 15,
	    q = 16, r = 17, all = 0;
#pragma omp parallel num_threads(3)
#pragma omp critical
	{
		all += a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r;
		a = b = c = d = e = f = g = h = i = 0;
		j = k = l = m = n = o = p = q = r = 1;
	}
	CHECK(all == 153 + 9 + 9);
}

static void locks(void)
{
	struct {
		omp_nest_lock_t nested;
		unsigned long behind;
	} place = { .behind = 42 };
	int count = 0;
	/* LLVM's lock is smaller than gcc's. */
	CHECK(sizeof place.nested == 8);
	omp_init_nest_lock_with_hint(&place.nested, omp_sync_hint_contended);
#pragma omp parallel num_threads(6)
	for (int i = 0; i < 100; i++) {
		omp_set_nest_lock(&place.nested);
		CHECK(omp_test_nest_lock(&place.nested) == 2);
		count++;
		omp_unset_nest_lock(&place.nested);
		omp_unset_nest_lock(&place.nested);
	}
	omp_destroy_nest_lock(&place.nested);
	CHECK(count == 600 && place.behind == 42);
}

int main(void)
{
	omp_sched_t kind;
	int chunk;
	omp_get_schedule(&kind, &chunk);
	CHECK(kind == omp_sched_static && chunk == 0);
	for (int round = 0; round < 20; round++) {
		leagues();
		task_reductions();
		loops();
		tasks();
		untied_tasks();
		many_variables();
		locks();
	}
	kmp_set_blocktime(0);
	CHECK(kmp_get_blocktime() == 0);
	void *memory = kmp_malloc(100);
	CHECK(memory != NULL);
	kmp_free(memory);
	printf("%s\n", failures ? "FAILED" : "PASSED");
	return failures != 0;
}
