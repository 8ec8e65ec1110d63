/* Random nested OpenMP programs, each checked against what executing it one construct after another would give.
 *
 * Usage: random [-s SEED] [-n PROGRAMS] [-t SECONDS] [-u THREADS] [-w SECONDS] [-b FAULT] [-o CONSTRUCT] [-p] [-x] [-k] [-g]
 *   -s  seed of the first program (1); program k has the seed SEED + k
 *   -n  how many programs (100), 0: until -t is over
 *   -t  stop to begin new ones after this many seconds
 *   -u  user's threads that execute programs at the same time (1)
 *   -w  seconds after which a program that has not ended counts as hanging (60)
 *   -b  a fault to be found: count, barrier, critical, depend, ordered, threadprivate, taskwait, hang
 *   -p  print each program before it runs
 *   -o  a construct to leave out, by its name in what -p prints; may be given several times
 *   -x  no construct in which a thread waits for others by spinning
 *   -k  threads also wait in the kernel: for a mutex, for each other by a condition or a pipe, for time
 *   -g  show with gdb where a hanging program's threads are
 *
 * A program is a tree of constructs that `member` and `run` interpret: each construct of OpenMP is there once, with random
 * clauses where the language allows values, and nested as its rules allow. Known in advance, and checked: how often each
 * construct is executed, each iteration once, thread numbers and levels, threadprivate values, results of reductions, the
 * order in ordered and doacross loops and between dependent tasks, and what a barrier, taskwait or taskgroup has waited
 * for. Below something that is cancelled the numbers are upper bounds.
 *
 * Ends with 0 if nothing differed, 1 after a difference, 2 on wrong usage, 3 when a program hangs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "random/types.h"
#include "random/make.h"
#include "random/teams.h"
#include "random/sync.h"
#include "random/tasks.h"
#include "random/cancel.h"

static void run(const struct node *constant, struct env *e)
{
    struct node *n = (struct node *)constant;
    atomic_fetch_add(&n->count, 1);
    if (breaks("hang") && n->id == 5) {
        atomic_int never = 0;
        while (!atomic_load(&never)) usleep(1000);
    }
    switch (n->kind) {
    case LEAF: leaf(n, e); break;
    case SEQ:
        for (int k = 0; k < n->kids; k++) run(n->kid[k], e);
        break;
    case PARALLEL: parallel(n, e); break;
    case PARALLEL_FOR: parallel_for(n, e); break;
    case PARALLEL_SECTIONS: parallel_sections(n, e); break;
    case PARALLEL_TASKS: parallel_tasks(n, e); break;
    case FOR: loop(n, e); break;
    case FOR_ORDERED: loop_ordered(n, e); break;
    case DOACROSS: doacross(n, e); break;
    case DOACROSS2: doacross2(n, e); break;
    case COLLAPSE: collapse(n, e); break;
    case FOR_REDUCTION: loop_reduction(n, e); break;
    case SECTIONS: sections(n, e); break;
    case SINGLE: single(n, e); break;
    case COPYPRIVATE: copyprivate(n, e); break;
    case MASKED: {
        int which = n->value;
        if (which == 0 && n->variant & 1) {
#pragma omp master
            run(n->kid[0], e);
        } else {
#pragma omp masked filter(which)
            run(n->kid[0], e);
        }
        break;
    }
    case SCOPE: scope(n, e); break;
    case BARRIER: barrier(n, e); break;
    case SPIN: spin(n, e); break;
    case MUTEX: locked(n, e); break;
    case NAP: usleep(1 + (unsigned)n->variant * 8); break;
    case MEET: meet(n, e); break;
    case PIPE: pass(n, e); break;
    case CRITICAL: critical(n, e); break;
    case ATOMIC: atomically(e); break;
    case LOCK: lock(n, e); break;
    case NEST_LOCK: nest_lock(n, e); break;
    case TASK: task(n, e); break;
    case UNTIED: untied(n, e); break;
    case DETACH: detach(n, e); break;
    case DEPEND: depend(n, e); break;
    case TASKWAIT: taskwait(n, e); break;
    case TASKYIELD: {
#pragma omp taskyield
        break;
    }
    case TASKGROUP:
    case TASKGROUP_REDUCTION: taskgroup(n, e); break;
    case TASK_IN_REDUCTION: task_in_reduction(n, e); break;
    case TASKLOOP: taskloop(n, e); break;
    case CANCEL_PARALLEL: cancel_parallel(n, e); break;
    case CANCEL_FOR: cancel_for(n, e); break;
    case CANCEL_SECTIONS: cancel_sections(n, e); break;
    case CANCEL_TASKGROUP: cancel_taskgroup(n, e); break;
    case KINDS: abort();
    }
}

/* ---- Programs, one after another ---- */

