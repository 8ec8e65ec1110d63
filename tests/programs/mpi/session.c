/* Sessions: before, beside, after and without a world. The argument chooses. */
#include "check.h"

static int raised;

static void note(MPI_Session *session, int *code, ...)
{
    (void)session;
    raised = class_of(*code);
}

static MPI_Comm comm_of(MPI_Session session, const char *pset, const char *tag)
{
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    CHECK(MPI_Group_from_session_pset(session, pset, &group) == MPI_SUCCESS);
    CHECK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
    MPI_Group_free(&group);
    return comm;
}

/* Ranks of all processes of a communicator, summed. */
static void sum(MPI_Comm comm)
{
    int rank, size, total = -1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    CHECK(MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(total == size * (size - 1) / 2);
}

static void psets(MPI_Session session)
{
    int n = 0, world = 0, self = 0, flag;
    char name[MPI_MAX_PSET_NAME_LEN], value[16];
    CHECK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n) == MPI_SUCCESS);
    CHECK(n >= 2);
    for (int i = 0; i < n; i++) {
        int need = 0, room = 3;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &need, NULL) == MPI_SUCCESS);
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &room, name) == MPI_SUCCESS);
        CHECK(strlen(name) == 2 && room == need);
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &need, name) == MPI_SUCCESS);
        CHECK((int)strlen(name) + 1 == need);
        world += !strcmp(name, "mpi://WORLD");
        self += !strcmp(name, "mpi://SELF");
        MPI_Info info;
        MPI_Group group;
        int size, room2 = sizeof value;
        CHECK(MPI_Session_get_pset_info(session, name, &info) == MPI_SUCCESS);
        CHECK(MPI_Info_get_string(info, "mpi_size", &room2, value, &flag) == MPI_SUCCESS && flag);
        MPI_Info_free(&info);
        CHECK(MPI_Group_from_session_pset(session, name, &group) == MPI_SUCCESS);
        MPI_Group_size(group, &size);
        CHECK(size == atoi(value));
        if (group != MPI_GROUP_EMPTY)
            MPI_Group_free(&group);
    }
    CHECK(world == 1 && self == 1);
    CHECK(class_of(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &flag, name)) == MPI_ERR_ARG);
    /* Whatever is wrong goes to the handler that is to be the communicator's. */
    MPI_Comm comm;
    CHECK(class_of(MPI_Comm_create_from_group(MPI_GROUP_NULL, "x", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm)) ==
          MPI_ERR_GROUP);
    MPI_Group group;
    CHECK(class_of(MPI_Group_from_session_pset(session, "mpi://NOBODY", &group)) == MPI_ERR_ARG);
}

static void handlers(void)
{
    MPI_Errhandler own, found;
    MPI_Session session;
    CHECK(MPI_Session_create_errhandler(note, &own) == MPI_SUCCESS);
    CHECK(MPI_Session_init(MPI_INFO_NULL, own, &session) == MPI_SUCCESS);
    MPI_Group group;
    CHECK(MPI_Group_from_session_pset(session, "nothing", &group) != MPI_SUCCESS);
    CHECK(raised == MPI_ERR_ARG);
    CHECK(MPI_Session_call_errhandler(session, MPI_ERR_TAG) == MPI_SUCCESS && raised == MPI_ERR_TAG);
    CHECK(MPI_Session_get_errhandler(session, &found) == MPI_SUCCESS && found == own);
    MPI_Errhandler_free(&found);
    CHECK(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    MPI_Errhandler_free(&own);
    raised = 0;
    CHECK(class_of(MPI_Group_from_session_pset(session, "nothing", &group)) == MPI_ERR_ARG && raised == 0);
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS && session == MPI_SESSION_NULL);
}

/* Levels are what was asked for. */
static void levels(void)
{
    static const char *names[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED",
                                  "MPI_THREAD_MULTIPLE"};
    for (int i = 0; i < 4; i++) {
        MPI_Info info;
        MPI_Session session;
        char value[32];
        int room = sizeof value, flag;
        MPI_Info_create(&info);
        MPI_Info_set(info, "thread_level", names[i]);
        CHECK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
        MPI_Info_free(&info);
        CHECK(MPI_Session_get_info(session, &info) == MPI_SUCCESS);
        CHECK(MPI_Info_get_string(info, "thread_level", &room, value, &flag) == MPI_SUCCESS && flag);
        CHECK(!strcmp(value, names[i]));
        MPI_Info_free(&info);
        MPI_Comm comm = comm_of(session, "mpi://WORLD", "level");
        sum(comm);
        MPI_Comm_free(&comm);
        MPI_Session_finalize(&session);
    }
    MPI_Info info;
    MPI_Session session;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MANY");
    raised = 0;
    MPI_Errhandler own;
    MPI_Session_create_errhandler(note, &own);
    CHECK(class_of(MPI_Session_init(info, own, &session)) == MPI_ERR_INFO_VALUE && raised == MPI_ERR_INFO_VALUE);
    MPI_Errhandler_free(&own);
    MPI_Info_free(&info);
}

