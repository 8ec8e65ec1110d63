/* libiml: what C has and Rust has not. Calls with as many arguments as the caller likes, for C and for Fortran, and calls of procedures
 * with as many arguments as they like. */
#include "iml.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

const int static_schedule = IML_STATIC, simple_schedule = IML_SIMPLE, self_schedule = IML_SELF, guided_schedule = IML_GUIDED,
          factoring_schedule = IML_FACTORING;

void margay_iml_loop(int64_t count, int schedule, int64_t min_chunk, void (*chunk)(const void *loop, int64_t begin, int64_t count), const void *loop,
                     const iml_group_t *group);
void margay_iml_enqueue(void (*run)(const uintptr_t *words), const uintptr_t *words, size_t count);
void margay_iml_enqueue_short(void (*run)(uintptr_t procedure, uintptr_t count, uintptr_t first, uintptr_t second), uintptr_t procedure,
                              uintptr_t count, uintptr_t first, uintptr_t second);
void margay_iml_wait_enqueued(void);
void margay_iml_reduce(int64_t begin, int64_t end, int64_t grain, void *result, size_t size,
                       void (*map)(int64_t begin, int64_t end, void *value, void *data),
                       void (*combine)(void *left, const void *right, void *data), void *data);
int margay_iml_set_threads(int threads);
int margay_iml_thread(void);
int margay_iml_threads(void);
void margay_iml_both(void (*first)(void *), void *first_argument, void (*second)(void *), void *second_argument);
void margay_iml_group_begin(iml_group_t *group);
int margay_iml_spawn(iml_group_t *group, void (*task)(void *), void *(*with_result)(void *), void *argument, void **result);
int margay_iml_wait(iml_group_t *group);
void margay_iml_cancel(iml_group_t *group);
int margay_iml_is_cancelled(const iml_group_t *group);

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("libiml: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    abort();
}

static void check(int is_right, const char *call, const char *what) {
    if (!is_right) fail("%s: %s is a null pointer", call, what);
}

/* A procedure and what it is called with. */
struct Call {
    void (*procedure)(void);
    uintptr_t count;
    void *with[IML_MAX_PARAMS];
};

typedef void *P;

