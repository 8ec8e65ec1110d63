/* What the programs share: a check that tells which line failed, in whatever process. */
#include <mlp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            char text[512] = "";                                                                                    \
            mlp_error(text, sizeof text);                                                                           \
            fprintf(stderr, "%s:%d: process %d: %s; last error: %s\n", __FILE__, __LINE__, mlp_process(), #condition, text); \
            _exit(99);                                                                                              \
        }                                                                                                           \
    } while (0)

static inline void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {}
}

static inline int fork_all(int processes, int threads) {
    int nthread[512], nowpro = 0;
    for (int n = 0; n < processes && n < 512; n++) nthread[n] = threads;
    CHECK(forkit(nthread, processes, &nowpro) == 0);
    CHECK(nowpro == mlp_process() && processes == mlp_processes());
    return nowpro;
}