static void make_program(struct program *p, uint64_t seed)
{
    atomic_store(&p->used, 0);
    p->seed = seed;
    p->random = mixed(seed);
    p->nodes = 0;
    p->work = WORK;
    p->members = MEMBERS;
    memset(p->critical_count, 0, sizeof p->critical_count);
    p->lock_count = p->nest_count = p->mutex_count = p->atomic_sum = 0;
    p->atomic_double = p->atomic_byte = 0;
    p->atomic_long_double = 0;
    atomic_store(&p->criticals[0], 0);
    atomic_store(&p->criticals[1], 0);
    atomic_store(&p->locks, 0);
    atomic_store(&p->mutexes, 0);
    atomic_store(&p->nests, 0);
    atomic_store(&p->atomics, 0);
    omp_init_lock(&p->lock);
    omp_init_nest_lock(&p->nest_lock);
    /* The whole program is the body of a team of one. */
    struct node *all = p->root = allocate(p, sizeof *all);
    struct place at = { .is_team = 1, .times = 1, .size = 1, .region = all };
    all->kind = SEQ;
    all->size = 1;
    all->expected = 1;
    p->node[p->nodes++] = all;
    for (int k = 0; k < MAX_KIDS && p->work > WORK / 8; k++) add(p, all, &at);
}

static void equal(struct program *p, const char *what, double is, double expected)
{
    if (is != expected) differs(p, p->root, "%s: %g instead of %g", what, is, expected);
}

static void check_counts(struct program *p)
{
    struct env at = { .program = p }, *e = &at;
    for (int k = 0; k < p->nodes; k++) {
        const struct node *n = p->node[k];
        long count = atomic_load(&n->count);
        REQUIRE(count == n->expected || (n->is_bounded && count < n->expected), "executed %ld times instead of %ld", count, n->expected);
        int is_bounded = n->is_bounded || (n->kind == CANCEL_FOR && cancels);
        for (int i = 0; n->hits && i < n->iterations; i++) {
            int hits = atomic_load(&n->hits[i]);
            REQUIRE(hits == n->expected_hits || (is_bounded && hits < n->expected_hits), "iteration %d executed %d times instead of %ld", i,
                    hits, n->expected_hits);
        }
    }
    equal(p, "unnamed critical sections", (double)p->critical_count[0], (double)atomic_load(&p->criticals[0]));
    equal(p, "named critical sections", (double)p->critical_count[1], (double)atomic_load(&p->criticals[1]));
    equal(p, "times under the mutex", (double)p->mutex_count, (double)atomic_load(&p->mutexes));
    equal(p, "times under the lock", (double)p->lock_count, (double)atomic_load(&p->locks));
    equal(p, "times under the nestable lock", (double)p->nest_count, (double)atomic_load(&p->nests));
    double atomics = (double)atomic_load(&p->atomics);
    equal(p, "atomic sum of long", (double)p->atomic_sum, 3 * atomics);
    equal(p, "atomic sum of double", p->atomic_double, atomics);
    equal(p, "atomic sum of long double", (double)p->atomic_long_double, atomics);
    equal(p, "atomic parity of a byte", p->atomic_byte, (double)(atomic_load(&p->atomics) & 1));
}

static void run_program(struct program *p)
{
    struct env me = { .program = p };
    me.children = allocate(p, sizeof *me.children);
    struct team none = { .level = -1 };
    me.team = &none;
    struct team *team = me.team = new_team(p->root, &me);
    team->outer = NULL;
    own_value = team->base;
    run(p->root, &me);
#pragma omp barrier
    check_counts(p);
    omp_destroy_lock(&p->lock);
    omp_destroy_nest_lock(&p->nest_lock);
}

