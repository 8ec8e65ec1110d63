// Members that wait for each other by what C++ has for threads. Arguments: the case, and the number of members.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <omp.h>
#include <string>
#include <thread>

static int members;
static int failures;

static void check(bool holds, const char *what)
{
	if (!holds) {
		__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
		std::fprintf(stderr, "not so: %s\n", what);
	}
}

static double now_s()
{
	using namespace std::chrono;
	return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static int compute(double seconds)
{
	double until = now_s() + seconds;
	int rounds = 0;
	while (now_s() < until)
		rounds++;
	return rounds;
}

struct Expensive {
	int made;
	explicit Expensive(int by) : made(compute(12e-3) > 0 ? by : -1) {}
};

template <int N> static int lazily()
{
	static Expensive value(N);
	return value.made;
}

static void static_initialisers()
{
#pragma omp parallel num_threads(members)
	{
		check(lazily<1>() == 1, "the first is made");
		check(lazily<2>() == 2, "the second is made");
		check(lazily<3>() == 3, "the third is made");
	}
}

static void condition_variable()
{
	std::mutex mutex;
	std::condition_variable changed;
	int turn = 0;
#pragma omp parallel num_threads(members)
	for (int round = 0; round < 5; round++) {
		int mine = round * members + (members - 1 - omp_get_thread_num());
		std::unique_lock<std::mutex> lock(mutex);
		changed.wait(lock, [&] { return turn == mine; });
		turn++;
		if (round == 2)
			compute(2e-3);
		changed.notify_all();
	}
	check(turn == 5 * members, "all have had their turns");
}

static void mutex_and_exceptions()
{
	std::mutex mutex;
	int caught = 0;
#pragma omp parallel num_threads(members)
	for (int round = 0; round < 10; round++) {
		try {
			std::lock_guard<std::mutex> lock(mutex);
			compute(round == 3 ? 11e-3 : 1e-4);
			throw std::string("as it should");
		} catch (const std::string &) {
#pragma omp atomic
			caught++;
		}
	}
	check(caught == 10 * members, "each exception is caught");
}

static void call_once()
{
	std::once_flag once;
	int calls = 0;
#pragma omp parallel num_threads(members)
	std::call_once(once, [&] {
		compute(12e-3);
		calls++;
	});
	check(calls == 1, "called once");
}

static void sleep_for()
{
	double least = 1;
#pragma omp parallel num_threads(members) reduction(min : least)
	{
		double begin = now_s();
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
		least = std::min(least, now_s() - begin);
	}
	check(least >= 0.02, "each sleeps its time");
}

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		void (*run)();
	} cases[] = {
		{"static_initialisers", static_initialisers},
		{"condition_variable", condition_variable},
		{"mutex_and_exceptions", mutex_and_exceptions},
		{"call_once", call_once},
		{"sleep_for", sleep_for},
	};
	members = argc > 2 ? std::atoi(argv[2]) : 4;
	for (const auto &one : cases) {
		if (argc > 1 && std::strcmp(argv[1], one.name) != 0)
			continue;
		double begin = now_s();
		one.run();
		std::printf("%s %d %.3f s\n", one.name, members, now_s() - begin);
		if (failures == 0)
			std::puts("PASSED");
		return failures != 0;
	}
	return 2;
}
