/* Cancelled regions, whose members leave from different constructs, again and again: they may not use up memory. Run with OMP_CANCELLATION=true. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

enum { MEMBERS = 4, WARM = 1000, ROUNDS = 8000, MOST_GROWTH_KIB = 768 };

static long sink;

/* Resident memory in KiB. */
static long resident(void) {
    long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) pages = -1;
    if (file) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void loops(int canceller) {
#pragma omp parallel num_threads(MEMBERS)
    {
#pragma omp for schedule(dynamic) nowait
        for (int i = 0; i < 8; i++) {
        }
        if (omp_get_thread_num() == canceller) {
#pragma omp cancel parallel
        }
#pragma omp for schedule(guided) nowait
        for (int i = 0; i < 8; i++) {
        }
#pragma omp cancellation point parallel
#pragma omp for schedule(runtime) nowait
        for (int i = 0; i < 8; i++) {
        }
#pragma omp barrier
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 8; i++) {
        }
    }
}

static void sections(int canceller) {
#pragma omp parallel num_threads(MEMBERS)
    {
        if (omp_get_thread_num() == canceller) {
#pragma omp cancel parallel
        }
#pragma omp sections nowait
        {
#pragma omp section
            {}
#pragma omp section
            {}
        }
#pragma omp cancellation point parallel
#pragma omp sections
        {
#pragma omp section
            {}
#pragma omp section
            {}
        }
    }
}

/* A member that has left takes no iterations under the dynamic schedule, so that nobody waits for
 * them. */
static void in_order(int canceller) {
    long last = 0;
#pragma omp parallel num_threads(MEMBERS)
    {
#pragma omp for ordered schedule(dynamic)
        for (int i = 0; i < 8; i++) {
#pragma omp ordered
            last = i;
        }
#pragma omp for ordered(1) schedule(dynamic)
        for (int i = 0; i < 8; i++) {
#pragma omp ordered depend(sink : i - 1)
#pragma omp ordered depend(source)
        }
        if (omp_get_thread_num() == canceller) {
#pragma omp cancel parallel
        }
#pragma omp for ordered schedule(dynamic) nowait
        for (int i = 0; i < 8; i++) {
#pragma omp ordered
            last = i;
        }
#pragma omp barrier
#pragma omp single nowait
        last = 7;
    }
    sink += last;
}

static void reductions(int canceller) {
    long sum = 0, of_tasks = 0;
#pragma omp parallel num_threads(MEMBERS)
    {
#pragma omp for schedule(dynamic) reduction(task, + : of_tasks)
        for (int i = 0; i < 8; i++) {
#pragma omp task in_reduction(+ : of_tasks)
            of_tasks += i;
        }
        if (omp_get_thread_num() == canceller) {
#pragma omp cancel parallel
        }
#pragma omp for schedule(dynamic) reduction(+ : sum) nowait
        for (int i = 0; i < 8; i++) sum += i;
#pragma omp taskgroup
        for (int i = 0; i < 4; i++) {
#pragma omp task
            __asm__ volatile("");
        }
#pragma omp cancellation point parallel
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 8; i++) sum += i;
    }
    sink += sum + of_tasks;
}

static void cancelled_loops(int canceller) {
#pragma omp parallel num_threads(MEMBERS)
    {
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 8; i++) {
            if (i == canceller) {
#pragma omp cancel for
            }
        }
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 8; i++) {
        }
    }
}

int main(void) {
    static const struct {
        const char *name;
        void (*run)(int canceller);
    } kinds[] = {
        {"loops", loops}, {"sections", sections}, {"in order", in_order}, {"reductions", reductions}, {"cancelled loops", cancelled_loops},
    };
    int failed = 0;
    if (!omp_get_cancellation()) {
        printf("FAILED: run with OMP_CANCELLATION=true\n");
        return 1;
    }
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int n = 0; n < WARM; n++) kinds[k].run(n % MEMBERS);
        const long before = resident();
        for (int n = 0; n < ROUNDS; n++) kinds[k].run(n % MEMBERS);
        const long after = resident(), growth = after - before;
        printf("%s: %ld KiB, then %ld\n", kinds[k].name, before, after);
        failed |= before < 0 || growth > MOST_GROWTH_KIB;
    }
    printf("%s\n", failed ? "FAILED" : "PASSED");
    return failed;
}
