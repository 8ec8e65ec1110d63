/* Heat in a rod, with the calls of MPL, the library of the SP2. Each task holds a piece of the rod and shows in lights
 * what it does.
 *
 *     mpicc examples/sp2.c -lmpl -o sp2
 *     poe ./sp2 -procs 4 -labelio yes  as on the SP2; mpiexec -n 4 ./sp2 does the same
 *     margay markers                   in another terminal, while ./sp2 runs: the lights of all tasks
 *
 * An argument is the number of time steps. 1000000 of them take long enough to watch the lights.
 *
 * MPL needs no call to begin or to end: a program joins at its first call. */
#include <mpl.h>
#include <stdio.h>
#include <stdlib.h>

/* Inner points of a piece. A point more at each end holds the neighbour's outermost point. */
enum { POINTS = 20 };

/* Types tell messages apart, as tags do in MPI. */
enum { TO_THE_RIGHT = 1, TO_THE_LEFT = 2 };

/* Lights of the task's row, and colours: 0 is off. */
enum { COMPUTES = 0, WAITS = 1 };
enum { OFF = 0, RED = 1, GREEN = 2 };

/* One of the functions of the library that mpc_combine can apply. */
void d_vadd(void *, void *, void *, size_t *);

int main(int argc, char **argv)
{
    long steps = argc > 1 ? atol(argv[1]) : 4000;
    int tasks, me;
    mpc_environ(&tasks, &me);

    /* The values that stand for no task and for all tasks. */
    int special[4];
    mpc_task_query(special, 4, 3);
    int nobody = special[2], everybody = special[3];

    /* Where the rod ends there is no neighbour. Sends to nobody and receives from nobody do nothing, so the points
     * beyond the ends keep the temperatures set here: the rod is held at 100 degrees on the left and at 0 on the right. */
    int left = me > 0 ? me - 1 : nobody, right = me < tasks - 1 ? me + 1 : nobody;
    double old[POINTS + 2] = {0}, new[POINTS + 2] = {0};
    if (me == 0) {
        old[0] = new[0] = 100.0;
    }

    for (long step = 0; step < steps; step++) {
        mpc_marker(WAITS, RED, "exchanges");
        /* mpc_bsendrecv has one type for both directions, and writes where the message came from. */
        size_t bytes;
        int from = left;
        mpc_bsendrecv(&old[POINTS], sizeof(double), right, TO_THE_RIGHT, &old[0], sizeof(double), &from, &bytes);
        from = right;
        mpc_bsendrecv(&old[1], sizeof(double), left, TO_THE_LEFT, &old[POINTS + 1], sizeof(double), &from, &bytes);
        mpc_marker(WAITS, OFF, NULL);

        mpc_marker(COMPUTES, GREEN, "computes");
        for (int i = 1; i <= POINTS; i++) {
            new[i] = old[i] + 0.25 * (old[i - 1] - 2.0 * old[i] + old[i + 1]);
        }
        for (int i = 1; i <= POINTS; i++) {
            old[i] = new[i];
        }
        mpc_marker(COMPUTES, OFF, NULL);
    }

    double heat = 0.0, total;
    for (int i = 1; i <= POINTS; i++) {
        heat += old[i];
    }
    mpc_combine(&heat, &total, sizeof heat, d_vadd, everybody);
    printf("task %d of %d holds %.3f of the rod's heat\n", me, tasks, heat / total);
    mpc_marker(COMPUTES, OFF, "done");
    return 0;
}
