/* Spawning, connecting, names. The first argument chooses; spawned processes get "child" and what they shall do. */
#include "check.h"

#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int world_rank, world_size;

/* What both sides of an inter-communicator do with each other; `low` is the side whose ranks come first. */
static void talk(MPI_Comm inter, int low)
{
    int local, remote, rank, all, n = 300000, *long_, sum = 0, one = 1;
    MPI_Comm both, copy, half;
    MPI_Comm_size(inter, &local);
    MPI_Comm_remote_size(inter, &remote);
    MPI_Comm_rank(inter, &rank);
    CHECK(MPI_Barrier(inter) == MPI_SUCCESS);
    /* Short and long messages both ways. */
    long_ = malloc(n * sizeof *long_);
    for (int size = 1; size <= n; size *= 17) {
        for (int turn = 0; turn < 2; turn++) {
            if (turn == low) {
                for (int i = 0; i < size; i++)
                    long_[i] = i ^ rank;
                for (int to = 0; to < remote; to++)
                    MPI_Send(long_, size, MPI_INT, to, size, inter);
            } else {
                for (int from = 0; from < remote; from++) {
                    memset(long_, 0, size * sizeof *long_);
                    MPI_Recv(long_, size, MPI_INT, from, size, inter, MPI_STATUS_IGNORE);
                    int bad = 0;
                    for (int i = 0; i < size; i++)
                        bad += long_[i] != (i ^ from);
                    CHECK(bad == 0);
                }
            }
        }
    }
    /* Everybody from anybody. */
    MPI_Request *requests = malloc((unsigned)(local + remote) * sizeof *requests);
    for (int to = 0; to < remote; to++)
        MPI_Isend(&rank, 1, MPI_INT, to, 7, inter, &requests[to]);
    int *seen = calloc((unsigned)remote, sizeof *seen);
    for (int i = 0; i < remote; i++) {
        int got;
        MPI_Status status;
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 7, inter, &status);
        CHECK(status.MPI_SOURCE == got);
        seen[got]++;
    }
    for (int i = 0; i < remote; i++)
        CHECK(seen[i] == 1);
    MPI_Waitall(remote, requests, MPI_STATUSES_IGNORE);
    free(seen);
    free(requests);
    /* One communicator of all, and what is made of it. */
    CHECK(MPI_Intercomm_merge(inter, !low, &both) == MPI_SUCCESS);
    MPI_Comm_size(both, &all);
    CHECK(all == local + remote);
    MPI_Comm_rank(both, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, both);
    CHECK(sum == all * (all - 1) / 2);
    for (int root = 0; root < all; root += all - 1 ? all - 1 : 1) {
        for (int i = 0; i < n; i++)
            long_[i] = rank == root ? i * 3 : 0;
        MPI_Bcast(long_, n, MPI_INT, root, both);
        int bad = 0;
        for (int i = 0; i < n; i++)
            bad += long_[i] != i * 3;
        CHECK(bad == 0);
    }
    MPI_Comm_dup(both, &copy);
    MPI_Comm_split(copy, rank % 2, -rank, &half);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
    CHECK(sum == (rank % 2 ? all / 2 : (all + 1) / 2));
    MPI_Request request;
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == all);
    /* An inter-communicator of the halves, which mix both jobs. */
    if (all >= 2) {
        MPI_Comm mixed;
        int total;
        MPI_Intercomm_create(half, 0, copy, rank % 2 ? (all - 1) / 2 * 2 : (all - 2) / 2 * 2 + 1, 5, &mixed);
        MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, mixed);
        CHECK(total == (rank % 2 ? (all + 1) / 2 : all / 2));
        MPI_Comm_free(&mixed);
    }
    /* One-sided communication, and which processes share memory. */
    MPI_Win win;
    int *cells, at = -1;
    MPI_Win_allocate(all * (int)sizeof(int), sizeof(int), MPI_INFO_NULL, both, &cells, &win);
    MPI_Win_fence(0, win);
    for (int to = 0; to < all; to++)
        MPI_Put(&rank, 1, MPI_INT, to, rank, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < all; i++)
        CHECK(cells[i] == i);
    MPI_Barrier(both);
    MPI_Win_lock_all(0, win);
    MPI_Fetch_and_op(&one, &at, MPI_INT, 0, 0, MPI_SUM, win);
    MPI_Win_flush(0, win);
    CHECK(at >= 0 && at < all);
    MPI_Win_unlock_all(win);
    MPI_Barrier(both);
    CHECK(rank != 0 || cells[0] == all);
    MPI_Win_free(&win);
    MPI_Comm_free(&half);
    CHECK(MPI_Comm_split_type(both, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &half) == MPI_SUCCESS);
    MPI_Comm_size(half, &sum);
    if (world_size > 1 && sum > 1) {
        MPI_Win_allocate_shared(8, 8, MPI_INFO_NULL, half, &cells, &win);
        MPI_Win_free(&win);
    }
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&both);
    free(long_);
}

