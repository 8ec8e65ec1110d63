/* Members that wait in different ways until the process is ended from outside: what debuggers and `margay threads` show of it.
 * The last member says when all of them wait. */
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static omp_lock_t held;

static void wait_at_the_barrier(int number)
{
    int mine = number * 10;
#pragma omp barrier
    printf("%d\n", mine);
}

static void wait_for_the_lock(int number)
{
    int mine = number * 10;
    omp_set_lock(&held);
    printf("%d\n", mine);
}

static void spin(int number)
{
    volatile int mine = number * 10;
    while (mine >= 0) {
    }
}

static void sleep_for_long(int number)
{
    volatile int mine = number * 10;
    sleep(1000);
    printf("%d\n", mine);
}

static void wait_at_the_end(int number)
{
    if (number == 7)
        printf("%d\n", number);
}

static void fork_inside(int number)
{
#pragma omp parallel num_threads(3) firstprivate(number)
    {
        int mine = number * 10 + omp_get_thread_num();
#pragma omp barrier
        if (omp_get_thread_num() == 0)
            wait_for_the_lock(mine);
    }
}

int main(int argc, char **argv)
{
    int nested = argc > 1 && !strcmp(argv[1], "nested");
    int ends = argc > 1 && !strcmp(argv[1], "ends");
    omp_set_max_active_levels(2);
    omp_init_lock(&held);
    omp_set_lock(&held);
    printf("ready\n");
    fflush(stdout);
#pragma omp parallel num_threads(8)
    {
        int number = omp_get_thread_num();
        if (ends) {
            wait_at_the_end(number);
#pragma omp barrier
        } else if (number == 2)
            wait_for_the_lock(number);
        else if (number == 5 && nested)
            fork_inside(number);
        else if (number == 6)
            sleep_for_long(number);
        else if (number == 7)
            spin(number);
        else
            wait_at_the_barrier(number);
    }
    return 0;
}
