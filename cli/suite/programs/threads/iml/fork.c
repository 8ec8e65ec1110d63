/* Empty parallel loops of as many iterations as threads, and enqueued tasks, by IML. */
#include "../fork.h"
#include "../by_iml.h"

static int schedule = IML_SELF, chunk = 1, none = 0, one = 1;

static void member(int *start, int *iterations) {
    for (int n = *start; n < *start + *iterations; n++) fork_member(n);
}

static void inner(int *start, int *iterations, int *row) {
    for (int n = *start; n < *start + *iterations; n++) fork_member((long)*row * threads + n);
}

static void outer(int *start, int *iterations) {
    for (int row = *start; row < *start + *iterations; row++) iml_DOALL(inner, &threads, &schedule, &chunk, &one, &row);
}

static void flat(void) { iml_DOALL(member, &threads, &schedule, &chunk, &none); }

static void nested(void) { iml_DOALL(outer, &threads, &schedule, &chunk, &none); }

static void task(int *number) { fork_member(*number); }

static void tasks(void) {
    static int numbers[FORK_TASKS];
    for (int n = 0; n < FORK_TASKS; n++) {
        numbers[n] = n;
        iml_EnQ(task, &one, &numbers[n]);
    }
    iml_WaitEnQ();
}

int main(int argc, char **argv) {
    iml_start(argc, argv, "fork");
    fork_verify("members-flat", flat, threads);
    threads_measure("flat", "us", 1e6, NULL, flat, NULL);
    fork_nested(nested, threads_measure);
    fork_verify("members-task", tasks, FORK_TASKS);
    threads_measure("task", "ns", 1e9 / FORK_TASKS, NULL, tasks, NULL);
    return suite_failed;
}
