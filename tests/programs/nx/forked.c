/* A child made by fork that calls the library ends with a line; its parent goes on. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    gsync();
    if (mynode() == 0) {
        pid_t child = fork();
        if (child == 0) {
            gsync();
            exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 16);
    }
    all_is_well();
    return 0;
}
