/* Barriers and locks, also with threads of a process and with more processes than CPUs. */
#include "check.h"
#include <pthread.h>

static int *lock_word;
static long *count;
enum { ROUNDS = 300 };

static void *add(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(mlp_lock(lock_word) == 0);
        ++*count;
        CHECK(mlp_unlock(lock_word) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int processes = argc > 1 ? atoi(argv[1]) : 4;
    int *words = mlp_alloc("words", 4096);
    int me = fork_all(processes, 1);
    int *turns = words + 8;
    lock_word = &words[0];
    count = (long *)(void *)&words[4];

    for (int round = 1; round <= ROUNDS; round++) {
        __atomic_fetch_add(turns, 1, __ATOMIC_RELAXED);
        mlp_barrier();
        CHECK(__atomic_load_n(turns, __ATOMIC_RELAXED) == round * processes);
        mlp_barrier();
    }

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, add, NULL) == 0);
    add(NULL);
    pthread_join(thread, NULL);
    mlp_barrier();
    CHECK(*count == 2L * ROUNDS * processes);

    mlp_errors(MLP_ERRORS_RETURN);
    int got = 7;
    if (me == 1) {
        CHECK(mlp_lock(lock_word) == 0);
        CHECK(mlp_lock(lock_word) == MLP_ERR_LOCK);
        CHECK(mlp_trylock(lock_word, &got) == 0 && got == 0);
    }
    mlp_barrier();
    if (me == processes && me != 1) {
        CHECK(mlp_trylock(lock_word, &got) == 0 && got == 0);
        CHECK(mlp_unlock(lock_word) == MLP_ERR_LOCK);
    }
    mlp_barrier();
    if (me == 1) CHECK(mlp_unlock(lock_word) == 0 && mlp_unlock(lock_word) == MLP_ERR_LOCK);
    mlp_barrier();
    if (me == processes) {
        CHECK(mlp_trylock(lock_word, &got) == 0 && got == 1);
        mlp_unlock(lock_word);
    }
    mlp_barrier();
    if (me == 1) printf("ok\n");
    return 0;
}
