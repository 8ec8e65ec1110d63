/* Rank 1, or all ranks, end in the way that the first word says. */
#include "check.h"

#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int zero;

static __attribute__((noinline)) int smooth(volatile int *mesh)
{
    *mesh = 1; /* null */
    return *mesh;
}

static __attribute__((noinline)) int deeper(int n)
{
    volatile char row[4096];
    row[n % 4096] = (char)n;
    return n < 0 ? 0 : deeper(n + 1) + row[n % 4096]; /* stack */
}

static void *thread(void *mesh)
{
    smooth(mesh);
    return NULL;
}

static void own(int number)
{
    static const char text[] = "the program's own handler\n";
    (void)number;
    if (write(1, text, sizeof text - 1) > 0)
        _exit(3);
    _exit(4);
}

int main(int argc, char **argv)
{
    int rank;
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "before") == 0)
        signal(SIGSEGV, own);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(how, "after") == 0)
        signal(SIGSEGV, own);
    if (rank == 1 || argc > 2) {
        if (strcmp(how, "stack") == 0)
            zero = deeper(0);
        else if (strcmp(how, "abort") == 0)
            abort(); /* abort */
        else if (strcmp(how, "divide") == 0)
            zero = 7 / zero; /* divide */
        else if (strcmp(how, "raise") == 0)
            raise(SIGBUS); /* raise */
        else if (strcmp(how, "thread") == 0) {
            pthread_t other;
            pthread_create(&other, NULL, thread, NULL);
            pthread_join(other, NULL);
        } else if (strcmp(how, "child") == 0) {
            int status;
            pid_t child = fork();
            if (child == 0)
                smooth(NULL);
            waitpid(child, &status, 0);
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        } else if (strcmp(how, "queue") == 0) {
            /* As if an instruction had raised it, which it does not again. */
            siginfo_t said = {.si_signo = SIGSEGV, .si_code = SEGV_MAPERR};
            syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGSEGV, &said); /* queue */
        } else if (strcmp(how, "threads") == 0) {
            pthread_t others[64];
            for (int i = 0; i < 64; i++)
                pthread_create(&others[i], NULL, thread, NULL);
            for (int i = 0; i < 64; i++)
                pthread_join(others[i], NULL);
        } else
            smooth(NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return finish();
}
