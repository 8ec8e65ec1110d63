/* A child made by fork that calls the library ends with a line; its parent goes on. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    CHECK(mpc_environ(&tasks, &me) == 0);
    CHECK(mpc_sync(ALLGRP) == 0);
    if (me == 0) {
        pid_t child = fork();
        if (child == 0) {
            mpc_sync(ALLGRP);
            exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 16);
    }
    all_is_well();
    return 0;
}
