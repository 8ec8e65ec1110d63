/* Loops by IML's schedules; `self` takes one iteration at a time, as OpenMP's dynamic. */
#include "../loops.h"
#include "../by_iml.h"

static int count = LOOPS_COUNT, chunk = 1, none = 0, schedule;

static void iterations_from(int *start, int *iterations) {
    for (int i = *start; i < *start + *iterations; i++) loops_iteration(i);
}

static void body(void) { iml_DOALL(iterations_from, &count, &schedule, &chunk, &none); }

int main(int argc, char **argv) {
    static const struct { const char *name; int schedule; } figures[] = {
        {"static", IML_STATIC}, {"dynamic", IML_SELF}, {"guided", IML_GUIDED}, {"simple", IML_SIMPLE}, {"factoring", IML_FACTORING},
    };
    iml_start(argc, argv, "loops");
    loops_expect();
    for (size_t n = 0; n < sizeof figures / sizeof *figures; n++) {
        schedule = figures[n].schedule;
        threads_measure(figures[n].name, "us", 1e6, loops_prepare, body, loops_wrong);
    }
    return suite_failed;
}