static void spawn(char **argv, int n)
{
    MPI_Comm inter, self;
    int remote, codes[8], *app, flag;
    char *arguments[] = {"child", "talk", "with blanks", NULL};
    for (int i = 0; i < 8; i++)
        codes[i] = -1;
    CHECK(MPI_Comm_spawn(argv[0], arguments, n, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes) == MPI_SUCCESS);
    MPI_Comm_remote_size(inter, &remote);
    CHECK(remote == n);
    for (int i = 0; i < n; i++)
        CHECK(codes[i] == MPI_SUCCESS);
    talk(inter, 1);
    CHECK(MPI_Comm_disconnect(&inter) == MPI_SUCCESS && inter == MPI_COMM_NULL);
    /* Two programs, with hints. */
    MPI_Info infos[2];
    MPI_Info_create(&infos[0]);
    MPI_Info_set(infos[0], "wdir", "/");
    MPI_Info_set(infos[0], "env", "COLOR=blue\nSHAPE=round");
    MPI_Info_create(&infos[1]);
    MPI_Info_set(infos[1], "soft", "1:2");
    char *commands[] = {argv[0], argv[0]}, *first[] = {"child", "hints", NULL}, *second[] = {"child", "plain", NULL};
    char **lists[] = {first, second};
    int most[] = {1, 3};
    CHECK(MPI_Comm_spawn_multiple(2, commands, lists, most, infos, world_size - 1, MPI_COMM_WORLD, &inter, codes) ==
          MPI_SUCCESS);
    MPI_Comm_remote_size(inter, &remote);
    CHECK(remote == 3 && codes[0] == MPI_SUCCESS && codes[2] == MPI_SUCCESS && class_of(codes[3]) == MPI_ERR_SPAWN);
    talk(inter, 1);
    MPI_Comm_disconnect(&inter);
    MPI_Info_free(&infos[0]);
    MPI_Info_free(&infos[1]);
    /* By one process alone, again and again: nothing grows. */
    for (int i = 0; i < 3; i++) {
        char *quiet[] = {"child", "quiet", NULL};
        CHECK(MPI_Comm_spawn(argv[0], quiet, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &self, MPI_ERRCODES_IGNORE) ==
              MPI_SUCCESS);
        MPI_Comm_disconnect(&self);
    }
    /* What cannot be started is reported. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    codes[0] = codes[1] = 0;
    CHECK(class_of(MPI_Comm_spawn("no-such-program", MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes)) ==
          MPI_ERR_SPAWN);
    CHECK(inter == MPI_COMM_NULL && class_of(codes[0]) == MPI_ERR_SPAWN && class_of(codes[1]) == MPI_ERR_SPAWN);
    CHECK(class_of(MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes)) ==
          MPI_ERR_SPAWN);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &app, &flag);
    CHECK(flag && *app > world_size);
}

static void child(int argc, char **argv)
{
    MPI_Comm parent;
    char name[MPI_MAX_OBJECT_NAME], folder[64];
    int length, *app, flag;
    MPI_Comm_get_parent(&parent);
    CHECK(parent != MPI_COMM_NULL);
    MPI_Comm_get_name(parent, name, &length);
    CHECK(!strcmp(name, "MPI_COMM_PARENT"));
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &flag);
    CHECK(flag);
    if (!strcmp(argv[2], "talk"))
        CHECK(argc == 4 && !strcmp(argv[3], "with blanks") && *app == 0);
    if (!strcmp(argv[2], "hints")) {
        CHECK(*app == 0 && getcwd(folder, sizeof folder) && !strcmp(folder, "/"));
        CHECK(!strcmp(getenv("COLOR"), "blue") && !strcmp(getenv("SHAPE"), "round"));
    }
    if (!strcmp(argv[2], "plain"))
        CHECK(*app == 1 && !getenv("COLOR"));
    if (strcmp(argv[2], "quiet"))
        talk(parent, 0);
    MPI_Comm_disconnect(&parent);
    MPI_Comm_get_parent(&parent);
    CHECK(parent == MPI_COMM_NULL);
    if (failures)
        exit(9);
}

/* A communicator over a socket between the two processes with rank 0. */
static void join(const char *name, int serves)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    int s = socket(AF_UNIX, SOCK_STREAM, 0), end = s;
    MPI_Comm inter;
    strcpy(address.sun_path + 1, name);
    if (serves) {
        CHECK(!bind(s, (struct sockaddr *)&address, length) && !listen(s, 1));
        end = accept(s, NULL, NULL);
    } else {
        for (int i = 0; connect(s, (struct sockaddr *)&address, length) && i < 2000; i++)
            usleep(5000);
    }
    CHECK(MPI_Comm_join(end, &inter) == MPI_SUCCESS);
    talk(inter, serves);
    MPI_Comm_disconnect(&inter);
    /* The socket is as it was. */
    char byte = serves ? 's' : 'u', other = 0;
    CHECK(write(end, &byte, 1) == 1 && read(end, &other, 1) == 1 && other == (serves ? 'u' : 's'));
    if (end != s)
        close(end);
    close(s);
    CHECK(MPI_Comm_join(-1, &inter) != MPI_SUCCESS);
}

