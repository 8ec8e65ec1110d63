/* A tool (OMPT) that checks what is reported to it: that events come in pairs on each thread, that tasks and regions are the
 * same from their begin to their end, that addresses are plausible. Says at the end what it has seen, or what was wrong.
 * Its declarations are those of OpenMP 5.2, chapter 19, as far as it uses them; gcc brings no header for them. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef union { uint64_t value; void *ptr; } data_t;
typedef struct { data_t exit, enter; int exit_flags, enter_flags; } frame_t;
typedef struct { data_t variable; int kind; } dependence_t;
typedef void (*any_t)(void);
typedef any_t (*lookup_t)(const char *);
typedef struct {
    int (*initialize)(lookup_t, int, data_t *);
    void (*finalize)(data_t *);
    data_t data;
} start_result_t;

enum { BEGIN = 1, END = 2 };
enum { DEPTH = 256 };

static int (*set_callback)(int, any_t);
static int (*get_callback)(int, any_t *);
static data_t *(*get_thread_data)(void);
static int (*get_state)(uint64_t *);
static int (*get_parallel_info)(int, data_t **, int *);
static int (*get_task_info)(int, int *, data_t **, frame_t **, data_t **, int *);
static uint64_t (*get_unique_id)(void);
static int (*enumerate_states)(int, int *, const char **);

/* What a thread does now, the innermost last: each with a kind and the number of what it belongs to. */
static _Thread_local struct {
    int begun, depth;
    struct { char kind; int detail; const void *of; } open[DEPTH];
    data_t *task;
    uint64_t waits_for;
} here;

typedef struct { atomic_int members, begun, ended; int over; } region_t;
typedef struct { int flags; atomic_int started, ended; } task_t;

static atomic_int wrong;
static atomic_int seen[64];
static char *text_begin, *text_end;

