/* The tools interface. Any number of ranks; two and more see messages. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <time.h>

typedef unsigned long long number;
static int rank, size;

#define OK(call) CHECK((call) == MPI_SUCCESS)

static void write_number(const char *name, number value)
{
    int index, count;
    MPI_T_cvar_handle handle;
    OK(MPI_T_cvar_get_index(name, &index));
    OK(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    OK(MPI_T_cvar_write(handle, &value));
    OK(MPI_T_cvar_handle_free(&handle));
    CHECK(handle == MPI_T_CVAR_HANDLE_NULL);
}

static number read_number(const char *name)
{
    int index, count;
    number value = 0;
    MPI_T_cvar_handle handle;
    OK(MPI_T_cvar_get_index(name, &index));
    OK(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    CHECK(count == 1);
    OK(MPI_T_cvar_read(handle, &value));
    OK(MPI_T_cvar_handle_free(&handle));
    return value;
}

static MPI_T_pvar_handle open_variable(MPI_T_pvar_session session, const char *name, int class_, void *object)
{
    int index, count;
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    OK(MPI_T_pvar_get_index(name, class_, &index));
    OK(MPI_T_pvar_handle_alloc(session, index, object, &handle, &count));
    return handle;
}

static number value_of(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    number value = 0;
    OK(MPI_T_pvar_read(session, handle, &value));
    return value;
}

/* Everything that the tables say, whether MPI runs or not. */
static void tables(void)
{
    int controls, variables, categories, events, sources, members[200], in_categories[4] = {0, 0, 0, 0}, root, changed;
    OK(MPI_T_cvar_get_num(&controls));
    OK(MPI_T_pvar_get_num(&variables));
    OK(MPI_T_category_get_num(&categories));
    OK(MPI_T_event_get_num(&events));
    OK(MPI_T_source_get_num(&sources));
    CHECK(controls > 10 && variables > 25 && categories > 5 && events >= 5 && sources == 1);
    for (int i = 0; i < controls; i++) {
        char name[100], about[500];
        int name_len = sizeof name, about_len = sizeof about, verbosity, bind, scope, index, count;
        MPI_Datatype datatype;
        MPI_T_enum items;
        MPI_T_cvar_handle handle;
        union {
            number n;
            int i;
        } value;
        OK(MPI_T_cvar_get_info(i, name, &name_len, &verbosity, &datatype, &items, about, &about_len, &bind, &scope));
        CHECK(name_len == (int)strlen(name) + 1 && about_len == (int)strlen(about) + 1 && about_len > 10);
        CHECK(bind == MPI_T_BIND_NO_OBJECT && scope >= MPI_T_SCOPE_CONSTANT && scope <= MPI_T_SCOPE_ALL_EQ);
        CHECK(datatype == (items == MPI_T_ENUM_NULL ? MPI_UNSIGNED_LONG_LONG : MPI_INT));
        OK(MPI_T_cvar_get_index(name, &index));
        CHECK(index == i);
        OK(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count));
        OK(MPI_T_cvar_read(handle, &value));
        if (scope == MPI_T_SCOPE_CONSTANT || scope == MPI_T_SCOPE_READONLY)
            CHECK(MPI_T_cvar_write(handle, &value) == MPI_T_ERR_CVAR_SET_NEVER);
        OK(MPI_T_cvar_handle_free(&handle));
        if (items != MPI_T_ENUM_NULL) {
            int number_of_items, item_value;
            name_len = sizeof name;
            OK(MPI_T_enum_get_info(items, &number_of_items, name, &name_len));
            for (int k = 0; k < number_of_items; k++) {
                name_len = sizeof name;
                OK(MPI_T_enum_get_item(items, k, &item_value, name, &name_len));
                CHECK(name_len > 1);
            }
            CHECK(MPI_T_enum_get_item(items, number_of_items, &item_value, name, &name_len) == MPI_T_ERR_INVALID_INDEX);
        }
    }
    for (int i = 0; i < variables; i++) {
        char name[100];
        int name_len = sizeof name, about_len = 0, class_, bind, readonly, continuous, atomic, index;
        MPI_Datatype datatype;
        OK(MPI_T_pvar_get_info(i, name, &name_len, NULL, &class_, &datatype, NULL, NULL, &about_len, &bind, &readonly,
                               &continuous, &atomic));
        CHECK(about_len > 5);
        OK(MPI_T_pvar_get_index(name, class_, &index));
        CHECK(index == i);
        CHECK(MPI_T_pvar_get_index(name, class_ == MPI_T_PVAR_CLASS_SIZE ? MPI_T_PVAR_CLASS_LEVEL : MPI_T_PVAR_CLASS_SIZE,
                                   &index) == MPI_T_ERR_INVALID_NAME);
    }
    for (int i = 0; i < categories; i++) {
        char name[100];
        int name_len = sizeof name, index, own_controls, own_variables, own_categories, own_events;
        OK(MPI_T_category_get_info(i, name, &name_len, NULL, NULL, &own_controls, &own_variables, &own_categories));
        OK(MPI_T_category_get_num_events(i, &own_events));
        OK(MPI_T_category_get_index(name, &index));
        CHECK(index == i);
        OK(MPI_T_category_get_cvars(i, 200, members));
        for (int k = 0; k < own_controls; k++) CHECK(members[k] >= 0 && members[k] < controls);
        OK(MPI_T_category_get_pvars(i, 200, members));
        OK(MPI_T_category_get_events(i, 200, members));
        OK(MPI_T_category_get_categories(i, 200, members));
        in_categories[0] += own_controls;
        in_categories[1] += own_variables;
        in_categories[2] += own_categories;
        in_categories[3] += own_events;
    }
    CHECK(in_categories[0] == controls && in_categories[1] == variables && in_categories[2] == categories - 1 &&
          in_categories[3] == events);
    OK(MPI_T_category_get_index("margay", &root));
    OK(MPI_T_category_changed(&changed));
    for (int i = 0; i < events; i++) {
        char name[100], about[300];
        int name_len = sizeof name, about_len = sizeof about, elements = 8, verbosity, bind, index;
        MPI_Datatype types[8];
        MPI_Aint displacements[8];
        OK(MPI_T_event_get_info(i, name, &name_len, &verbosity, types, displacements, &elements, NULL, NULL, about, &about_len,
                                &bind));
        CHECK(elements >= 1 && elements <= 4 && displacements[0] == 0);
        OK(MPI_T_event_get_index(name, &index));
        CHECK(index == i);
    }
    MPI_T_source_order order;
    MPI_Count ticks, most, first, second;
    char short_name[4];
    int short_len = sizeof short_name, full = 0;
    OK(MPI_T_source_get_info(0, short_name, &short_len, NULL, &full, &order, &ticks, &most, NULL));
    CHECK(!strcmp(short_name, "mar") && short_len == 4 && full > 10 && order == MPI_T_SOURCE_ORDERED && ticks == 1000000000);
    OK(MPI_T_source_get_timestamp(0, &first));
    OK(MPI_T_source_get_timestamp(0, &second));
    CHECK(first <= second && second <= most);
}

