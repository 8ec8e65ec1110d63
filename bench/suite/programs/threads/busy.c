/*
 * Presses: computes on the processor and nothing else, until the time is over or the process that started it is gone.
 * Usage: busy SECONDS
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const int seconds = argc == 2 ? atoi(argv[1]) : 0;
    if (seconds <= 0) {
        fprintf(stderr, "busy: usage: busy SECONDS\n");
        return 2;
    }
    const pid_t parent = getppid();
    alarm((unsigned)seconds);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 0;
    for (volatile unsigned long n = 0;;) n = n + 1;
}