static uint64_t first_seed = 1;
static long wanted = 100;
static double end_s = 1e300;
static atomic_long taken, done, failed;
static int debugs;

static void *use(void *number)
{
    struct program *p = &programs[(size_t)number];
    p->arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->arena == MAP_FAILED) {
        perror("no memory for a program");
        exit(2);
    }
    for (;;) {
        long k = atomic_fetch_add(&taken, 1);
        if ((wanted && k >= wanted) || now() > end_s) return NULL;
        make_program(p, first_seed + (uint64_t)k);
        if (prints) {
            fprintf(stderr, "seed %" PRIu64 "\n", p->seed);
            print(p->root, 1);
        }
        atomic_store(&p->failures, 0);
        atomic_store(&p->began, now());
        run_program(p);
        atomic_store(&p->began, 0);
        atomic_fetch_add(&done, 1);
        if (atomic_load(&p->failures)) atomic_fetch_add(&failed, 1);
        if (atomic_load(&failed) > 20) return NULL;
    }
}

/* Where the threads of this process are, as the kernel sees them. */
static void show_threads(void)
{
    char command[400];
    snprintf(command, sizeof command,
             "for t in /proc/%d/task/*; do echo \"thread ${t##*/}: $(cut -d' ' -f2,3,14,15 $t/stat) $(cat $t/wchan)\"; done >&2", getpid());
    if (system(command)) fputs("the threads cannot be shown\n", stderr);
    if (!debugs) return;
    snprintf(command, sizeof command, "gdb -batch -p %d -ex 'thread apply all backtrace 40' >&2", getpid());
    if (system(command)) fputs("gdb cannot show them either\n", stderr);
}

static void *watch(void *unused)
{
    (void)unused;
    for (;;) {
        usleep(200000);
        for (int k = 0; k < USERS; k++) {
            double began = atomic_load(&programs[k].began);
            if (began == 0 || now() - began < watch_s) continue;
            fprintf(stderr, "seed %" PRIu64 " hangs: not over after %d s; executions so far:\n", programs[k].seed, watch_s);
            print(programs[k].root, 1);
            show_threads();
            _exit(3);
        }
    }
}

int main(int count, char **arguments)
{
    int users = 1, option;
    while ((option = getopt(count, arguments, "s:n:t:u:w:b:o:pxkg")) != -1) {
        switch (option) {
        case 's': first_seed = strtoull(optarg, NULL, 0); break;
        case 'n': wanted = atol(optarg); break;
        case 't': end_s = now() + atof(optarg); break;
        case 'u': users = atoi(optarg); break;
        case 'w': watch_s = atoi(optarg); break;
        case 'b': fault = optarg; break;
        case 'o':
            for (int k = 0; k < KINDS; k++)
                if (!strcmp(names[k], optarg)) omitted[k] = 1;
            break;
        case 'p': prints = 1; break;
        case 'x': may_spin = 0; break;
        case 'k': blocks = 1; break;
        case 'g': debugs = 1; break;
        default: users = 0;
        }
    }
    if (users < 1 || users > USERS || optind != count) {
        fprintf(stderr, "usage: %s [-s SEED] [-n PROGRAMS] [-t SECONDS] [-u THREADS, at most %d] [-w SECONDS] [-b FAULT] [-o CONSTRUCT] [-p] [-x] [-k] [-g]\n",
                arguments[0], USERS);
        return 2;
    }
    Dl_info runtime;
    if (dladdr((void *)(uintptr_t)omp_get_num_threads, &runtime)) printf("runtime %s\n", runtime.dli_fname);
    fflush(stdout);
    cancels = omp_get_cancellation();
    max_active = omp_get_max_active_levels();
    pthread_t watcher, user[USERS];
    int error = pthread_create(&watcher, NULL, watch, NULL);
    for (int k = 1; k < users && !error; k++) error = pthread_create(&user[k], NULL, use, (void *)(size_t)k);
    if (error) {
        fprintf(stderr, "no thread: %s\n", strerror(error));
        return 2;
    }
    double began = now();
    use((void *)0);
    for (int k = 1; k < users; k++) pthread_join(user[k], NULL);
    printf("%ld programs in %.1f s, %ld differed\n", atomic_load(&done), now() - began, atomic_load(&failed));
    return atomic_load(&failed) != 0;
}