static void mistakes(void)
{
    int index, count, value = 0;
    number big = 1ull << 62;
    MPI_T_cvar_handle control, old;
    MPI_T_pvar_session session, other;
    MPI_T_pvar_handle level, counter, gone;
    MPI_T_event_registration registration;
    CHECK(MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_index("nothing", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_cvar_get_index("margay_eager_limit", NULL) == MPI_T_ERR_INVALID);
    CHECK(MPI_T_cvar_handle_alloc(1000, NULL, &control, &count) == MPI_T_ERR_INVALID_INDEX);
    OK(MPI_T_cvar_get_index("margay_eager_limit", &index));
    OK(MPI_T_cvar_handle_alloc(index, NULL, &control, &count));
    CHECK(MPI_T_cvar_write(control, &big) == MPI_T_ERR_INVALID);
    old = control;
    OK(MPI_T_cvar_handle_free(&control));
    CHECK(MPI_T_cvar_read(old, &big) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_cvar_handle_free(&control) == MPI_T_ERR_INVALID_HANDLE);
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_session_create(&other));
    level = open_variable(session, "margay_posted_queue_length", MPI_T_PVAR_CLASS_LEVEL, NULL);
    counter = open_variable(session, "margay_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL);
    CHECK(MPI_T_pvar_start(session, level) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_stop(session, level) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_write(session, level, &big) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_reset(session, level) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_readreset(session, level, &big) == MPI_T_ERR_PVAR_NO_ATOMIC);
    CHECK(MPI_T_pvar_read(other, counter, &big) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, counter, &big) == MPI_T_ERR_INVALID_SESSION);
    gone = counter;
    OK(MPI_T_pvar_handle_free(session, &counter));
    CHECK(counter == MPI_T_PVAR_HANDLE_NULL && MPI_T_pvar_start(session, gone) == MPI_T_ERR_INVALID_HANDLE);
    OK(MPI_T_pvar_session_free(&session));
    CHECK(session == MPI_T_PVAR_SESSION_NULL);
    OK(MPI_T_pvar_session_free(&other));
    CHECK(MPI_T_event_handle_alloc(99, NULL, MPI_INFO_NULL, &registration) == MPI_T_ERR_INVALID_INDEX);
    OK(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration));
    CHECK(MPI_T_event_register_callback(registration, (MPI_T_cb_safety)77, MPI_INFO_NULL, NULL, NULL) == MPI_T_ERR_INVALID);
    OK(MPI_T_event_handle_free(registration, NULL, NULL));
    CHECK(MPI_T_event_handle_free(registration, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_read((MPI_T_event_instance)(intptr_t)0x5000, 0, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_source_get_timestamp(1, &(MPI_Count){0}) == MPI_T_ERR_INVALID_INDEX);
}

static void ring(int bytes, MPI_Comm comm)
{
    char *out = calloc(1, (size_t)bytes + 1), *in = malloc((size_t)bytes + 1);
    MPI_Sendrecv(out, bytes, MPI_CHAR, (rank + 1) % size, 1, in, bytes, MPI_CHAR, (rank + size - 1) % size, 1, comm,
                 MPI_STATUS_IGNORE);
    free(out);
    free(in);
}

static void counting(void)
{
    enum { MESSAGES = 10, BYTES = 1000 };
    MPI_T_pvar_session session, second;
    MPI_Comm comm;
    MPI_Request request;
    int flag = 0, x = 0, state;
    double share;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_session_create(&second));
    MPI_T_pvar_handle sent = open_variable(session, "margay_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      bytes = open_variable(session, "margay_bytes_sent", MPI_T_PVAR_CLASS_AGGREGATE, NULL),
                      received = open_variable(session, "margay_messages_received", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      attempts = open_variable(session, "margay_match_attempts", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      whole = open_variable(session, "margay_whole_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      on_comm = open_variable(session, "margay_comm_messages_sent", MPI_T_PVAR_CLASS_COUNTER, &comm),
                      bytes_on_comm = open_variable(session, "margay_comm_bytes_sent", MPI_T_PVAR_CLASS_AGGREGATE, &comm),
                      collectives = open_variable(session, "margay_comm_collectives", MPI_T_PVAR_CLASS_COUNTER, &comm),
                      again = open_variable(second, "margay_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      posted = open_variable(second, "margay_posted_queue_length", MPI_T_PVAR_CLASS_LEVEL, NULL),
                      peak = open_variable(second, "margay_posted_queue_peak", MPI_T_PVAR_CLASS_HIGHWATERMARK, NULL),
                      unexpected = open_variable(second, "margay_unexpected_queue_length", MPI_T_PVAR_CLASS_LEVEL, NULL),
                      came = open_variable(second, "margay_unexpected_messages", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      part = open_variable(second, "margay_unexpected_share", MPI_T_PVAR_CLASS_PERCENTAGE, NULL),
                      where = open_variable(second, "margay_rank_state", MPI_T_PVAR_CLASS_STATE, NULL);
    OK(MPI_T_pvar_read(second, where, &state));
    CHECK(state == 1);
    ring(BYTES, comm);
    CHECK(value_of(session, sent) == 0); /* not started */
    MPI_Barrier(comm);
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    for (int i = 0; i < MESSAGES; i++) ring(BYTES, comm);
    CHECK(value_of(session, sent) == MESSAGES && value_of(session, bytes) == MESSAGES * BYTES);
    CHECK(value_of(session, received) == MESSAGES && value_of(session, whole) == MESSAGES);
    CHECK(value_of(session, attempts) >= MESSAGES);
    CHECK(value_of(session, on_comm) == MESSAGES && value_of(session, bytes_on_comm) == MESSAGES * BYTES);
    CHECK(value_of(session, collectives) == 0 && value_of(second, again) == 0);
    OK(MPI_T_pvar_stop(session, sent));
    ring(BYTES, comm);
    MPI_Barrier(comm);
    CHECK(value_of(session, sent) == MESSAGES && value_of(session, on_comm) == MESSAGES + 1);
    CHECK(value_of(session, collectives) == 1);
    OK(MPI_T_pvar_start(session, sent));
    ring(BYTES, MPI_COMM_WORLD);
    CHECK(value_of(session, on_comm) == MESSAGES + 1);
    OK(MPI_T_pvar_stop(session, sent));
    CHECK(value_of(session, sent) >= MESSAGES + 1);
    number taken = 0, five = 5;
    OK(MPI_T_pvar_readreset(session, bytes, &taken));
    CHECK(taken >= (MESSAGES + 2) * BYTES && value_of(session, bytes) == 0);
    OK(MPI_T_pvar_write(session, bytes, &five));
    ring(BYTES, comm);
    CHECK(value_of(session, bytes) == 5 + BYTES);
    OK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    CHECK(value_of(session, bytes) == 0 && value_of(session, sent) == 0 && value_of(session, on_comm) == 0);

    /* Queues: a receive that waits, its peak, and a message that came too early. */
    MPI_Barrier(comm);
    CHECK(value_of(second, posted) == 0 && value_of(second, unexpected) == 0);
    OK(MPI_T_pvar_start(second, peak));
    OK(MPI_T_pvar_start(second, came));
    MPI_Request many[7];
    for (int i = 0; i < 7; i++) MPI_Irecv(&x, 1, MPI_INT, rank, 77, comm, &many[i]);
    CHECK(value_of(second, posted) == 7);
    for (int i = 0; i < 7; i++) MPI_Cancel(&many[i]);
    MPI_Waitall(7, many, MPI_STATUSES_IGNORE);
    CHECK(value_of(second, posted) == 0 && value_of(second, peak) == 7);
    OK(MPI_T_pvar_reset(second, peak));
    CHECK(value_of(second, peak) == 0);
    MPI_Isend(&x, 1, MPI_INT, rank, 78, comm, &request);
    while (!flag) MPI_Iprobe(rank, 78, comm, &flag, MPI_STATUS_IGNORE);
    CHECK(value_of(second, unexpected) == 1 && value_of(second, came) == 1);
    OK(MPI_T_pvar_read(second, part, &share));
    CHECK(share > 0 && share <= 1);
    MPI_Recv(&x, 1, MPI_INT, rank, 78, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(value_of(second, unexpected) == 0);
    MPI_Barrier(comm);
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_pvar_session_free(&second));
    MPI_Comm_free(&comm);
}

/* A control variable changes what happens. */
static void effects(void)
{
    MPI_T_pvar_session session;
    OK(MPI_T_pvar_session_create(&session));
    MPI_T_pvar_handle asked = open_variable(session, "margay_streamed_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      direct = open_variable(session, "margay_direct_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      fragments = open_variable(session, "margay_fragmented_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      credits = open_variable(session, "margay_out_of_credits", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      yields = open_variable(session, "margay_yields", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      sleeps = open_variable(session, "margay_sleeps", MPI_T_PVAR_CLASS_COUNTER, NULL),
                      waits = open_variable(session, "margay_wait_time", MPI_T_PVAR_CLASS_TIMER, NULL),
                      asleep = open_variable(session, "margay_sleep_time", MPI_T_PVAR_CLASS_TIMER, NULL);
    number eager = read_number("margay_eager_limit"), attach = read_number("margay_attach_limit"),
           arena = read_number("margay_arena_limit"), least = read_number("margay_credits"),
           yield_after = read_number("margay_wait_yield_after"), sleep_after = read_number("margay_wait_sleep_after"),
           spins = read_number("margay_wait_spins");
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    write_number("margay_attach_limit", 1ull << 40);
    write_number("margay_arena_limit", 1ull << 40);
    write_number("margay_eager_limit", 100000);
    ring(90000, MPI_COMM_WORLD);
    CHECK(value_of(session, fragments) == 1 && value_of(session, asked) == 0 && value_of(session, direct) == 0);
    write_number("margay_eager_limit", 100);
    ring(90000, MPI_COMM_WORLD);
    CHECK(value_of(session, fragments) == 1 && value_of(session, asked) == 1);
    write_number("margay_attach_limit", 60000);
    ring(90000, MPI_COMM_WORLD);
    /* From a rank to itself all goes as bytes, and where the system forbids attaching, too. */
    CHECK(value_of(session, asked) + value_of(session, direct) == 2);
    write_number("margay_eager_limit", eager);
    write_number("margay_attach_limit", attach);
    write_number("margay_arena_limit", arena);
    MPI_Barrier(MPI_COMM_WORLD);
    write_number("margay_credits", 0);
    ring(5000, MPI_COMM_WORLD);
    CHECK(value_of(session, credits) == 1);
    write_number("margay_credits", least);
    MPI_Barrier(MPI_COMM_WORLD);
    if (size > 1) {
        int x = 0;
        /* Asleep without a yield, then yielding without sleep. On a busy machine a rank may come too late to wait long. */
        write_number("margay_wait_spins", 1);
        for (int yielding = 0; yielding < 2; yielding++) {
            write_number("margay_wait_yield_after", yielding ? 0 : 1ull << 60);
            write_number("margay_wait_sleep_after", yielding ? 1ull << 60 : 100000);
            for (int attempt = 0, seen = 0; attempt < 20 && !seen; attempt++) {
                seen = 1;
                OK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
                if (rank == 0) {
                    for (int from = 1; from < size; from++)
                        MPI_Recv(&x, 1, MPI_INT, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    nanosleep(&(struct timespec){0, 60000000}, NULL);
                    for (int to = 1; to < size; to++) MPI_Send(&x, 1, MPI_INT, to, 3, MPI_COMM_WORLD);
                } else {
                    MPI_Send(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
                    MPI_Recv(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    if (yielding)
                        seen = value_of(session, yields) >= 1;
                    else
                        seen = value_of(session, sleeps) >= 1 && value_of(session, asleep) > 1000000;
                    CHECK(value_of(session, asleep) <= value_of(session, waits));
                }
                MPI_Allreduce(MPI_IN_PLACE, &seen, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
                if (attempt == 19) CHECK(seen);
            }
        }
        write_number("margay_wait_spins", spins);
        write_number("margay_wait_yield_after", yield_after);
        write_number("margay_wait_sleep_after", sleep_after);
    }
    int index, count, on = 1;
    MPI_T_cvar_handle handle;
    OK(MPI_T_cvar_get_index("margay_progress_thread", &index));
    OK(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    CHECK(MPI_T_cvar_write(handle, &on) == MPI_T_ERR_CVAR_SET_NOT_NOW);
    OK(MPI_T_cvar_handle_free(&handle));
    OK(MPI_T_pvar_session_free(&session));
}

static int seen, freed_with, dropped_count;
static MPI_Count last_time;

static void on_event(MPI_T_event_instance event, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    struct {
        int source, tag, context;
        unsigned long long bytes;
    } all;
    int source_index = -1, source = -1, flag;
    MPI_Count time = 0;
    (void)registration;
    CHECK(safety == MPI_T_CB_REQUIRE_NONE && data == &seen);
    OK(MPI_T_event_copy(event, &all));
    OK(MPI_T_event_read(event, 0, &source));
    OK(MPI_T_event_get_timestamp(event, &time));
    OK(MPI_T_event_get_source(event, &source_index));
    CHECK(MPI_T_event_read(event, 9, &flag) == MPI_T_ERR_INVALID_INDEX);
    CHECK(source_index == 0 && source == all.source && time >= last_time);
    last_time = time;
    /* No restriction: the callback may communicate. */
    MPI_Iprobe(MPI_ANY_SOURCE, 1234, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    if (all.tag >= 500 && all.tag < 600) {
        CHECK(all.bytes == (unsigned long long)(all.tag - 500) && all.source == rank);
        seen++;
    }
}

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void *data)
{
    (void)registration;
    (void)safety;
    CHECK(source == 0 && count > 0 && data == &seen);
    dropped_count += (int)count;
}

static void on_freed(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    (void)registration;
    (void)safety;
    freed_with = *(int *)data;
}

static void to_myself(int messages)
{
    MPI_Request requests[100];
    char bytes[100] = {0}, in[100];
    for (int i = 0; i < messages; i++) MPI_Isend(bytes, i, MPI_CHAR, rank, 500 + i, MPI_COMM_WORLD, &requests[i]);
    for (int flag = 0; !flag;) MPI_Iprobe(rank, 500 + messages - 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    for (int i = 0; i < messages; i++) MPI_Recv(in, 100, MPI_CHAR, rank, 500 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
}

static void events(void)
{
    int index, forty_two = 42;
    MPI_T_event_registration registration;
    MPI_Info used;
    OK(MPI_T_event_get_index("margay_message_unexpected", &index));
    OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &registration));
    to_myself(3);
    OK(MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_INFO_NULL, &seen, on_event));
    OK(MPI_T_event_set_dropped_handler(registration, on_dropped));
    OK(MPI_T_event_handle_set_info(registration, MPI_INFO_NULL));
    OK(MPI_T_event_handle_get_info(registration, &used));
    if (used != MPI_INFO_NULL) MPI_Info_free(&used);
    OK(MPI_T_event_callback_set_info(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL));
    OK(MPI_T_event_callback_get_info(registration, MPI_T_CB_REQUIRE_NONE, &used));
    if (used != MPI_INFO_NULL) MPI_Info_free(&used);
    seen = 0;
    to_myself(60);
    CHECK(seen == 60 && dropped_count == 0);
    write_number("margay_event_room", 0);
    to_myself(20);
    write_number("margay_event_room", 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(seen == 60 && dropped_count >= 20);
    OK(MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_INFO_NULL, NULL, NULL));
    to_myself(5);
    CHECK(seen == 60);
    OK(MPI_T_event_handle_free(registration, &forty_two, on_freed));
    CHECK(freed_with == 42);
}

/* Threads of the program and threads of a tool at the same time. */
static volatile int enough;
static void *watch(void *argument)
{
    MPI_T_pvar_session session;
    number last = 0;
    (void)argument;
    OK(MPI_T_pvar_session_create(&session));
    MPI_T_pvar_handle sent = open_variable(session, "margay_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL);
    OK(MPI_T_pvar_start(session, sent));
    while (!enough) {
        number now = value_of(session, sent);
        CHECK(now >= last);
        last = now;
        (void)read_number("margay_wait_spins");
    }
    OK(MPI_T_pvar_session_free(&session));
    return NULL;
}

static void threads(void)
{
    pthread_t watchers[3];
    for (int t = 0; t < 3; t++) pthread_create(&watchers[t], NULL, watch, NULL);
    for (int i = 0; i < 300; i++) ring(i, MPI_COMM_WORLD);
    enough = 1;
    for (int t = 0; t < 3; t++) pthread_join(watchers[t], NULL);
}

int main(int argc, char **argv)
{
    int provided, value;
    number sent;
    CHECK(MPI_T_cvar_get_num(&value) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
    OK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_finalize());
    write_number("margay_event_room", 777);
    OK(MPI_T_cvar_get_num(&value));

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(read_number("margay_event_room") == 777);
    if (argc > 1) CHECK(read_number("margay_eager_limit") == (number)atoi(argv[1]));
    tables();
    mistakes();
    counting();
    effects();
    events();
    threads();
    MPI_T_pvar_session session;
    OK(MPI_T_pvar_session_create(&session));
    MPI_T_pvar_handle handle = open_variable(session, "margay_messages_sent", MPI_T_PVAR_CLASS_COUNTER, NULL);
    OK(MPI_T_pvar_start(session, handle));
    ring(10, MPI_COMM_WORLD);
    sent = value_of(session, handle);
    int failed = finish();

    /* What was counted can still be read. */
    if (value_of(session, handle) < sent || MPI_T_cvar_get_num(&value) != MPI_SUCCESS) failed = 1;
    MPI_T_finalize();
    if (MPI_T_cvar_get_num(&value) != MPI_T_ERR_NOT_INITIALIZED) failed = 1;
    return failed;
}
