/* Processes of several jobs on several hosts: spawned ones, groups that connect at a port whose name
 * is published at the launcher's host.
 *
 * hosts_dynamic spawn [HOST]        spawns children, on HOST if it is named
 * hosts_dynamic child               one of them
 * hosts_dynamic accept NAME CALLS FILE
 *                                   accepts CALLS groups at a published port, whose name it writes
 *                                   to FILE, too
 * hosts_dynamic connect NAME        connects to it, by the name or by the port itself
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG (3 << 20)

static void need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

/* Messages of both kinds, collective operations between and over both groups, and the end. */
static void talk(MPI_Comm both, int high)
{
    int me, here, there, sum = 0;
    MPI_Comm all;
    MPI_Comm_rank(both, &me);
    MPI_Comm_size(both, &here);
    MPI_Comm_remote_size(both, &there);
    for (int length = 4; here == there && length <= LONG; length = length * 91 + 1) {
        char *ours = malloc(length), *theirs = malloc(length);
        memset(ours, high + 1, length);
        for (int other = 0; other < there; other++) {
            memset(theirs, 9, length);
            MPI_Sendrecv(ours, length, MPI_CHAR, (me + other) % there, 5, theirs, length, MPI_CHAR,
                         MPI_ANY_SOURCE, 5, both, MPI_STATUS_IGNORE);
            need(theirs[0] == 2 - high && theirs[length - 1] == 2 - high, "a message");
            MPI_Barrier(both);
        }
        free(ours);
        free(theirs);
    }
    int one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, both);
    need(sum == there, "the sum over the other group");
    MPI_Intercomm_merge(both, high, &all);
    MPI_Comm_size(all, &sum);
    need(sum == here + there, "the size of both groups");
    MPI_Comm_rank(all, &me);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, all);
    need(sum == (here + there) * (here + there - 1) / 2, "the sum over all");
    MPI_Comm_disconnect(&all);
    MPI_Comm_disconnect(&both);
}

static void spawn(int argc, char **argv)
{
    MPI_Comm children;
    MPI_Info info;
    int codes[4], size, me;
    char name[MPI_MAX_PROCESSOR_NAME];
    char *words[] = {"child", NULL}, *commands[] = {argv[0], argv[0]};
    char **lists[] = {words, words};
    int numbers[] = {1, 2};
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Info_create(&info);
    if (argc > 2)
        MPI_Info_set(info, "host", argv[2]);
    MPI_Info infos[] = {info, info};
    MPI_Comm_spawn(argv[0], words, 4, info, 1, MPI_COMM_WORLD, &children, codes);
    MPI_Comm_remote_size(children, &size);
    need(size == 4 && codes[3] == MPI_SUCCESS, "four children");
    for (int child = 0; child < size && me == 0; child++) {
        MPI_Recv(name, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, child, 1, children, MPI_STATUS_IGNORE);
        printf("child %d on %s\n", child, name);
    }
    talk(children, 0);
    /* Two ranks on different hosts at the same time. */
    if (me % 3 == 0) {
        MPI_Comm_spawn_multiple(2, commands, lists, numbers, infos, 0, MPI_COMM_SELF, &children,
                                MPI_ERRCODES_IGNORE);
        MPI_Comm_remote_size(children, &size);
        need(size == 3, "three children");
        for (int child = 0; child < size; child++)
            MPI_Recv(name, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, child, 1, children, MPI_STATUS_IGNORE);
        talk(children, 0);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_spawn("/nowhere/at/all", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
                              &children, MPI_ERRCODES_IGNORE);
    need(code != MPI_SUCCESS, "a program that is not there cannot be spawned");
    MPI_Info_free(&info);
}

static void child(void)
{
    MPI_Comm parents;
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length;
    MPI_Comm_get_parent(&parents);
    need(parents != MPI_COMM_NULL, "a parent");
    MPI_Get_processor_name(name, &length);
    MPI_Send(name, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, 0, 1, parents);
    talk(parents, 1);
}

static void accept(const char *service, int calls, const char *file)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm others;
    int me;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (me == 1) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name(service, MPI_INFO_NULL, port);
        FILE *out = fopen(file, "w");
        need(out && fputs(port, out) >= 0 && fclose(out) == 0, "a file for the port");
        printf("published\n");
        fflush(stdout);
    }
    for (int call = 0; call < calls; call++) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 1, MPI_COMM_WORLD, &others);
        talk(others, 0);
    }
    if (me == 1) {
        MPI_Unpublish_name(service, MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
}

static void connect(const char *service)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm others;
    int me;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (strncmp(service, "margay:", 7) == 0)
        strcpy(port, service);
    else if (me == 0)
        MPI_Lookup_name(service, MPI_INFO_NULL, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others);
    talk(others, 1);
}

int main(int argc, char **argv)
{
    int me;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    need(argc > 1 && (strcmp(argv[1], "accept") != 0 || argc > 4), "words that say what to do");
    if (strcmp(argv[1], "spawn") == 0)
        spawn(argc, argv);
    else if (strcmp(argv[1], "child") == 0)
        child();
    else if (strcmp(argv[1], "accept") == 0)
        accept(argv[2], atoi(argv[3]), argv[4]);
    else
        connect(argv[2]);
    MPI_Finalize();
    if (me == 0 && strcmp(argv[1], "child") != 0)
        printf("%s is done\n", argv[1]);
    return 0;
}
