/* iml.h: the Illinois-Intel Multithreading Library, Margay. See docs/threads.md.
 *
 * Any nesting of loops, COBEGINs and tasks is parallel, and any thread of the program may call at any time. A task that waits for
 * something of this library lets its thread do other things meanwhile, but what has begun stays on its thread. Wrong
 * arguments end the process with a message.
 */
#ifndef IML_H_INCLUDED
#define IML_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* Procedures take what the caller gives them; C++ wants their parameters said. */
#define IML_ANY ...
#else
#define IML_ANY
#endif

/* How a loop's iterations become chunks. */
enum {
    IML_STATIC = 1,    /* one block a thread */
    IML_SIMPLE = 2,    /* blocks of the minimum chunk */
    IML_SELF = 3,      /* one iteration at a time, or the minimum chunk */
    IML_GUIDED = 4,    /* a thread's share of what is left */
    IML_FACTORING = 5  /* half of that */
};

/* The same, to be passed by address. */
extern const int static_schedule, simple_schedule, self_schedule, guided_schedule, factoring_schedule;

/* Parameters that a call can hand on. */
#define IML_MAX_PARAMS 16

/* ---- The calls of the paper. Arguments are passed by address. ---- */

/* Runs a loop and returns when it is complete: void body(int *start, int *iterations, parameters...) for each chunk. The first
 * iteration is 0. All chunks but the last have at least *min_chunk iterations. */
void iml_DOALL(void (*body)(IML_ANY), const int *iterations, const int *schedule, const int *min_chunk, const int *nparams, ...);

/* Runs *ntasks procedures, void task(parameters...), and returns when they are complete: iml_COBEGIN(&ntasks, task..., &nparams,
 * parameters...). */
void iml_COBEGIN(const int *ntasks, ...);

/* Enqueues void task(parameters...) and returns at once. It is complete when iml_WaitEnQ has returned, or when the program ends. */
void iml_EnQ(void (*task)(IML_ANY), const int *nparams, ...);

/* Decrements the counter atomically and returns its new value; the caller that gets 0 sees what the others wrote
 * before their calls. */
int iml_DecAndFetch(int *counter);

/* Changes how many threads take work: at least 1, at most as many as there are cores to use. Returns how many it is now. */
int iml_ReInitMultiThread(int threads);

/* The number of the running thread, from 0. Each thread of the program is 0 of what it forked. */
int iml_GetThreadID(void);

/* ---- What a program of today needs beside them. ---- */

/* How many threads take work. */
int iml_NumThreads(void);

/* Returns when all that was enqueued by iml_EnQ, by whomever, is complete. Not to be called by an enqueued task. */
void iml_WaitEnQ(void);

/* Runs first(first_argument) here and second(second_argument) on a thread that is idle, or here after it, and returns when both are
 * complete. The cheapest way to fork: a few nanoseconds when no thread is idle. */
void iml_Both(void (*first)(void *), void *first_argument, void (*second)(void *), void *second_argument);

/* Tasks that are waited for together. The task that begins a group waits for it; others may spawn into it and cancel it. */
typedef struct {
    uint64_t opaque[10];
} iml_group_t;

void iml_GroupBegin(iml_group_t *group);

/* Adds task(argument) to the group; it runs on any thread, at the latest when the group is waited for. */
void iml_Spawn(iml_group_t *group, void (*task)(void *argument), void *argument);

/* The same of a task with a result, which lies in *result when the group has been waited for. If the group is cancelled before
 * the task begins, *result stays as it is. */
void iml_SpawnResult(iml_group_t *group, void *(*task)(void *argument), void *argument, void **result);

/* Returns when all tasks of the group are complete. The group can be used again then; it is no longer cancelled. */
void iml_Wait(iml_group_t *group);

/* Tasks and chunks of the group that have not begun do not begin; those that run may ask. */
void iml_Cancel(iml_group_t *group);
int iml_IsCancelled(const iml_group_t *group);

/* Runs body(begin, end, data) for parts of the range, each of about `grain` iterations, and returns when all are complete. If `group` is not
 * null and is cancelled, parts that have not begun are left out. */
void iml_For(int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t begin, int64_t end, void *data), void *data,
             iml_group_t *group);

/* Reduces a range to *result, a value of `size` bytes. *result holds the value of no iterations first. map(begin, end, value, data) adds a part of
 * the range, of at most `grain` iterations, to *value, which holds that same value before; combine(left, right, data) adds *right to *left, its neighbour.
 * The result does not depend on which thread computes what, bit by bit. */
void iml_Reduce(int64_t begin, int64_t end, int64_t grain, void *result, size_t size,
                void (*map)(int64_t begin, int64_t end, void *value, void *data),
                void (*combine)(void *left, const void *right, void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