static void complain(const char *format, ...) {
    va_list list;
    if (atomic_fetch_add(&wrong, 1) > 20)
        return;
    va_start(list, format);
    fprintf(stderr, "tool: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
}

#define CHECK(condition, ...) do { if (!(condition)) complain(__VA_ARGS__); } while (0)

static void saw(int callback) {
    atomic_fetch_add(&seen[callback], 1);
    CHECK(here.begun == 1, "callback %d on a thread that has not begun", callback);
    CHECK(!here.begun || get_thread_data()->ptr == (void *)&here, "callback %d with the data of another thread", callback);
}

static void push(char kind, int detail, const void *of) {
    if (here.depth == DEPTH) {
        complain("too much is open at once");
        exit(1);
    }
    here.open[here.depth].kind = kind;
    here.open[here.depth].detail = detail;
    here.open[here.depth++].of = of;
}

static void pop(char kind, int detail, const void *of) {
    if (here.depth == 0) {
        complain("the end of %c %d without a begin", kind, detail);
        return;
    }
    here.depth--;
    CHECK(here.open[here.depth].kind == kind && here.open[here.depth].detail == detail && here.open[here.depth].of == of,
          "the end of %c %d, where %c %d began", kind, detail, here.open[here.depth].kind, here.open[here.depth].detail);
}

/* The return address of a call in the program; `may_be_none` where there is no such call. */
static void check_code(const char *what, const void *code, int may_be_none) {
    if (!code && may_be_none)
        return;
    CHECK((char *)code >= text_begin && (char *)code < text_end, "%s: the address %p is not the program's", what, code);
}

static void check_frame(const char *what, const void *frame) {
    char local;
    intptr_t far = (char *)frame - &local;
    CHECK(far > 0 && far < (64 << 20), "%s: the frame %p is not on this stack (%p)", what, frame, (void *)&local);
}

static void on_thread_begin(int kind, data_t *data) {
    CHECK(!here.begun && !data->ptr, "a thread begins twice");
    CHECK(kind == 1 || kind == 2, "a thread of kind %d", kind);
    here.begun = 1;
    data->ptr = &here;
    saw(1);
}

static void on_thread_end(data_t *data) {
    saw(2);
    CHECK(data->ptr == &here, "the end of another thread");
    CHECK(here.depth == 0, "a thread ends while %d things are open, the last %c", here.depth,
          here.depth ? here.open[here.depth - 1].kind : '-');
    here.begun = 0;
}

static void on_parallel_begin(data_t *task, const frame_t *frame, data_t *region, unsigned requested, int flags,
                              const void *code) {
    saw(3);
    region_t *made = calloc(1, sizeof *made);
    CHECK(!region->ptr && requested > 0 && flags, "parallel begin: data of another one");
    CHECK(task == here.task, "parallel begin: in another task");
    check_code("parallel begin", code, 0);
    check_frame("parallel begin", frame->enter.ptr);
    region->ptr = made;
    push('p', 0, region);
}

static void on_parallel_end(data_t *region, data_t *task, int flags, const void *code) {
    saw(4);
    region_t *of = region->ptr;
    (void)flags;
    CHECK(task == here.task, "parallel end: in another task");
    CHECK(of->begun == of->ended && of->begun == of->members, "a region of %d members: %d began, %d ended", of->members,
          of->begun, of->ended);
    CHECK(!of->over, "a region ends twice");
    of->over = 1;
    check_code("parallel end", code, 0);
    pop('p', 0, region);
}

static void on_implicit_task(int endpoint, data_t *region, data_t *task, unsigned size, unsigned index, int flags) {
    saw(7);
    if (endpoint == BEGIN) {
        task_t *made = calloc(1, sizeof *made);
        CHECK(!task->ptr, "an implicit task begins with data of another one");
        made->flags = flags;
        task->ptr = made;
        if (!(flags & 1)) {
            region_t *of = region->ptr;
            of->members = (int)size;
            CHECK(index < size, "member %u of %u", index, size);
            atomic_fetch_add(&of->begun, 1);
            CHECK(get_task_info(1, NULL, NULL, NULL, NULL, NULL) == 2, "no task around a member's");
        }
        push('i', flags, region);
        /* The first member is the thread that has encountered the region. */
        push('t', 0, here.task);
        here.task = task;
        return;
    }
    CHECK(task == here.task, "the end of another implicit task");
    here.depth--;
    here.task = (data_t *)here.open[here.depth].of;
    region = (data_t *)here.open[here.depth - 1].of;
    pop('i', flags, region);
    if (!(flags & 1))
        atomic_fetch_add(&((region_t *)region->ptr)->ended, 1);
    task_t *of = task->ptr;
    CHECK(atomic_fetch_add(&of->ended, 1) == 0, "an implicit task ends twice");
}

static void on_task_create(data_t *parent, const frame_t *frame, data_t *task, int flags, int dependent,
                           const void *code) {
    saw(5);
    task_t *made = calloc(1, sizeof *made);
    (void)dependent;
    CHECK(parent == here.task && !task->ptr, "a task is created in another one, or with its data");
    check_code("task", code, 0);
    check_frame("task", frame->enter.ptr);
    made->flags = flags;
    task->ptr = made;
}

static void on_task_schedule(data_t *prior, int status, data_t *next) {
    saw(6);
    task_t *of = prior->ptr;
    CHECK(of != NULL, "a task that was not created is suspended or ends");
    if (status == 8)
        return;
    if (status == 7 || status == 2) {
        task_t *to = next->ptr;
        CHECK(prior == here.task, "another task is suspended");
        CHECK(to && atomic_fetch_add(&to->started, 1) == 0, "a task begins twice, or was not created");
        push('s', 0, prior);
        here.task = next;
    } else if (status == 1 || status == 3 || status == 4) {
        if (prior == here.task) {
            CHECK(atomic_fetch_add(&of->ended, 1) == 0, "a task ends twice");
            pop('s', 0, next);
            here.task = next;
        } else {
            CHECK(status == 3, "a task that does not run ends");
        }
    }
}

static void on_dependences(data_t *task, const dependence_t *list, int count) {
    saw(18);
    CHECK(task->ptr && count > 0 && list[0].kind > 0, "dependences of no task");
}

static void on_task_dependence(data_t *before, data_t *after) {
    saw(19);
    CHECK(before->ptr && after->ptr && before != after, "a dependence between no tasks");
}

static void sync_region(char kind, int detail, int endpoint, data_t *region, data_t *task, const void *code) {
    uint64_t wait;
    int last = detail == 9;
    CHECK(task == here.task, "synchronization of another task");
    CHECK(last ? endpoint == END ? !region : region != NULL : region != NULL, "synchronization in no region");
    check_code("synchronization", code, last);
    if (endpoint == BEGIN)
        push(kind, detail, task);
    else
        pop(kind, detail, task);
    CHECK(get_state(&wait) < 0x200, "no state");
}

static void on_sync_region(int detail, int endpoint, data_t *region, data_t *task, const void *code) {
    saw(23);
    sync_region('b', detail, endpoint, region, task, code);
}

static void on_sync_region_wait(int detail, int endpoint, data_t *region, data_t *task, const void *code) {
    saw(16);
    sync_region('w', detail, endpoint, region, task, code);
}

static void on_work(int kind, int endpoint, data_t *region, data_t *task, uint64_t count, const void *code) {
    int level_flags;
    data_t *level_task, *level_region;
    saw(20);
    (void)count;
    CHECK(task == here.task && region, "work of another task");
    check_code("work", code, 1);
    CHECK(get_task_info(0, &level_flags, &level_task, NULL, &level_region, NULL) == 2 && level_task == task
              && level_region == region, "work: the current task is another one");
    if (endpoint == BEGIN)
        push('l', kind, region);
    else
        pop('l', kind, region);
}

static void on_masked(int endpoint, data_t *region, data_t *task, const void *code) {
    saw(21);
    CHECK(task == here.task, "a block of another task");
    check_code("masked", code, 0);
    if (endpoint == BEGIN)
        push('m', 0, region);
    else
        pop('m', 0, region);
}

static void on_mutex_acquire(int kind, unsigned hint, unsigned impl, uint64_t wait, const void *code) {
    saw(26);
    (void)hint;
    CHECK(wait && impl, "a lock without a number");
    check_code("a lock", code, 0);
    here.waits_for = kind == 2 || kind == 4 ? 0 : wait;
}

static void on_mutex_acquired(int kind, uint64_t wait, const void *code) {
    saw(27);
    CHECK(kind == 2 || kind == 4 || here.waits_for == wait, "another lock is taken");
    check_code("a lock", code, 0);
    here.waits_for = 0;
}

static void on_mutex_released(int kind, uint64_t wait, const void *code) {
    saw(17);
    CHECK(kind && wait, "a lock without a number");
    check_code("a lock", code, 0);
}

static void on_lock_init(int kind, unsigned hint, unsigned impl, uint64_t wait, const void *code) {
    saw(24);
    (void)hint;
    CHECK(kind && impl && wait, "a lock without a number");
    check_code("a lock", code, 0);
}

static void on_lock_destroy(int kind, uint64_t wait, const void *code) {
    saw(25);
    CHECK(kind && wait, "a lock without a number");
    check_code("a lock", code, 0);
}

static void on_nest_lock(int endpoint, uint64_t wait, const void *code) {
    saw(28);
    CHECK(endpoint && wait, "a lock without a number");
    check_code("a lock", code, 0);
    here.waits_for = 0;
}

static void on_flush(data_t *thread, const void *code) {
    saw(29);
    CHECK(thread->ptr == &here, "a flush of another thread");
    check_code("flush", code, 0);
}

static void on_cancel(data_t *task, int flags, const void *code) {
    saw(30);
    CHECK(task->ptr && flags, "cancelled without a reason");
    check_code("cancel", code, flags & 0x40);
}

static void on_reduction(int detail, int endpoint, data_t *region, data_t *task, const void *code) {
    saw(31);
    CHECK(detail == 7 && region && task == here.task, "a reduction of another task");
    check_code("reduction", code, 0);
    if (endpoint == BEGIN)
        push('r', 0, task);
    else
        pop('r', 0, task);
}

static void on_dispatch(data_t *region, data_t *task, int kind, data_t instance) {
    saw(32);
    (void)instance;
    CHECK(region && task == here.task && kind, "work is dispatched to another task");
}

static int on_control_tool(uint64_t command, uint64_t modifier, void *argument, const void *code) {
    frame_t *frame;
    saw(11);
    check_code("control", code, 0);
    CHECK(get_task_info(0, NULL, NULL, &frame, NULL, NULL) == 2, "no current task");
    check_frame("control", frame->enter.ptr);
    CHECK(argument != NULL, "an argument is missing");
    return (int)(command * 10 + modifier);
}

static const struct { int number; any_t function; } CALLBACKS[] = {
    {1, (any_t)on_thread_begin}, {2, (any_t)on_thread_end}, {3, (any_t)on_parallel_begin},
    {4, (any_t)on_parallel_end}, {5, (any_t)on_task_create}, {6, (any_t)on_task_schedule},
    {7, (any_t)on_implicit_task}, {11, (any_t)on_control_tool}, {16, (any_t)on_sync_region_wait},
    {17, (any_t)on_mutex_released}, {18, (any_t)on_dependences}, {19, (any_t)on_task_dependence},
    {20, (any_t)on_work}, {21, (any_t)on_masked}, {23, (any_t)on_sync_region}, {24, (any_t)on_lock_init},
    {25, (any_t)on_lock_destroy}, {26, (any_t)on_mutex_acquire}, {27, (any_t)on_mutex_acquired},
    {28, (any_t)on_nest_lock}, {29, (any_t)on_flush}, {30, (any_t)on_cancel}, {31, (any_t)on_reduction},
    {32, (any_t)on_dispatch},
};

/* The instructions of the program itself. */
static void find_text(void) {
    char line[1024], own[512] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0 || !maps)
        exit(1);
    while (fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char access[8];
        if (strstr(line, own) && sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 && strchr(access, 'x')) {
            text_begin = (char *)begin;
            text_end = (char *)end;
        }
    }
    fclose(maps);
}