/* Calls `f` with as many of the parameters `w` as `call` has, at least one, behind others. */
#define CALL_WITH_SOME(TYPES, VALUES)                                                                                 \
    switch (call->count) {                                                                                            \
    case 1: ((void (*)(TYPES P))f)(VALUES w[0]); break;                                                               \
    case 2: ((void (*)(TYPES P, P))f)(VALUES w[0], w[1]); break;                                                      \
    case 3: ((void (*)(TYPES P, P, P))f)(VALUES w[0], w[1], w[2]); break;                                             \
    case 4: ((void (*)(TYPES P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3]); break;                                    \
    case 5: ((void (*)(TYPES P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4]); break;                           \
    case 6: ((void (*)(TYPES P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4], w[5]); break;                  \
    case 7: ((void (*)(TYPES P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4], w[5], w[6]); break;         \
    case 8: ((void (*)(TYPES P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]); break;\
    case 9: ((void (*)(TYPES P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4], w[5], w[6],           \
             w[7], w[8]); break;                                                                                      \
    case 10: ((void (*)(TYPES P, P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4], w[5],             \
             w[6], w[7], w[8], w[9]); break;                                                                          \
    case 11: ((void (*)(TYPES P, P, P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4], w[5],          \
             w[6], w[7], w[8], w[9], w[10]); break;                                                                   \
    case 12: ((void (*)(TYPES P, P, P, P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4],             \
             w[5], w[6], w[7], w[8], w[9], w[10], w[11]); break;                                                      \
    case 13: ((void (*)(TYPES P, P, P, P, P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3], w[4],          \
             w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12]); break;                                               \
    case 14: ((void (*)(TYPES P, P, P, P, P, P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3],             \
             w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13]); break;                                  \
    case 15: ((void (*)(TYPES P, P, P, P, P, P, P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2], w[3],          \
             w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14]); break;                           \
    case 16: ((void (*)(TYPES P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P))f)(VALUES w[0], w[1], w[2],             \
             w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]); break;              \
    }

#define NOTHING
#define TWO_TYPES P, P,
#define START_AND_ITERATIONS &start, &iterations,

static void call_task(const struct Call *call) {
    P const *w = call->with;
    void (*f)(void) = call->procedure;
    if (call->count == 0)
        f();
    else
        CALL_WITH_SOME(NOTHING, NOTHING)
}

static void call_chunk(const void *loop, int64_t begin, int64_t count) {
    const struct Call *call = loop;
    int start = (int)begin, iterations = (int)count;
    P const *w = call->with;
    void (*f)(void) = call->procedure;
    if (call->count == 0)
        ((void (*)(P, P))f)(&start, &iterations);
    else
        CALL_WITH_SOME(TWO_TYPES, START_AND_ITERATIONS)
}

static void check_parameters(const char *name, void (*procedure)(void), const int *nparams) {
    check(procedure != NULL, name, "the procedure");
    check(nparams != NULL, name, "nparams");
    if (*nparams < 0 || *nparams > IML_MAX_PARAMS)
        fail("%s: %d parameters; it can be 0 to %d: put more into a structure", name, *nparams, IML_MAX_PARAMS);
}

static void read_parameters(struct Call *call, const char *name, void (*procedure)(void), const int *nparams, va_list list) {
    check_parameters(name, procedure, nparams);
    call->procedure = procedure;
    call->count = (uintptr_t)*nparams;
    for (int n = 0; n < *nparams; n++) call->with[n] = va_arg(list, void *);
}

static void doall(void (*body)(void), const int *iterations, const int *schedule, const int *min_chunk, const int *nparams, va_list list) {
    struct Call call;
    read_parameters(&call, "iml_DOALL", body, nparams, list);
    check(iterations != NULL, "iml_DOALL", "iterations");
    check(schedule != NULL, "iml_DOALL", "schedule");
    check(min_chunk != NULL, "iml_DOALL", "min_chunk");
    if (*schedule < IML_STATIC || *schedule > IML_FACTORING)
        fail("iml_DOALL: %d is no schedule; there are static_schedule (1), simple_schedule (2), self_schedule (3), "
             "guided_schedule (4) and factoring_schedule (5)",
             *schedule);
    if (*iterations > 0) margay_iml_loop(*iterations, *schedule, *min_chunk, call_chunk, &call, NULL);
}

void iml_DOALL(void (*body)(IML_ANY), const int *iterations, const int *schedule, const int *min_chunk, const int *nparams, ...) {
    va_list list;
    va_start(list, nparams);
    doall((void (*)(void))body, iterations, schedule, min_chunk, nparams, list);
    va_end(list);
}

void iml_doall_(void (*body)(void), const int *iterations, const int *schedule, const int *min_chunk, const int *nparams, ...) {
    va_list list;
    va_start(list, nparams);
    doall(body, iterations, schedule, min_chunk, nparams, list);
    va_end(list);
}

/* Procedures that share their parameters. */
struct Section {
    struct Call call;
    void (**tasks)(void);
};

static void call_sections(const void *section, int64_t begin, int64_t count) {
    const struct Section *all = section;
    for (int64_t n = begin; n < begin + count; n++) {
        struct Call call = all->call;
        call.procedure = all->tasks[n];
        call_task(&call);
    }
}

static void cobegin(const int *ntasks, va_list list) {
    check(ntasks != NULL, "iml_COBEGIN", "ntasks");
    if (*ntasks < 0) fail("iml_COBEGIN: %d tasks", *ntasks);
    if (*ntasks == 0) return;
    void (*tasks[*ntasks])(void);
    for (int n = 0; n < *ntasks; n++) {
        tasks[n] = va_arg(list, void (*)(void));
        check(tasks[n] != NULL, "iml_COBEGIN", "a task");
    }
    const int *nparams = va_arg(list, const int *);
    struct Section section;
    section.tasks = tasks;
    read_parameters(&section.call, "iml_COBEGIN", tasks[0], nparams, list);
    margay_iml_loop(*ntasks, IML_SELF, 1, call_sections, &section, NULL);
}

void iml_COBEGIN(const int *ntasks, ...) {
    va_list list;
    va_start(list, ntasks);
    cobegin(ntasks, list);
    va_end(list);
}

void iml_cobegin_(const int *ntasks, ...) {
    va_list list;
    va_start(list, ntasks);
    cobegin(ntasks, list);
    va_end(list);
}

static void run_enqueued(const uintptr_t *words) { call_task((const struct Call *)words); }

/* Parameters of a task that is enqueued without writing it down. */
enum { SHORT = 2 };

static void run_short(uintptr_t procedure, uintptr_t count, uintptr_t first, uintptr_t second) {
    const P a = (P)first, b = (P)second;
    switch (count) {
    case 0: ((void (*)(void))procedure)(); break;
    case 1: ((void (*)(P))procedure)(a); break;
    default: ((void (*)(P, P))procedure)(a, b); break;
    }
}

static void enq(void (*task)(void), const int *nparams, va_list list) {
    static atomic_int is_registered;
    check_parameters("iml_EnQ", task, nparams);
    /* What has been enqueued is not lost when the program ends. */
    if (!atomic_load_explicit(&is_registered, memory_order_relaxed) && atomic_exchange(&is_registered, 1) == 0)
        atexit(margay_iml_wait_enqueued);
    const uintptr_t count = (uintptr_t)*nparams;
    if (count <= SHORT) {
        const uintptr_t first = count > 0 ? (uintptr_t)va_arg(list, P) : 0, second = count > 1 ? (uintptr_t)va_arg(list, P) : 0;
        margay_iml_enqueue_short(run_short, (uintptr_t)task, count, first, second);
        return;
    }
    struct Call call;
    read_parameters(&call, "iml_EnQ", task, nparams, list);
    margay_iml_enqueue(run_enqueued, (const uintptr_t *)&call, 2 + count);
}

void iml_EnQ(void (*task)(IML_ANY), const int *nparams, ...) {
    va_list list;
    va_start(list, nparams);
    enq((void (*)(void))task, nparams, list);
    va_end(list);
}

void iml_enq_(void (*task)(void), const int *nparams, ...) {
    va_list list;
    va_start(list, nparams);
    enq(task, nparams, list);
    va_end(list);
}

int iml_DecAndFetch(int *counter) {
    check(counter != NULL, "iml_DecAndFetch", "the counter");
    return __atomic_sub_fetch(counter, 1, __ATOMIC_ACQ_REL);
}

int iml_ReInitMultiThread(int threads) {
    if (threads < 1) fail("iml_ReInitMultiThread: %d threads; at least 1 has to run the program", threads);
    return margay_iml_set_threads(threads);
}

int iml_GetThreadID(void) { return margay_iml_thread(); }
int iml_NumThreads(void) { return margay_iml_threads(); }
void iml_WaitEnQ(void) { margay_iml_wait_enqueued(); }

void iml_Both(void (*first)(void *), void *first_argument, void (*second)(void *), void *second_argument) {
    check(first != NULL, "iml_Both", "the first procedure");
    check(second != NULL, "iml_Both", "the second procedure");
    margay_iml_both(first, first_argument, second, second_argument);
}

void iml_GroupBegin(iml_group_t *group) {
    check(group != NULL, "iml_GroupBegin", "the group");
    margay_iml_group_begin(group);
}

static void spawn(const char *name, iml_group_t *group, void (*task)(void *), void *(*with_result)(void *), void *argument,
                  void **result) {
    check(group != NULL, name, "the group");
    check(task != NULL || with_result != NULL, name, "the task");
    check(task != NULL || result != NULL, name, "the result");
    if (!margay_iml_spawn(group, task, with_result, argument, result)) fail("%s: the group has not been begun by iml_GroupBegin", name);
}

void iml_Spawn(iml_group_t *group, void (*task)(void *), void *argument) {
    spawn("iml_Spawn", group, task, NULL, argument, NULL);
}

void iml_SpawnResult(iml_group_t *group, void *(*task)(void *), void *argument, void **result) {
    spawn("iml_SpawnResult", group, NULL, task, argument, result);
}

void iml_Wait(iml_group_t *group) {
    check(group != NULL, "iml_Wait", "the group");
    switch (margay_iml_wait(group)) {
    case 0: return;
    case 1: fail("iml_Wait: the group has not been begun by iml_GroupBegin");
    default: fail("iml_Wait: the group was begun by a task on another thread; the task that begins a group waits for it");
    }
}

void iml_Cancel(iml_group_t *group) {
    check(group != NULL, "iml_Cancel", "the group");
    margay_iml_cancel(group);
}

int iml_IsCancelled(const iml_group_t *group) {
    check(group != NULL, "iml_IsCancelled", "the group");
    return margay_iml_is_cancelled(group);
}

/* A loop over a range of the caller's. */
struct Range {
    void (*body)(int64_t, int64_t, void *);
    void *data;
    int64_t begin;
};

static void call_range(const void *loop, int64_t begin, int64_t count) {
    const struct Range *range = loop;
    range->body(range->begin + begin, range->begin + begin + count, range->data);
}

void iml_For(int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t, int64_t, void *), void *data, iml_group_t *group) {
    check(body != NULL, "iml_For", "the body");
    if (begin >= end) return;
    struct Range range = {body, data, begin};
    margay_iml_loop(end - begin, IML_SIMPLE, grain, call_range, &range, group);
}

void iml_Reduce(int64_t begin, int64_t end, int64_t grain, void *result, size_t size, void (*map)(int64_t, int64_t, void *, void *),
                void (*combine)(void *, const void *, void *), void *data) {
    check(result != NULL, "iml_Reduce", "the result");
    check(map != NULL, "iml_Reduce", "map");
    check(combine != NULL, "iml_Reduce", "combine");
    if (begin < end) margay_iml_reduce(begin, end, grain, result, size, map, combine, data);
}

/* Fortran: arguments by reference. */
int iml_decandfetch_(int *counter) { return iml_DecAndFetch(counter); }
void iml_reinitmultithread_(const int *threads) { (void)iml_ReInitMultiThread(*threads); }
int iml_getthreadid_(void) { return iml_GetThreadID(); }
int iml_numthreads_(void) { return iml_NumThreads(); }
void iml_waitenq_(void) { iml_WaitEnQ(); }
