/* A process dies, where the argument says. The others go on (second argument "go on"), or the group is ended. */
#include "check.h"

static int victim, me, processes = 4;

static void die(void) { kill(getpid(), SIGKILL); }

/* All but the victim. */
static void survivors(int expected_state, int expected_status) {
    int status = 0;
    CHECK(mlp_barrier() == MLP_ERR_DEATH);
    char text[512], part[64];
    mlp_error(text, sizeof text);
    sprintf(part, "process %d ", victim);
    CHECK(strstr(text, part) != NULL);
    CHECK(mlp_state(victim, &status) == expected_state && status == expected_status);
    CHECK(mlp_barrier() == MLP_ERR_DEATH);
    CHECK(mlp_shrink() == processes - 1);
    int *turns = mlp_alloc("turns", sizeof *turns);
    for (int round = 1; round <= 100; round++) {
        __atomic_fetch_add(turns, 1, __ATOMIC_RELAXED);
        CHECK(mlp_barrier() == 0);
        CHECK(__atomic_load_n(turns, __ATOMIC_RELAXED) == round * (processes - 1));
        CHECK(mlp_barrier() == 0);
    }
}

int main(int argc, char **argv) {
    const char *phase = argc > 1 ? argv[1] : "";
    int go_on = argc > 2 && strcmp(argv[2], "go on") == 0;
    if (go_on) mlp_errors(MLP_ERRORS_RETURN);
    int *words = mlp_alloc("words", 4096);
    me = fork_all(processes, 1);
    victim = strncmp(phase, "first", 5) == 0 ? 1 : 3;
    int state = MLP_DEAD, status = -SIGKILL;
    if (strcmp(phase, "start") == 0) {
        if (me == victim) die();
    } else if (strcmp(phase, "computing") == 0 || strcmp(phase, "first") == 0) {
        if (me == victim) pause_ms(50), die();
        /* The others compute; the default ends them there. */
        if (!go_on)
            for (;;) {}
    } else if (strcmp(phase, "barrier") == 0) {
        /* The others sleep in the barrier long before. */
        if (me == victim) pause_ms(200), die();
    } else if (strcmp(phase, "inside barrier") == 0) {
        if (me == victim) {
            alarm(1);
            signal(SIGALRM, SIG_DFL);
            mlp_barrier();
        }
        pause_ms(1500);
        status = -SIGALRM;
    } else if (strcmp(phase, "holding") == 0) {
        if (me == victim) {
            CHECK(mlp_lock(words) == 0);
            words[1] = 1;
            pause_ms(100);
            die();
        }
        while (__atomic_load_n(&words[1], __ATOMIC_ACQUIRE) == 0) pause_ms(1);
        int taken = mlp_lock(words);
        CHECK(taken == MLP_OWNER_DIED || taken == 0);
        if (taken == MLP_OWNER_DIED) words[2]++;
        CHECK(mlp_unlock(words) == 0);
        survivors(state, status);
        CHECK(words[2] == 1);
    } else if (strcmp(phase, "waiting") == 0) {
        if (me == 1) CHECK(mlp_lock(words) == 0);
        mlp_barrier();
        if (me == victim) {
            alarm(1);
            mlp_lock(words);
        }
        if (me == 1) {
            pause_ms(1300);
            CHECK(mlp_unlock(words) == 0);
        }
        CHECK(mlp_lock(words) == 0 && mlp_unlock(words) == 0);
        status = -SIGALRM;
    } else if (strcmp(phase, "names") == 0) {
        /* It dies somewhere while it makes and frees parts, which the others do as well. */
        char name[32];
        if (me == victim) {
            /* Sent by the clock, so that it comes anywhere in the calls. */
            struct itimerspec soon = {{0, 0}, {0, 20000000 + getpid() % 1000 * 1000}};
            struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
            timer_t timer;
            CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
            CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
        }
        for (int i = 0; me == victim || i < 3000; i++) {
            sprintf(name, "%d of %d", i % 7, me);
            int *part = mlp_alloc(name, 100 + 1000 * (i % 7));
            CHECK(part && part[0] == 0);
            part[0] = 5;
            CHECK(mlp_free(name) == 0);
        }
        CHECK(mlp_find("words", NULL) == words);
    } else if (strcmp(phase, "exit code") == 0 || strcmp(phase, "first exit code") == 0) {
        if (me == victim) exit(3);
        status = 3;
    } else if (strcmp(phase, "_exit") == 0) {
        if (me == victim) _exit(0);
        state = MLP_ENDED, status = 0;
    } else if (strcmp(phase, "in order") == 0) {
        if (me == victim) return 0;
        state = MLP_ENDED, status = 0;
    } else if (strcmp(phase, "crash") == 0) {
        if (me == victim) abort();
        status = -SIGABRT;
    } else if (strcmp(phase, "guard") == 0) {
        if (me == 2) kill(getppid(), SIGKILL);
        if (me == 1) {
            CHECK(mlp_barrier() == MLP_ERR_DEATH);
            CHECK(mlp_state(2, &status) == MLP_DEAD && status == MLP_UNKNOWN);
            CHECK(mlp_shrink() == 1 && mlp_barrier() == 0);
            printf("ok\n");
            return 0;
        }
        for (;;) pause(); /* the system ends these with the guard */
    } else {
        CHECK(!"a phase that is known");
    }
    if (!go_on && state == MLP_DEAD) {
        mlp_barrier();
        CHECK(!"this line is reached");
    }
    if (!go_on) {
        mlp_barrier(); /* prints that a process has ended in order, and ends the group */
        return 0;
    }
    if (strcmp(phase, "holding") != 0) survivors(state, status);
    if (me == (victim == 1 ? 2 : 1)) printf("ok\n");
    return 0;
}