static int initialize(lookup_t lookup, int device, data_t *data) {
    any_t function;
    int state = 0x102, states = 0;
    const char *name;
    (void)device;
    if (getenv("TOOL_REFUSES"))
        return 0;
    set_callback = (int (*)(int, any_t))lookup("ompt_set_callback");
    get_callback = (int (*)(int, any_t *))lookup("ompt_get_callback");
    get_thread_data = (data_t *(*)(void))lookup("ompt_get_thread_data");
    get_state = (int (*)(uint64_t *))lookup("ompt_get_state");
    get_parallel_info = (int (*)(int, data_t **, int *))lookup("ompt_get_parallel_info");
    get_task_info = (int (*)(int, int *, data_t **, frame_t **, data_t **, int *))lookup("ompt_get_task_info");
    get_unique_id = (uint64_t (*)(void))lookup("ompt_get_unique_id");
    enumerate_states = (int (*)(int, int *, const char **))lookup("ompt_enumerate_states");
    CHECK(!lookup("ompt_no_such_function"), "a function that is not there");
    while (enumerate_states(state, &state, &name))
        states++;
    CHECK(states > 10 && states < 100, "%d states", states);
    CHECK(get_unique_id() != get_unique_id(), "a number is not unique");
    find_text();
    if (!getenv("TOOL_IS_SILENT"))
        for (unsigned i = 0; i < sizeof CALLBACKS / sizeof *CALLBACKS; i++)
            CHECK(set_callback(CALLBACKS[i].number, CALLBACKS[i].function) == 5, "callback %d", CALLBACKS[i].number);
    CHECK(set_callback(0, (any_t)initialize) == 0 && set_callback(99, (any_t)initialize) == 0, "a callback too many");
    CHECK(set_callback(12, (any_t)initialize) == 1 && get_callback(12, &function) == 1
              && function == (any_t)initialize, "a device's callback");
    data->value = 42;
    return 1;
}

static void finalize(data_t *data) {
    CHECK(data->value == 42, "the tool's data");
    CHECK(seen[1] == seen[2], "%d threads began, %d ended", seen[1], seen[2]);
    CHECK(seen[3] == seen[4] && seen[7] % 2 == 0, "%d regions began, %d ended; %d events of implicit tasks", seen[3],
          seen[4], seen[7]);
    for (int i = 1; i < 64; i++)
        if (seen[i])
            fprintf(stderr, "tool: saw %d: %d\n", i, seen[i]);
    fprintf(stderr, wrong ? "tool: FAILED\n" : "tool: PASSED\n");
}

start_result_t *ompt_start_tool(unsigned version, const char *runtime) {
    static start_result_t result = {initialize, finalize, {0}};
    CHECK(version >= 201811 && strstr(runtime, "Margay"), "another library: %u %s", version, runtime);
    return getenv("TOOL_IS_ABSENT") ? NULL : &result;
}
