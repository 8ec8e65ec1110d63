/* A port that others attack. "serve N": accepts N times, of which two are undisturbed; "connect PORT"; "spawn FILE": spawns
   three times undisturbed, prints its process id, and spawns until there is the file. An attack leaves no descriptor: the
   number grows as without one. */
#include "check.h"

#include <dirent.h>
#include <unistd.h>

static int descriptors(void)
{
    int n = 0;
    DIR *list = opendir("/proc/self/fd");
    while (readdir(list))
        n++;
    closedir(list);
    return n;
}

/* A number there and back. */
static void talk(MPI_Comm inter)
{
    int mine = 17, other = 0;
    CHECK(MPI_Sendrecv(&mine, 1, MPI_INT, 0, 3, &other, 1, MPI_INT, 0, 3, inter, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(other == 17);
    CHECK(MPI_Comm_disconnect(&inter) == MPI_SUCCESS);
}

static void serve(int times)
{
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm inter;
    int count[2] = {0, 0};
    CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS);
    printf("%s\n", port);
    fflush(stdout);
    for (int i = 0; i < times; i++) {
        CHECK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter) == MPI_SUCCESS);
        talk(inter);
        if (i < 2)
            count[i] = descriptors();
        printf("accepted\n");
        fflush(stdout);
    }
    CHECK(descriptors() == count[1] + (times - 2) * (count[1] - count[0]));
    CHECK(MPI_Close_port(port) == MPI_SUCCESS);
}

static void spawn(char *program, const char *file)
{
    int count[2] = {0, 0}, times = 0;
    char *child[] = {"child", NULL};
    do {
        MPI_Comm inter;
        CHECK(MPI_Comm_spawn(program, child, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE) ==
              MPI_SUCCESS);
        talk(inter);
        times++;
        if (times == 2 || times == 3)
            count[times - 2] = descriptors();
        if (times == 3) {
            printf("%d\n", (int)getpid());
            fflush(stdout);
        }
    } while (times < 4 || (access(file, F_OK) && !failures));
    CHECK(descriptors() == count[1] + (times - 3) * (count[1] - count[0]));
}

int main(int argc, char **argv)
{
    MPI_Comm inter;
    const char *which = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (!strcmp(which, "serve"))
        serve(atoi(argv[2]));
    else if (!strcmp(which, "spawn"))
        spawn(argv[0], argv[2]);
    else if (!strcmp(which, "connect")) {
        CHECK(MPI_Comm_connect(argv[2], MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter) == MPI_SUCCESS);
        talk(inter);
    } else if (!strcmp(which, "child")) {
        MPI_Comm_get_parent(&inter);
        talk(inter);
        MPI_Finalize();
        return failures;
    }
    return finish();
}
