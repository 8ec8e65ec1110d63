/* CPUs that change hands between two processes with two threads each, and the OpenMP threads that follow. */
#include "check.h"
#include <omp.h>
#include <sched.h>

/* How many threads a region has; each is bound to one CPU. */
static int team(void) {
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    {
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        CHECK(CPU_COUNT(&set) == 1);
        threads = 1;
    }
    return threads;
}

int main(void) {
    int me = fork_all(2, 2);
    CHECK(team() == 2 && mlp_idle() == 0);
    mlp_barrier();
    if (me == 1) CHECK(mlp_borrow(5) == 0 && mlp_reclaim() == 0 && mlp_return() == 0);
    mlp_barrier();

    /* Process 2 lends one, and process 1 grows by it. */
    if (me == 2) CHECK(mlp_lend(1) == 1 && mlp_threads() == 1 && team() == 1);
    mlp_barrier();
    if (me == 1) {
        CHECK(mlp_idle() == 1);
        CHECK(mlp_borrow(5) == 1 && mlp_idle() == 0);
        CHECK(mlp_threads() == 3 && team() == 3);
        char text[4096];
        mlp_report_text(text, sizeof text);
        CHECK(strstr(text, "borrowed by process 1") != NULL);
    }
    mlp_barrier();

    /* It is wanted back, which process 1 learns at its next mlp_threads. */
    if (me == 2) CHECK(mlp_reclaim() == 1);
    mlp_barrier();
    if (me == 1) CHECK(mlp_threads() == 2 && team() == 2);
    mlp_barrier();
    if (me == 2) CHECK(mlp_reclaim() == 0 && mlp_threads() == 2 && team() == 2);
    mlp_barrier();

    /* Lent and taken back before anybody borrows it; all lent still leaves a thread. */
    if (me == 2) {
        CHECK(mlp_lend(1) == 1 && mlp_reclaim() == 0 && mlp_threads() == 2);
        CHECK(mlp_lend(7) == 2 && mlp_lend(7) == 0 && mlp_threads() == 1);
    }
    mlp_barrier();
    if (me == 1) CHECK(mlp_borrow(1) == 1 && mlp_return() == 1 && mlp_idle() == 2 && mlp_borrow(2) == 2);
    mlp_barrier();

    /* In a parallel region threads cannot change. */
    mlp_errors(MLP_ERRORS_RETURN);
    if (me == 1) {
        CHECK(mlp_threads() == 4 && team() == 4);
#pragma omp parallel num_threads(2)
#pragma omp single
        CHECK(mlp_threads() == MLP_ERR_STATE);
        CHECK(mlp_lend(-1) == MLP_ERR_ARGUMENT && mlp_borrow(-1) == MLP_ERR_ARGUMENT);
    }
    mlp_barrier();

    /* A process that dies gives back what it had borrowed. */
    if (me == 1) kill(getpid(), SIGKILL);
    CHECK(mlp_barrier() == MLP_ERR_DEATH);
    CHECK(mlp_reclaim() == 0 && mlp_threads() == 2);
    CHECK(mlp_idle() == 2 && mlp_borrow(2) == 2 && mlp_threads() == 4 && team() == 4);
    printf("ok\n");
    return 0;
}
