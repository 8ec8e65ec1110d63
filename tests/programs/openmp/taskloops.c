/* Taskloops of many tiny tasks: each iteration is executed once, and what it creates is waited for, however the tasks
 * are divided among the members. */
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 3000

static atomic_int executed[COUNT], created[COUNT], inner;
static char place;

static void forget(void)
{
    for (int i = 0; i < COUNT; i++) executed[i] = created[i] = 0;
}

static void all(const char *what, int times)
{
    for (int i = 0; i < COUNT; i++)
        if (executed[i] != times || created[i] != times) {
            printf("%s: iteration %d executed %d times, its task %d times\n", what, i, executed[i], created[i]);
            exit(1);
        }
    forget();
}

static void leave_children(void)
{
    int copied = 7;
#pragma omp taskloop grainsize(1) firstprivate(copied)
    for (int i = 0; i < COUNT; i++) {
        if (copied != 7) abort();
        copied = i;
        executed[i]++;
        if (i % 5 == 0) {
#pragma omp task firstprivate(i)
            created[i]++;
        } else
            created[i]++;
    }
    all("taskgroup", 1);
}

static void wait_inside(void)
{
#pragma omp taskloop grainsize(1) nogroup
    for (int i = 0; i < COUNT; i++) {
        executed[i]++;
        if (i % 3 == 0) {
#pragma omp task firstprivate(i) depend(inout : place)
            created[i]++;
#pragma omp taskwait
        } else
            created[i]++;
    }
#pragma omp taskwait
    all("nogroup", 1);
}

static void orphans(void)
{
#pragma omp task
    {
#pragma omp taskloop num_tasks(COUNT) nogroup priority(1)
        for (int i = 0; i < COUNT; i++) {
            executed[i]++;
            created[i]++;
        }
    }
}

static void reduced(void)
{
    long sum = 0;
#pragma omp taskloop grainsize(2) reduction(+ : sum)
    for (int i = 0; i < COUNT; i++) {
        sum += i;
        executed[i]++;
        created[i]++;
#pragma omp taskyield
    }
    if (sum != (long)COUNT * (COUNT - 1) / 2) {
        printf("the sum is %ld\n", sum);
        exit(1);
    }
    all("reduction", 1);
}

static void copied(void)
{
    struct { char bytes[100]; } small = {{3}};
    struct { char bytes[300]; } large = {{3}};
#pragma omp taskloop grainsize(1) firstprivate(small)
    for (int i = 0; i < COUNT; i++) {
        if (small.bytes[0] != 3 || small.bytes[99] != 0) abort();
        small.bytes[0] = small.bytes[99] = 1;
        executed[i]++;
        if (i % 100 == 0)
#pragma omp taskloop grainsize(1)
            for (int k = 0; k < 50; k++) inner++;
    }
    if (inner % (50 * COUNT / 100) != 0) abort();
#pragma omp taskloop grainsize(1) firstprivate(large)
    for (int i = 0; i < COUNT; i++) {
        if (large.bytes[0] != 3) abort();
        large.bytes[0] = 1;
        created[i]++;
    }
    all("arguments", 1);
}

int main(void)
{
    for (int round = 0; round < 20; round++) {
#pragma omp parallel
        {
#pragma omp single
            leave_children();
#pragma omp single
            wait_inside();
#pragma omp single
            reduced();
#pragma omp single
            copied();
#pragma omp single nowait
            orphans();
        }
        all("end of the region", 1);
#pragma omp parallel
        {
#pragma omp taskloop grainsize(7) if (round % 2)
            for (int i = 0; i < COUNT; i++) {
                executed[i]++;
                created[i]++;
            }
        }
        all("by each member", omp_get_max_threads());
    }
    puts("PASSED");
    return 0;
}