static void buffers(MPI_Session session, MPI_Comm comm)
{
    int rank, size, got[2] = {0}, *buffer = malloc(1 << 16);
    void *back;
    int bytes;
    MPI_Request request;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    CHECK(MPI_Session_attach_buffer(session, buffer, 1 << 16) == MPI_SUCCESS);
    CHECK(class_of(MPI_Session_attach_buffer(session, buffer, 1 << 16)) == MPI_ERR_BUFFER);
    int sent[2] = {rank, 7};
    CHECK(MPI_Bsend(sent, 2, MPI_INT, (rank + 1) % size, 3, comm) == MPI_SUCCESS);
    MPI_Recv(got, 2, MPI_INT, (rank + size - 1) % size, 3, comm, MPI_STATUS_IGNORE);
    CHECK(got[0] == (rank + size - 1) % size && got[1] == 7);
    CHECK(MPI_Session_flush_buffer(session) == MPI_SUCCESS);
    CHECK(MPI_Session_iflush_buffer(session, &request) == MPI_SUCCESS);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(MPI_Session_detach_buffer(session, &back, &bytes) == MPI_SUCCESS);
    CHECK(back == buffer && bytes == 1 << 16);
    CHECK(MPI_Session_attach_buffer_c(session, MPI_BUFFER_AUTOMATIC, 0) == MPI_SUCCESS);
    MPI_Bsend(sent, 2, MPI_INT, rank, 4, comm);
    MPI_Recv(got, 2, MPI_INT, rank, 4, comm, MPI_STATUS_IGNORE);
    MPI_Count large;
    CHECK(MPI_Session_detach_buffer_c(session, &back, &large) == MPI_SUCCESS);
    free(buffer);
}

/* An inter-communicator of the even and the odd processes. */
static void groups(MPI_Session session)
{
    MPI_Group all, mine, others;
    MPI_Comm inter, merged;
    int rank, size, remote;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
    MPI_Group_rank(all, &rank);
    MPI_Group_size(all, &size);
    if (size < 2) {
        MPI_Group_free(&all);
        return;
    }
    int evens[1][3] = {{0, (size - 1) / 2 * 2, 2}}, odds[1][3] = {{1, (size - 2) / 2 * 2 + 1, 2}};
    MPI_Group_range_incl(all, 1, rank % 2 ? odds : evens, &mine);
    MPI_Group_range_incl(all, 1, rank % 2 ? evens : odds, &others);
    CHECK(MPI_Intercomm_create_from_groups(mine, 0, others, 0, "halves", MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter) ==
          MPI_SUCCESS);
    MPI_Comm_remote_size(inter, &remote);
    CHECK(remote == (rank % 2 ? (size + 1) / 2 : size / 2));
    MPI_Intercomm_merge(inter, rank % 2, &merged);
    sum(merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    /* Two communicators of the same group at the same time, distinguished by their tags. */
    MPI_Comm a = comm_of(session, "mpi://WORLD", "a"), b = comm_of(session, "mpi://WORLD", "b");
    sum(a);
    sum(b);
    MPI_Comm_free(&a);
    MPI_Comm_free(&b);
    MPI_Group_free(&mine);
    MPI_Group_free(&others);
    MPI_Group_free(&all);
}

static void session(const char *tag)
{
    MPI_Session session;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    psets(session);
    MPI_Comm comm = comm_of(session, "mpi://WORLD", tag), self = comm_of(session, "mpi://SELF", tag), copy;
    sum(comm);
    sum(self);
    MPI_Comm_dup(comm, &copy);
    sum(copy);
    buffers(session, copy);
    groups(session);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&self);
    MPI_Comm_disconnect(&comm);
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    int flag, class_, rank = 0;
    MPI_Info info;
    /* What may be called at any time. */
    CHECK(MPI_Info_create(&info) == MPI_SUCCESS && MPI_Info_set(info, "key", "value") == MPI_SUCCESS);
    CHECK(MPI_Add_error_class(&class_) == MPI_SUCCESS && MPI_Remove_error_class(class_) == MPI_SUCCESS);
    MPI_Initialized(&flag);
    CHECK(!flag);
    if (!strcmp(which, "without")) {
        for (int i = 0; i < 20; i++)
            session("again and again");
        handlers();
        levels();
    } else {
        session("before");
        handlers();
        MPI_Session beside, second;
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &beside);
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        session("within");
        sum(MPI_COMM_WORLD);
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &second);
        MPI_Comm comm = comm_of(second, "mpi://WORLD", "x");
        MPI_Finalize();
        /* The world is gone, the sessions are not. */
        sum(comm);
        MPI_Session_finalize(&beside);
        sum(comm);
        MPI_Comm_free(&comm);
        MPI_Session_finalize(&second);
        session("after");
        levels();
    }
    char value[8];
    int room = sizeof value;
    CHECK(MPI_Info_get_string(info, "key", &room, value, &flag) == MPI_SUCCESS && flag && !strcmp(value, "value"));
    CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
    MPI_Session last;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &last);
    MPI_Comm comm = comm_of(last, "mpi://WORLD", "end");
    int all;
    MPI_Comm_rank(comm, &rank);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&last);
    if (rank == 0 && all == 0)
        printf("ok\n");
    return all != 0;
}
