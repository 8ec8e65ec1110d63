/* Ways in which a process ends, named by the argument. All but node 0 have just sent it a long message. The threads of
   the way are inside calls at the end. */
#include "check.h"
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 200000, ROUNDS = 100 };
static long me, nodes, word;
static char *last;
static const char *way;
static atomic_int began;

static int is(const char *name) { return !strcmp(way, name); }

static void ends(long type, long count, long node, long ptype) {
    (void)type, (void)count, (void)node, (void)ptype;
    exit(0);
}

/* Keeps the thread that calls handlers inside the library: posts itself again and sends itself the next message. */
static void again(long type, long count, long node, long ptype) {
    (void)count, (void)node, (void)ptype;
    began++;
    hrecv(type, &word, sizeof word, again);
    csend(type, &me, sizeof me, me, 0);
}

static void *leaves(void *unused) {
    (void)unused;
    usleep(20000);
    exit(0);
}

static void *waits(void *unused) {
    (void)unused;
    began = 1;
    crecv(99, &word, sizeof word); /* which nobody sends */
    return NULL;
}

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "return";
    if (is("in MPI") || is("after MPI")) MPI_Init(NULL, NULL);
    me = mynode();
    nodes = numnodes();
    last = calloc(1, LONG);
    gsync();
    if (me == 0) {
        for (long i = 1; i < nodes; i++) crecv(5, last, LONG);
    } else {
        csend(5, last, LONG, 0, 0);
    }
    if (is("_exit")) _exit(0);
    if (is("quick_exit")) quick_exit(0);
    if (is("handler")) {
        hrecv(7, &word, sizeof word, ends);
        csend(7, &me, sizeof me, me, 0);
        for (;;) pause();
    }
    if (is("handlers")) {
        hrecv(7, &word, sizeof word, again);
        csend(7, &me, sizeof me, me, 0);
        while (began < ROUNDS) usleep(100);
    }
    if (is("thread")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, leaves, NULL) == 0);
        for (;;) iprobe(99);
    }
    if (is("waiting")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
        while (!began) usleep(1000);
        usleep(20000);
    }
    if (is("in MPI")) {
        if (me == nodes - 1) exit(0);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (is("after MPI")) {
        MPI_Finalize();
        _exit(0);
    }
    if (is("child")) {
        /* A copy of the process that ends does not end the rank, nor touches what it sends. */
        pid_t child = fork();
        if (child == 0) exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        usleep(100000);
        exit(me == nodes - 1 ? 3 : 0);
    }
    return 0;
}