/* Two halves of a job, or two jobs, by way of a published name. */
static void connect_(const char *service, int serves, MPI_Comm comm, int times)
{
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm inter;
    int rank;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (serves && rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        CHECK(MPI_Publish_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS);
        CHECK(class_of(MPI_Publish_name(service, MPI_INFO_NULL, port)) == MPI_ERR_SERVICE);
        CHECK(class_of(MPI_Unpublish_name("nothing", MPI_INFO_NULL, port)) == MPI_ERR_SERVICE);
    } else if (rank == 0) {
        CHECK(class_of(MPI_Comm_connect("nowhere", MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter)) == MPI_ERR_PORT);
        for (int i = 0; i < 2000; i++) {
            int found = MPI_Lookup_name(service, MPI_INFO_NULL, port);
            if (found == MPI_SUCCESS)
                break;
            CHECK(class_of(found) == MPI_ERR_NAME);
            usleep(5000);
        }
    }
    for (int i = 0; i < times; i++) {
        if (serves)
            CHECK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, comm, &inter) == MPI_SUCCESS);
        else
            CHECK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, comm, &inter) == MPI_SUCCESS);
        talk(inter, serves);
        MPI_Comm_disconnect(&inter);
    }
    if (serves && rank == 0) {
        CHECK(MPI_Unpublish_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS);
        CHECK(MPI_Close_port(port) == MPI_SUCCESS);
        CHECK(class_of(MPI_Close_port(port)) == MPI_ERR_PORT);
    }
    if (rank == 0)
        join(service, serves);
}

/* The first two ranks: nobody accepts, nobody connects, then both do. */
static void deadline(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    MPI_Info second, wrong;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Info_create(&second);
    MPI_Info_set(second, "timeout", "1");
    MPI_Info_create(&wrong);
    MPI_Info_set(wrong, "timeout", "soon");
    if (world_rank == 1)
        MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 1, MPI_COMM_WORLD);
    if (world_rank == 0) {
        double begin = MPI_Wtime();
        CHECK(class_of(MPI_Comm_connect(port, wrong, 0, MPI_COMM_SELF, &inter)) == MPI_ERR_INFO_VALUE);
        CHECK(class_of(MPI_Comm_connect(port, second, 0, MPI_COMM_SELF, &inter)) == MPI_ERR_PORT);
        CHECK(MPI_Wtime() - begin >= 1);
        /* As the environment says. */
        CHECK(class_of(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter)) == MPI_ERR_PORT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* Processes that have given up do not count. */
    if (world_rank == 1)
        CHECK(class_of(MPI_Comm_accept(port, second, 0, MPI_COMM_SELF, &inter)) == MPI_ERR_PORT);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Info_set(second, "timeout", "30");
    if (world_rank == 1)
        CHECK(MPI_Comm_accept(port, second, 0, MPI_COMM_SELF, &inter) == MPI_SUCCESS);
    if (world_rank == 0)
        CHECK(MPI_Comm_connect(port, second, 0, MPI_COMM_SELF, &inter) == MPI_SUCCESS);
    if (world_rank < 2) {
        talk(inter, world_rank);
        MPI_Comm_disconnect(&inter);
    }
    if (world_rank == 1)
        MPI_Close_port(port);
    MPI_Info_free(&second);
    MPI_Info_free(&wrong);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (!strcmp(which, "spawn"))
        spawn(argv, 2);
    else if (!strcmp(which, "deadline"))
        deadline();
    else if (!strcmp(which, "child")) {
        child(argc, argv);
        MPI_Finalize();
        return 0;
    } else if (!strcmp(which, "halves")) {
        MPI_Comm half;
        MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &half);
        connect_(argv[2], world_rank % 2, half, 3);
        MPI_Comm_free(&half);
    } else if (!strcmp(which, "serve") || !strcmp(which, "use"))
        connect_(argv[2], !strcmp(which, "serve"), MPI_COMM_WORLD, 2);
    else if (!strcmp(which, "orphan")) {
        /* The children go on when this job has ended. */
        MPI_Comm inter;
        char *arguments[] = {"stay", NULL};
        MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
        MPI_Comm_disconnect(&inter);
    } else if (!strcmp(which, "stay")) {
        MPI_Comm parent;
        MPI_Comm_get_parent(&parent);
        MPI_Comm_disconnect(&parent);
        usleep(1500000);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        if (world_rank == 0)
            printf("stayed\n");
        return 0;
    } else if (!strcmp(which, "dies") || !strcmp(which, "killed")) {
        /* A child aborts, or the parents do, while all are connected. */
        MPI_Comm inter;
        char *arguments[] = {!strcmp(which, "dies") ? "abort" : "wait", NULL};
        int x;
        MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
        if (!strcmp(which, "killed") && world_rank == 0)
            raise(SIGKILL);
        MPI_Recv(&x, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "abort") || !strcmp(which, "wait")) {
        MPI_Comm parent;
        int x;
        MPI_Comm_get_parent(&parent);
        usleep(100000);
        if (!strcmp(which, "abort") && world_rank == 1)
            MPI_Abort(MPI_COMM_WORLD, 44);
        MPI_Recv(&x, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE);
    }
    return finish();
}
