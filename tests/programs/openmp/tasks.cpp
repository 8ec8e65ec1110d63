// Tasks: recursion, dependences, groups, reductions, loops, priorities, cancellation, events; with objects as arguments.
#include <omp.h>

#include <atomic>
#include <cstdio>
#include <vector>

static std::atomic<int> failures;
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			std::printf("line %d: %s\n", __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

static long fib(int n)
{
	long a, b;
	if (n < 2)
		return n;
#pragma omp task shared(a)
	a = fib(n - 1);
#pragma omp task shared(b)
	b = fib(n - 2);
#pragma omp taskwait
	return a + b;
}

static std::atomic<int> alive;

struct Object {
	int value;
	explicit Object(int value) : value(value) { alive++; }
	Object(const Object &other) : value(other.value) { alive++; }
	~Object() { alive--; }
};

static void dependences()
{
	int x = 0, y = 0, sum = 0;
#pragma omp parallel num_threads(4)
#pragma omp single
	{
		for (int i = 0; i < 100; i++) {
#pragma omp task depend(out : x) shared(x)
			x = i;
#pragma omp task depend(in : x) depend(inout : y) shared(x, y)
			y += x;
#pragma omp task depend(in : x) depend(mutexinoutset : sum) shared(x, sum)
			sum += x;
		}
#pragma omp taskwait depend(in : y)
		CHECK(y == 4950);
	}
	CHECK(sum == 4950 && x == 99);
}

static void groups()
{
	std::atomic<int> done(0);
	int total = 0;
#pragma omp parallel num_threads(3)
#pragma omp single
	{
#pragma omp taskgroup task_reduction(+ : total)
		{
			for (int i = 0; i < 50; i++)
#pragma omp task in_reduction(+ : total)
			{
				total += i;
#pragma omp task
				done++;
			}
		}
		CHECK(done == 50 && total == 1225);
		int loops = 0;
#pragma omp taskloop grainsize(7) reduction(+ : loops)
		for (int i = 0; i < 1000; i++)
			loops += i;
		CHECK(loops == 499500);
	}
	int shared = 0;
#pragma omp parallel num_threads(4) reduction(task, + : shared)
	{
#pragma omp task in_reduction(+ : shared)
		shared += 1;
	}
	CHECK(shared == 4);
}

static void objects()
{
	{
		Object object(5);
		std::atomic<int> sum(0);
#pragma omp parallel num_threads(3)
		for (int i = 0; i < 20; i++)
#pragma omp task firstprivate(object) shared(sum)
			sum += object.value;
		CHECK(sum == 300);
	}
	CHECK(alive == 0);
}

static void exceptions()
{
	std::atomic<int> caught(0);
#pragma omp parallel num_threads(6)
	for (int i = 0; i < 10; i++) {
		try {
			throw i;
		} catch (int thrown) {
			// Others throw and catch on the same core in the meantime.
#pragma omp taskyield
			if (thrown == i)
				caught++;
		}
	}
	CHECK(caught == 60);
}

static void events()
{
	int order = 0, first = 0, second = 0;
	omp_event_handle_t event;
#pragma omp parallel num_threads(2)
#pragma omp single
	{
#pragma omp task detach(event) depend(out : order) shared(first, order)
		first = ++order;
#pragma omp task depend(in : order) shared(second, order)
		second = ++order;
#pragma omp task
		omp_fulfill_event(event);
#pragma omp taskwait
	}
	CHECK(first == 1 && second == 2);
	/* Where nobody else could run it, a task runs before its creator goes on, which may look at what it did. */
	int run = 0;
#pragma omp task detach(event) shared(run)
	run = 1;
	omp_fulfill_event(event);
	CHECK(run == 1);
#pragma omp taskwait
}

static void cancellation()
{
	if (!omp_get_cancellation())
		return;
	std::atomic<int> run(0);
#pragma omp parallel num_threads(4)
	{
#pragma omp for
		for (int i = 0; i < 10000; i++) {
			run++;
#pragma omp cancel for
		}
#pragma omp single
#pragma omp taskgroup
		for (int i = 0; i < 1000; i++)
#pragma omp task
		{
#pragma omp cancellation point taskgroup
			run++;
#pragma omp cancel taskgroup
		}
#pragma omp cancel parallel
		CHECK(false);
	}
	CHECK(run < 5000);
}

int main()
{
	long result = 0;
	for (int members = 1; members <= 8; members *= 2) {
#pragma omp parallel num_threads(members)
#pragma omp single
		result = fib(20);
		CHECK(result == 6765);
	}
	CHECK(fib(10) == 55);
	for (int round = 0; round < 20; round++) {
		dependences();
		groups();
		objects();
		exceptions();
		events();
		cancellation();
	}
	std::printf("%s\n", failures ? "FAILED" : "PASSED");
	return failures != 0;
}
