/* Empty parallel loops of as many iterations as threads, enqueued tasks, and what forking alone costs when nobody steals, by IML. */
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

static void enqueue(void) {
    static int numbers[FORK_TASKS];
    for (int n = 0; n < FORK_TASKS; n++) {
        numbers[n] = n;
        iml_EnQ(task, &one, &numbers[n]);
    }
}

static void tasks(void) {
    enqueue();
    iml_WaitEnQ();
}

static void parts(void) {
    static int count = FORK_TASKS;
    iml_DOALL(member, &count, &schedule, &chunk, &none);
}

int main(int argc, char **argv) {
    iml_start(argc, argv, "fork");
    fork_verify("members-flat", flat, threads);
    threads_measure("flat", "us", 1e6, NULL, flat, NULL);
    fork_nested(nested, threads_measure);
    fork_verify("members-task", tasks, FORK_TASKS);
    threads_measure("task", "ns", 1e9 / FORK_TASKS, NULL, tasks, NULL);
    if (threads == 1) {
        fork_verify("members-doall", parts, FORK_TASKS);
        threads_measure("doall", "ns", 1e9 / FORK_TASKS, NULL, parts, NULL);
        threads_measure("enq", "ns", 1e9 / FORK_TASKS, iml_WaitEnQ, enqueue, NULL);
        iml_WaitEnQ();
    }
    return suite_failed;
}
