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

enum {
    MAX_KIDS = 8,
    MAX_THREADS = 16,
    MAX_NODES = 1600,
    /* Constructs within each other. */
    NESTING = 12,
    PHASES = 64,
    ADDRESSES = 4,
    DEPENDENT = 8,
    USERS = 8,
    /* Executions of constructs in one program, and members of all its regions. */
    WORK = 3000,
    MEMBERS = 300,
    ARENA_BYTES = 64 << 20,
};

enum kind {
    LEAF, SEQ, PARALLEL, PARALLEL_FOR, PARALLEL_SECTIONS, PARALLEL_TASKS, FOR, FOR_ORDERED, DOACROSS, DOACROSS2, COLLAPSE,
    FOR_REDUCTION, SECTIONS, SINGLE, COPYPRIVATE, MASKED, SCOPE, BARRIER, SPIN, CRITICAL, ATOMIC, LOCK, NEST_LOCK, TASK,
    UNTIED, DETACH, DEPEND, TASKWAIT, TASKYIELD, TASKGROUP, TASKGROUP_REDUCTION, TASK_IN_REDUCTION, TASKLOOP,
    CANCEL_PARALLEL, CANCEL_FOR, CANCEL_SECTIONS, CANCEL_TASKGROUP, MUTEX, NAP, MEET, PIPE, KINDS
};

static const char *const names[KINDS] = {
    "leaf", "sequence", "parallel", "parallel for", "parallel sections", "parallel reduction(task)", "for", "for ordered",
    "doacross(1)", "doacross(2)", "for collapse(2)", "for reduction", "sections", "single", "single copyprivate", "masked",
    "scope", "barrier", "spin", "critical", "atomic", "lock", "nest lock", "task", "task untied", "task detach",
    "tasks depend", "taskwait", "taskyield", "taskgroup", "taskgroup task_reduction", "task in_reduction", "taskloop",
    "cancel parallel", "cancel for", "cancel sections", "cancel taskgroup", "mutex", "nap", "meet", "pipe"
};

/* A construct. */
struct node {
    enum kind kind;
    int id;
    /* Clauses, as the kind reads them. */
    int threads, variant, schedule, chunk, nowait, iterations, inner, value;
    long lower, step;
    /* Members that a region gets. */
    int size;
    /* Which shared state of its region it has, and the region's number. */
    int share, region;
    /* Shared states of this region. */
    int shares;
    /* Below something that is cancelled: counts are bounds. */
    int is_bounded;
    /* Addresses that each dependent task names: out, inout, two in, mutexinoutset; -1: none. */
    signed char access[DEPENDENT][5];
    int kids;
    struct node *kid[MAX_KIDS];
    /* Executions, and those expected. */
    atomic_long count;
    long expected;
    /* Executions of each iteration, and those expected of each. */
    atomic_int *hits;
    long expected_hits;
    /* What a taskgroup's tasks add to its variable, each time, or at most. */
    long expected_reduction;
    int is_reduction_bounded;
};

/* What the members of a region share about one construct in it. */
struct share {
    atomic_int arrived, next;
    int ends[2];
    atomic_int *flags;
    long sum;
};

/* Tasks: how many were made and how many are done. */
struct tally {
    atomic_int made, done;
};

struct team {
    const struct node *node;
    struct team *outer;
    int outer_thread, size, level, active;
    /* The threadprivate variable of member k is base + k. */
    long base;
    atomic_uint begun;
    struct tally phases[PHASES];
    struct share *shares;
};

/* Where an implicit or explicit task is. */
struct env {
    struct program *program;
    struct team *team;
    struct tally *children, *group;
    /* The variable of the enclosing task_reduction. */
    long *reduction;
    int phase, is_loose, is_untied, is_final;
};

struct program {
    uint64_t seed, random;
    int nodes;
    struct node *node[MAX_NODES];
    struct node *root;
    int work, members;
    char *arena;
    atomic_size_t used;
    atomic_int failures, critical_inside, lock_inside, nest_inside;
    long critical_count[2], lock_count, nest_count, mutex_count;
    atomic_long criticals[2], locks, nests, mutexes;
    long atomic_sum;
    double atomic_double;
    unsigned char atomic_byte;
    long double atomic_long_double;
    atomic_long atomics;
    omp_lock_t lock;
    omp_nest_lock_t nest_lock;
    /* Seconds, or 0 when it does not run. */
    _Atomic double began;
    int is_made;
};

static const char *fault = "";
static int omitted[KINDS], prints, may_spin = 1, blocks, watch_s = 60, cancels, max_active;
static struct program programs[USERS];
static atomic_long bases;
static long own_value;
#pragma omp threadprivate(own_value)

static int breaks(const char *what) { return !strcmp(fault, what); }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static int below(struct program *p, int n)
{
    p->random = mixed(p->random);
    return (int)((p->random >> 8) % (uint64_t)n);
}

static void *allocate(struct program *p, size_t bytes)
{
    bytes = (bytes + 63) & ~(size_t)63;
    size_t at = atomic_fetch_add(&p->used, bytes);
    if (at + bytes > ARENA_BYTES) {
        fprintf(stderr, "seed %" PRIu64 ": a program needs more than %d bytes\n", p->seed, ARENA_BYTES);
        abort();
    }
    return memset(p->arena + at, 0, bytes);
}

/* ---- What differs ---- */

static void print(const struct node *n, int depth)
{
    fprintf(stderr, "%*s#%d %s", 2 * depth, "", n->id, names[n->kind]);
    if (n->threads) fprintf(stderr, " threads %d (%d)", n->threads, n->size);
    if (n->iterations) fprintf(stderr, " iterations %d", n->iterations);
    if (n->inner) fprintf(stderr, " x %d", n->inner);
    fprintf(stderr, " variant %d schedule %d,%d%s%s: %ld of %ld\n", n->variant, n->schedule, n->chunk,
            n->nowait ? " nowait" : "", n->is_bounded ? " bounded" : "", atomic_load(&n->count), n->expected);
    for (int k = 0; k < n->kids; k++) print(n->kid[k], depth + 1);
}

__attribute__((format(printf, 3, 4))) static void differs(struct program *p, const struct node *n, const char *form, ...)
{
    if (atomic_fetch_add(&p->failures, 1) >= 5) return;
    va_list arguments;
    va_start(arguments, form);
    flockfile(stderr);
    fprintf(stderr, "seed %" PRIu64 ", #%d %s: ", p->seed, n->id, names[n->kind]);
    vfprintf(stderr, form, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(arguments);
}

#define REQUIRE(holds, ...)                               \
    do {                                                  \
        if (!(holds)) differs(e->program, n, __VA_ARGS__); \
    } while (0)

/* ---- Making a program ---- */

struct place {
    /* Whether constructs that all members execute together may stand here. */
    int is_team;
    /* Executions of this place by teams or by tasks, and members each time. */
    long times;
    int size;
    int depth, nesting, active, is_bounded, is_final, is_leaf;
    struct node *region, *reduction;
    long reduction_times;
};

static struct node *make(struct program *p, enum kind kind, const struct place *at)
{
    if (p->nodes == MAX_NODES) abort();
    struct node *n = allocate(p, sizeof *n);
    n->kind = kind;
    n->id = p->nodes;
    p->node[p->nodes++] = n;
    n->is_bounded = at->is_bounded;
    n->expected = at->times * at->size;
    n->variant = below(p, 64);
    n->schedule = below(p, 6);
    n->chunk = below(p, 4) ? 1 + below(p, 5) : 0;
    n->nowait = below(p, 3) == 0;
    n->lower = below(p, 21) - 10;
    n->step = below(p, 4) ? 1 : below(p, 2) ? 3 : -2;
    n->value = 1 + below(p, 9);
    n->share = at->region->shares++;
    n->region = at->region->id;
    p->work -= (int)n->expected + 1;
    return n;
}

static struct node *grow(struct program *p, const struct place *at);

static void add(struct program *p, struct node *n, const struct place *at)
{
    struct place deeper = *at;
    deeper.nesting++;
    n->kid[n->kids++] = grow(p, &deeper);
}

/* What one task executes, `times` times in all. */
static struct place alone(const struct place *at, long times)
{
    struct place inside = *at;
    inside.is_team = 0;
    inside.times = times;
    inside.size = 1;
    return inside;
}

static void iterate(struct program *p, struct node *n, int iterations, long times)
{
    n->iterations = iterations;
    n->hits = allocate(p, sizeof *n->hits * (size_t)(iterations + 1));
    n->expected_hits = times;
}

/* At most `most` iterations of what is executed `times` times, as far as there is room for them. */
static int some(struct program *p, long times, int most)
{
    long room = p->work / (times + 1);
    return below(p, (int)(room < 1 ? 1 : room < most ? room : most) + 1);
}

static int threads_of(int wanted, int active) { return wanted <= 1 || active >= max_active ? 1 : wanted; }

static struct node *grow(struct program *p, const struct place *at)
{
    long each = at->times * at->size;
    int room = p->nodes < MAX_NODES / 4 && at->nesting < NESTING && each && each * 4 < p->work && !at->is_leaf;
    if (!room) return make(p, LEAF, at);
    static const enum kind in_team[] = {
        SEQ, SEQ, SEQ, PARALLEL, PARALLEL, PARALLEL_FOR, PARALLEL_SECTIONS, PARALLEL_TASKS, FOR, FOR, FOR, FOR_ORDERED, DOACROSS,
        DOACROSS2, COLLAPSE, FOR_REDUCTION, SECTIONS, SECTIONS, SINGLE, SINGLE, COPYPRIVATE, MASKED, SCOPE, BARRIER, BARRIER, SPIN,
        CRITICAL, ATOMIC, LOCK, NEST_LOCK, TASK, TASK, UNTIED, DETACH, DEPEND, TASKWAIT, TASKYIELD, TASKGROUP, TASKGROUP_REDUCTION,
        TASKLOOP, CANCEL_PARALLEL, CANCEL_FOR, CANCEL_SECTIONS, CANCEL_TASKGROUP
    };
    static const enum kind in_task[] = {
        SEQ, SEQ, SEQ, PARALLEL, PARALLEL, PARALLEL, PARALLEL_FOR, PARALLEL_SECTIONS, PARALLEL_TASKS, CRITICAL, ATOMIC, LOCK, NEST_LOCK,
        TASK, TASK, TASK, UNTIED, DETACH, DEPEND, DEPEND, TASKWAIT, TASKYIELD, TASKGROUP, TASKGROUP_REDUCTION, TASK_IN_REDUCTION,
        TASK_IN_REDUCTION, TASKLOOP, TASKLOOP, CANCEL_PARALLEL, CANCEL_TASKGROUP, LEAF
    };
    enum kind kind = at->is_team ? in_team[below(p, sizeof in_team / sizeof *in_team)]
                                 : in_task[below(p, sizeof in_task / sizeof *in_task)];
    if (omitted[kind]) kind = LEAF;
    if (kind == TASK_IN_REDUCTION && !at->reduction) kind = TASKGROUP_REDUCTION;
    /* GCC's runtime (12) makes a team for these outside of all regions, and is not right from then on. */
    if (at->depth == 0) {
        if (kind == TASKGROUP_REDUCTION || kind == TASKLOOP) kind = TASKGROUP;
        if (kind == FOR_REDUCTION) kind = FOR;
        if (kind == DETACH) kind = TASK;
    }
    /* A member that waits for others by spinning keeps them from their own tasks: only where a task
     * cannot get under it. */
    if (kind == SPIN && (!may_spin || at->size > 4)) kind = BARRIER;
    if (blocks && below(p, 8) == 0) kind = MUTEX + below(p, at->is_team ? 4 : 2);
    if (at->is_final && kind == DETACH) kind = TASK;
    int is_region = (kind >= PARALLEL && kind <= PARALLEL_TASKS) || kind == CANCEL_PARALLEL;
    struct node *n;
    if (is_region) {
        int wanted = below(p, 12) == 0 ? MAX_THREADS : 1 + below(p, below(p, 2) ? 4 : 8);
        int variant = below(p, 64);
        if (at->depth == 0 && below(p, 2)) wanted = omp_get_max_threads() < MAX_THREADS ? omp_get_max_threads() : MAX_THREADS;
        if (kind == PARALLEL && variant % 16 == 15) wanted = 1;
        int size = threads_of(wanted, at->active);
        if (at->depth >= 4 || each * wanted > p->members) return make(p, LEAF, at);
        p->members -= (int)each * wanted;
        n = make(p, kind, at);
        n->variant = variant;
        n->threads = wanted;
        n->size = size;
    } else {
        n = make(p, kind, at);
    }
    struct place inside = *at;
    switch (kind) {
    case SEQ:
        for (int k = 2 + below(p, MAX_KIDS - 1); k > 0; k--) add(p, n, at);
        break;
    case PARALLEL:
    case PARALLEL_FOR:
    case PARALLEL_SECTIONS:
    case PARALLEL_TASKS:
    case CANCEL_PARALLEL:
        inside = (struct place){ .is_team = 1, .times = each, .size = n->size, .depth = at->depth + 1, .nesting = at->nesting,
                                 .active = at->active + (n->size > 1), .is_bounded = at->is_bounded, .region = n };
        if (kind == PARALLEL) {
            struct node *body = make(p, SEQ, &inside);
            for (int k = 1 + below(p, MAX_KIDS); k > 0; k--) add(p, body, &inside);
            n->kid[n->kids++] = body;
        } else if (kind == PARALLEL_FOR) {
            iterate(p, n, some(p, each, 24), each);
            inside = alone(&inside, each * n->iterations);
            add(p, n, &inside);
        } else if (kind == PARALLEL_SECTIONS) {
            inside = alone(&inside, each);
            add(p, n, &inside);
            add(p, n, &inside);
            add(p, n, &inside);
        } else if (kind == PARALLEL_TASKS) {
            n->iterations = 1 + below(p, 5);
            inside = alone(&inside, each * n->size * n->iterations);
            add(p, n, &inside);
        } else {
            n->iterations = 2 + below(p, 6);
            inside = alone(&inside, each * n->size * n->iterations);
            inside.is_bounded |= cancels;
            add(p, n, &inside);
            add(p, n, &inside);
        }
        break;
    case FOR:
    case FOR_REDUCTION:
        iterate(p, n, below(p, 8) ? some(p, at->times, 24) : 0, at->times);
        inside = alone(at, at->times * n->iterations);
        add(p, n, &inside);
        break;
    case CANCEL_FOR:
        iterate(p, n, 1 + some(p, at->times, 24), at->times);
        inside = alone(at, at->times * n->iterations);
        inside.is_bounded |= cancels;
        add(p, n, &inside);
        break;
    case FOR_ORDERED:
        iterate(p, n, some(p, at->times, 20), at->times);
        inside = alone(at, at->times * n->iterations);
        add(p, n, &inside);
        add(p, n, &inside);
        break;
    case DOACROSS:
        iterate(p, n, some(p, at->times, 24), at->times);
        n->inner = 1 + below(p, 3);
        inside = alone(at, at->times * n->iterations);
        add(p, n, &inside);
        break;
    case DOACROSS2:
    case COLLAPSE:
        n->inner = 1 + below(p, 5);
        iterate(p, n, (1 + some(p, at->times * n->inner, 6)) * n->inner, at->times);
        inside = alone(at, at->times * n->iterations);
        add(p, n, &inside);
        break;
    case SECTIONS:
    case CANCEL_SECTIONS:
        inside = alone(at, at->times);
        if (kind == CANCEL_SECTIONS) inside.is_bounded |= cancels;
        for (int k = 0; k < 4; k++) add(p, n, &inside);
        break;
    case SINGLE:
    case COPYPRIVATE:
        inside = alone(at, at->times);
        add(p, n, &inside);
        break;
    case MASKED:
        n->value = below(p, at->size + 1);
        inside = alone(at, n->value < at->size ? at->times : 0);
        add(p, n, &inside);
        break;
    case SCOPE:
        inside = *at;
        inside.is_leaf = 1;
        add(p, n, &inside);
        break;
    case TASK:
        inside = alone(at, each);
        inside.is_final |= n->variant % 8 == 2;
        add(p, n, &inside);
        break;
    case UNTIED:
    case DETACH:
    case TASKGROUP:
        inside = alone(at, each);
        add(p, n, &inside);
        if (kind == TASKGROUP) add(p, n, &inside);
        break;
    case TASKGROUP_REDUCTION:
        inside = alone(at, each);
        inside.reduction = n;
        inside.reduction_times = each;
        for (int k = 0; k < 4; k++) add(p, n, &inside);
        break;
    case TASK_IN_REDUCTION:
        at->reduction->is_reduction_bounded |= at->is_bounded;
        if (each) at->reduction->expected_reduction += n->value * (each / at->reduction_times);
        inside = alone(at, each);
        add(p, n, &inside);
        break;
    case DEPEND:
        n->iterations = 2 + below(p, DEPENDENT - 1);
        for (int t = 0; t < n->iterations; t++) {
            for (int k = 0; k < 5; k++) n->access[t][k] = (signed char)-1;
            for (int k = 1 + below(p, 2); k > 0; k--)
                n->access[t][below(p, 5)] = (signed char)below(p, ADDRESSES);
        }
        inside = alone(at, each * n->iterations);
        add(p, n, &inside);
        break;
    case TASKLOOP:
        iterate(p, n, some(p, each, 16), each);
        inside = alone(at, each * n->iterations);
        inside.is_final |= n->variant % 8 == 6;
        add(p, n, &inside);
        break;
    case CANCEL_TASKGROUP:
        n->iterations = 1 + some(p, each, 10);
        inside = alone(at, each * n->iterations);
        inside.is_bounded |= cancels;
        add(p, n, &inside);
        break;
    default:
        break;
    }
    return n;
}

/* ---- Running it ---- */

static void run(const struct node *n, struct env *e);

static void wait_a_little(const struct env *e, const struct node *n)
{
    uint64_t how = mixed(e->program->seed ^ (uint64_t)n->id << 32 ^ (uint64_t)omp_get_thread_num() ^ (uint64_t)atomic_load(&n->count) << 40);
    if (how % 64 == 0) sched_yield();
    else if (how % 512 == 1) usleep(20);
    else if (how % 8 == 2)
        for (volatile int k = 0; k < 200; k++) { }
}

/* What holds wherever a task runs. */
static void check_place(const struct node *n, const struct env *e)
{
    const struct team *team = e->team;
    int thread = omp_get_thread_num();
    REQUIRE(omp_get_num_threads() == team->size, "%d threads instead of %d", omp_get_num_threads(), team->size);
    REQUIRE(thread >= 0 && thread < team->size, "thread %d of %d", thread, team->size);
    REQUIRE(omp_get_level() == team->level, "level %d instead of %d", omp_get_level(), team->level);
    REQUIRE(omp_get_active_level() == team->active, "active level %d instead of %d", omp_get_active_level(), team->active);
    for (const struct team *inner = team; inner->outer; inner = inner->outer) {
        int is = omp_get_ancestor_thread_num(inner->outer->level);
        if (inner->outer_thread >= 0)
            REQUIRE(is == inner->outer_thread, "ancestor of level %d is %d instead of %d", inner->outer->level, is, inner->outer_thread);
        REQUIRE(omp_get_team_size(inner->level) == inner->size, "team of level %d has %d threads instead of %d", inner->level,
                omp_get_team_size(inner->level), inner->size);
    }
    if (!e->is_untied) {
        long value = own_value - (breaks("threadprivate") && thread == 1);
        REQUIRE(value == team->base + thread, "the threadprivate variable of thread %d is %ld instead of %ld", thread, value,
                team->base + thread);
    }
    REQUIRE(!e->is_final || omp_in_final(), "not in a final task");
}

/* Work of which all interpreted programs consist in the end. */
static void leaf(const struct node *n, struct env *e)
{
    wait_a_little(e, n);
    check_place(n, e);
}

/* The environment of a task that is about to be made. */
static struct env *new_task(struct env *e)
{
    struct env *task = allocate(e->program, sizeof *task);
    *task = *e;
    task->children = allocate(e->program, sizeof *task->children);
    if (!e->is_loose) {
        atomic_fetch_add(&e->children->made, 1);
        if (e->group) atomic_fetch_add(&e->group->made, 1);
        atomic_fetch_add(&e->team->phases[e->phase % PHASES].made, 1);
    }
    return task;
}

/* The end of a task that `e` made. */
static void task_done(const struct env *e)
{
    if (e->is_loose) return;
    atomic_fetch_add(&e->children->done, 1);
    if (e->group) atomic_fetch_add(&e->group->done, 1);
    atomic_fetch_add(&e->team->phases[e->phase % PHASES].done, 1);
}

static int is_done(struct tally *tally) { return atomic_load(&tally->made) == atomic_load(&tally->done); }

/* What a member finds after a barrier. */
static void passed_barrier(const struct node *n, struct env *e)
{
    struct tally *tasks = &e->team->phases[e->phase % PHASES];
    if (!e->is_loose)
        REQUIRE(is_done(tasks), "%d of %d tasks are done behind the barrier", atomic_load(&tasks->done), atomic_load(&tasks->made));
    e->phase++;
}

static struct team *new_team(const struct node *n, struct env *e)
{
    struct team *team = allocate(e->program, sizeof *team);
    team->node = n;
    team->outer = e->team;
    team->outer_thread = e->is_untied ? -1 : omp_get_thread_num();
    team->size = n->size;
    team->level = e->team->level + 1;
    team->active = e->team->active + (n->size > 1);
    team->base = atomic_fetch_add(&bases, 2 * MAX_THREADS);
    team->shares = allocate(e->program, sizeof *team->shares * (size_t)(n->shares + 1));
    for (int k = 0; k < e->program->nodes; k++) {
        const struct node *kid = e->program->node[k];
        /* Constructs of this region that keep a flag for each iteration. */
        if (kid->region == n->id && (kid->kind == DOACROSS || kid->kind == DOACROSS2))
            team->shares[kid->share].flags = allocate(e->program, sizeof(atomic_int) * (size_t)(kid->iterations + 1));
    }
    return team;
}

/* The begin of a member; its environment is `me`. `copied` says that the variable was copied in from the encountering thread. */
static void enter(const struct node *n, struct env *outer, struct team *team, struct env *me, int is_copied)
{
    *me = (struct env){ .program = outer->program, .team = team, .is_loose = outer->is_loose };
    struct env *e = me;
    int thread = omp_get_thread_num();
    me->children = allocate(me->program, sizeof *me->children);
    REQUIRE(!is_copied || own_value == team->base + MAX_THREADS, "copyin gave thread %d the value %ld instead of %ld", thread, own_value,
            team->base + MAX_THREADS);
    own_value = team->base + thread;
    unsigned bit = 1u << (unsigned)thread;
    REQUIRE(!(atomic_fetch_or(&team->begun, bit) & bit), "thread %d begins twice", thread);
    check_place(n, me);
}

static void check_team(const struct node *n, struct env *e, struct team *team)
{
    unsigned all = (1u << (unsigned)team->size) - 1;
    REQUIRE(atomic_load(&team->begun) == all, "members %x of %x have begun", atomic_load(&team->begun), all);
    for (int k = 0; k < PHASES && !e->is_loose; k++)
        REQUIRE(is_done(&team->phases[k]), "%d of %d tasks are done behind the region", atomic_load(&team->phases[k].done),
                atomic_load(&team->phases[k].made));
}

static void member(const struct node *n, struct env *outer, struct team *team, int is_copied, long *sum)
{
    struct env me;
    enter(n, outer, team, &me, is_copied);
    run(n->kid[0], &me);
    check_place(n, &me);
    *sum += n->value + omp_get_thread_num();
}

static void parallel(const struct node *n, struct env *e)
{
    long outside = own_value, sum = 0, most = -1;
    struct team *team = new_team(n, e);
    int size = n->size, threads = n->threads;
    switch (n->variant % 16) {
    case 0: case 1: case 2: case 3: case 4: case 5: {
        long parts[MAX_THREADS] = { 0 };
#pragma omp parallel num_threads(threads)
        member(n, e, team, 0, &parts[omp_get_thread_num()]);
        for (int k = 0; k < size; k++) sum += parts[k];
        break;
    }
    case 6: case 7: case 8:
        own_value = team->base + MAX_THREADS;
#pragma omp parallel num_threads(threads) copyin(own_value) reduction(+ : sum)
        member(n, e, team, 1, &sum);
        break;
    case 9: case 10: case 11:
#pragma omp parallel num_threads(threads) reduction(+ : sum) reduction(max : most) proc_bind(close)
        {
            member(n, e, team, 0, &sum);
            most = omp_get_thread_num();
        }
        REQUIRE(most == size - 1, "reduction(max) gives %ld of %d threads", most, size);
        break;
    case 12: case 13: case 14: {
        int before = omp_get_max_threads();
        omp_set_num_threads(threads);
#pragma omp parallel reduction(+ : sum)
        member(n, e, team, 0, &sum);
        REQUIRE(omp_get_max_threads() == threads, "nthreads-var is %d instead of %d", omp_get_max_threads(), threads);
        omp_set_num_threads(before);
        break;
    }
    default:
#pragma omp parallel num_threads(8) if (threads > 1) reduction(+ : sum)
        member(n, e, team, 0, &sum);
    }
    own_value = outside;
    long expected = (long)size * n->value + (long)size * (size - 1) / 2;
    REQUIRE(sum == expected, "its reduction gives %ld instead of %ld", sum, expected);
    check_team(n, e, team);
}

static void iteration(const struct node *n, struct env *e, long k)
{
    if (k < 0 || k >= n->iterations) {
        differs(e->program, n, "iteration %ld of %d", k, n->iterations);
        return;
    }
    if (breaks("count") && n->id % 8 == 3 && k == 2) return;
    atomic_fetch_add(&n->hits[k], 1);
    run(n->kid[0], e);
}

static void parallel_for(const struct node *n, struct env *e)
{
    long outside = own_value, sum = 0, last = -1;
    struct team *team = new_team(n, e);
    int threads = n->threads, chunk = n->chunk ? n->chunk : 1;
    long end = n->lower + n->iterations;
    /* A combined construct has no place before its iterations in which members could set their threadprivate variable, so that
     * it is not looked at, as in untied tasks. */
#define HOME                                              \
    struct env me = { .program = e->program, .team = team, .is_loose = e->is_loose, .is_untied = 1 }; \
    me.children = allocate(me.program, sizeof *me.children); \
    iteration(n, &me, i - n->lower);                      \
    sum += i;                                             \
    last = i;
#define COMBINED(...)                                                                              \
    {                                                                                              \
        _Pragma(TEXT(omp parallel for num_threads(threads) reduction(+ : sum) lastprivate(last) __VA_ARGS__)) \
        for (long i = n->lower; i < end; i++) { HOME }                                             \
    }
#define TEXT(...) #__VA_ARGS__
    switch (n->schedule) {
    case 0: COMBINED(schedule(static)) break;
    case 1: COMBINED(schedule(static, chunk)) break;
    case 2: COMBINED(schedule(dynamic, chunk)) break;
    case 3: COMBINED(schedule(guided, chunk)) break;
    case 4: COMBINED(schedule(monotonic : dynamic)) break;
    default: COMBINED(schedule(runtime))
    }
#undef HOME
    own_value = outside;
    long expected = (n->lower + end - 1) * n->iterations / 2;
    REQUIRE(sum == expected, "its reduction gives %ld instead of %ld", sum, expected);
    if (n->iterations) REQUIRE(last == end - 1, "lastprivate gives %ld instead of %ld", last, end - 1);
}

static void parallel_sections(const struct node *n, struct env *e)
{
    long outside = own_value, sum = 0;
    struct team *team = new_team(n, e);
    int threads = n->threads;
#define SECTION(k)                                                                       \
    {                                                                                    \
        struct env me = { .program = e->program, .team = team, .is_loose = e->is_loose }; \
        me.children = allocate(me.program, sizeof *me.children);                         \
        me.is_untied = 1;                                                                \
        run(n->kid[k], &me);                                                             \
        sum += 1 << k;                                                                   \
    }
    if (n->size > 3) {
        /* A runtime may give it fewer members than it asks for, as there are three sections. */
#pragma omp parallel num_threads(threads) reduction(+ : sum)
#pragma omp sections
        {
#pragma omp section
            SECTION(0)
#pragma omp section
            SECTION(1)
#pragma omp section
            SECTION(2)
        }
    } else {
#pragma omp parallel sections num_threads(threads) reduction(+ : sum)
        {
#pragma omp section
            SECTION(0)
#pragma omp section
            SECTION(1)
#pragma omp section
            SECTION(2)
        }
    }
#undef SECTION
    own_value = outside;
    REQUIRE(sum == 7, "sections %ld of 7 were executed once", sum);
}

static void parallel_tasks(const struct node *n, struct env *e)
{
    long outside = own_value, sum = 100, scoped = 0;
    struct team *team = new_team(n, e);
    int threads = n->threads;
#pragma omp parallel num_threads(threads) reduction(task, + : sum)
    {
        struct env me;
        enter(n, e, team, &me, 0);
        for (int k = 0; k < n->iterations; k++) {
            struct env *task = new_task(&me);
#pragma omp task in_reduction(+ : sum) firstprivate(task, k)
            {
                sum += k + 1;
                run(n->kid[0], task);
                /* `me` is a variable of the member, which waits for its tasks at the region's end. */
                task_done(&me);
            }
        }
        sum += 1000;
#pragma omp barrier
#pragma omp scope reduction(task, + : scoped)
        {
#pragma omp task in_reduction(+ : scoped)
            scoped += 2;
            scoped += 1;
        }
    }
    own_value = outside;
    long expected = 100 + (long)n->size * (1000 + n->iterations * (n->iterations + 1) / 2);
    REQUIRE(sum == expected, "its task reduction gives %ld instead of %ld", sum, expected);
    REQUIRE(scoped == 3 * n->size, "the reduction of its scope gives %ld instead of %d", scoped, 3 * n->size);
    check_team(n, e, team);
}

/* A loop over `lower`, `lower + step`, ..., with the clauses of each schedule, in each of the forms that a compiler passes on. */
#define UP for (long i = n->lower; i < n->lower + step * n->iterations; i += step)
#define DOWN for (long i = n->lower; i > n->lower + step * n->iterations; i += step)
#define WIDE for (unsigned long long i = 1ull << 63; i < (1ull << 63) + (unsigned long long)n->iterations; i++)
#define AT ((i - n->lower) / step)
#define LOOP(...)                                                                                             \
    if (n->step < 0 && n->nowait) {                                                                           \
        _Pragma(TEXT(omp for __VA_ARGS__ nowait)) DOWN iteration(n, e, AT);                                    \
    } else if (n->step < 0) {                                                                                 \
        _Pragma(TEXT(omp for __VA_ARGS__)) DOWN iteration(n, e, AT);                                           \
    } else if (n->step == 3 && n->nowait) {                                                                   \
        _Pragma(TEXT(omp for __VA_ARGS__ nowait)) WIDE iteration(n, e, (long)(i - (1ull << 63)));              \
    } else if (n->step == 3) {                                                                                \
        _Pragma(TEXT(omp for __VA_ARGS__)) WIDE iteration(n, e, (long)(i - (1ull << 63)));                     \
    } else if (n->nowait) {                                                                                   \
        _Pragma(TEXT(omp for __VA_ARGS__ nowait)) UP iteration(n, e, AT);                                      \
    } else {                                                                                                  \
        _Pragma(TEXT(omp for __VA_ARGS__)) UP iteration(n, e, AT);                                             \
    }

static void set_schedule(const struct node *n)
{
    static const omp_sched_t kinds[] = { omp_sched_static, omp_sched_dynamic, omp_sched_guided, omp_sched_auto };
    omp_set_schedule(kinds[n->variant % 4], n->chunk);
}

static void loop(const struct node *n, struct env *e)
{
    int chunk = n->chunk;
    long step = n->step;
    switch (n->schedule) {
    case 0: LOOP(schedule(static)) break;
    case 1: LOOP(schedule(static, chunk + 1)) break;
    case 2: LOOP(schedule(dynamic, chunk + 1)) break;
    case 3: LOOP(schedule(guided, chunk + 1)) break;
    case 4: LOOP(schedule(monotonic : dynamic, chunk + 1)) break;
    default:
        set_schedule(n);
        LOOP(schedule(runtime))
    }
    if (!n->nowait) passed_barrier(n, e);
}

static void ordered_iteration(const struct node *n, struct env *e, long k)
{
    struct share *share = &e->team->shares[n->share];
    iteration(n, e, k);
    if (breaks("ordered") && k % 4 == 1) return;
#pragma omp ordered
    {
        int next = atomic_load(&share->next);
        REQUIRE(next == k, "the ordered part of iteration %ld is executed when %d is next", k, next);
        run(n->kid[1], e);
        atomic_store(&share->next, (int)k + 1);
    }
}

static void loop_ordered(const struct node *n, struct env *e)
{
    int chunk = n->chunk + 1;
    long step = n->step < 0 ? -n->step : n->step;
    switch (n->schedule) {
#define ORDERED(...)                                                       \
    if (n->nowait) {                                                       \
        _Pragma(TEXT(omp for ordered __VA_ARGS__ nowait)) UP ordered_iteration(n, e, AT); \
    } else {                                                               \
        _Pragma(TEXT(omp for ordered __VA_ARGS__)) UP ordered_iteration(n, e, AT); \
    }
    case 0: ORDERED(schedule(static)) break;
    case 1: ORDERED(schedule(static, chunk)) break;
    case 2: ORDERED(schedule(dynamic, chunk)) break;
    case 3: ORDERED(schedule(guided, chunk)) break;
    case 4:
        if (n->nowait) {
#pragma omp for ordered schedule(dynamic) nowait
            WIDE ordered_iteration(n, e, (long)(i - (1ull << 63)));
        } else {
#pragma omp for ordered schedule(static, chunk)
            WIDE ordered_iteration(n, e, (long)(i - (1ull << 63)));
        }
        break;
    default:
        set_schedule(n);
        ORDERED(schedule(runtime))
    }
    if (!n->nowait) passed_barrier(n, e);
}

static void check_source(const struct node *n, struct env *e, int k, int from)
{
    REQUIRE(from < 0 || atomic_load(&e->team->shares[n->share].flags[from]), "iteration %d goes on before %d has come so far", k, from);
}

static void doacross(const struct node *n, struct env *e)
{
    atomic_int *flags = e->team->shares[n->share].flags;
    int chunk = n->chunk + 1, count = n->iterations, back = n->inner;
#define ACROSS(...)                                       \
    _Pragma(TEXT(omp for ordered(1) __VA_ARGS__))         \
    for (int i = 0; i < count; i++) {                     \
        if (n->variant & 1) wait_a_little(e, n);          \
        _Pragma("omp ordered depend(sink : i - 1)")       \
        check_source(n, e, i, i - 1);                     \
        if (back == 1) iteration(n, e, i);                \
        atomic_store(&flags[i], 1);                       \
        _Pragma("omp ordered depend(source)")             \
        if (back != 1) iteration(n, e, i);                \
    }
    switch (n->schedule % 4) {
    case 0: ACROSS(schedule(static)) break;
    case 1: ACROSS(schedule(static, chunk)) break;
    case 2: ACROSS(schedule(dynamic, chunk)) break;
    default: ACROSS(schedule(guided, chunk))
    }
    passed_barrier(n, e);
}

static void doacross2(const struct node *n, struct env *e)
{
    atomic_int *flags = e->team->shares[n->share].flags;
    int chunk = n->chunk + 1, inner = n->inner, outer = n->iterations / inner;
#define ACROSS2(...)                                                        \
    _Pragma(TEXT(omp for collapse(2) ordered(2) __VA_ARGS__))               \
    for (int i = 0; i < outer; i++)                                         \
        for (int j = 0; j < inner; j++) {                                   \
            _Pragma("omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)") \
            check_source(n, e, i * inner + j, (i - 1) * inner + j);         \
            check_source(n, e, i * inner + j, j ? i * inner + j - 1 : -1);  \
            if (n->variant & 1) iteration(n, e, i * inner + j);             \
            atomic_store(&flags[i * inner + j], 1);                         \
            _Pragma("omp ordered depend(source)")                           \
            if (!(n->variant & 1)) iteration(n, e, i * inner + j);          \
        }
    switch (n->schedule % 3) {
    case 0: ACROSS2(schedule(static)) break;
    case 1: ACROSS2(schedule(static, chunk)) break;
    default: ACROSS2(schedule(dynamic, chunk))
    }
    passed_barrier(n, e);
}

static void collapse(const struct node *n, struct env *e)
{
    int chunk = n->chunk + 1, inner = n->inner, outer = n->iterations / inner;
#define COLLAPSED(...)                                       \
    _Pragma(TEXT(omp for collapse(2) __VA_ARGS__))           \
    for (int i = 0; i < outer; i++)                          \
        for (int j = inner; j > 0; j--) iteration(n, e, i * inner + j - 1);
    switch (n->schedule) {
    case 0: COLLAPSED(schedule(static)) break;
    case 1: COLLAPSED(schedule(static, chunk)) break;
    case 2: COLLAPSED(schedule(dynamic, chunk)) break;
    case 3: COLLAPSED(schedule(guided, chunk)) break;
    case 4: COLLAPSED(schedule(dynamic)) break;
    default:
        set_schedule(n);
        COLLAPSED(schedule(runtime))
    }
    passed_barrier(n, e);
}

static void loop_reduction(const struct node *n, struct env *e)
{
    long *sum = &e->team->shares[n->share].sum;
    int chunk = n->chunk + 1, count = n->iterations;
    switch (n->schedule % 3) {
    case 0:
#pragma omp for reduction(+ : sum[ : 1]) schedule(static)
        for (int i = 0; i < count; i++) {
            sum[0] += i + 1;
            iteration(n, e, i);
        }
        break;
    case 1:
#pragma omp for reduction(+ : sum[ : 1]) schedule(dynamic, chunk)
        for (int i = 0; i < count; i++) {
            sum[0] += i + 1;
            iteration(n, e, i);
        }
        break;
    default:
#pragma omp for reduction(task, + : sum[ : 1]) schedule(guided, chunk)
        for (int i = 0; i < count; i++) {
            struct env *task = new_task(e);
#pragma omp task in_reduction(+ : sum[ : 1]) firstprivate(i, task)
            {
                sum[0] += i + 1;
                atomic_fetch_add(&n->hits[i], 1);
                run(n->kid[0], task);
                task_done(e);
            }
#pragma omp taskwait
        }
    }
    passed_barrier(n, e);
    long expected = (long)count * (count + 1) / 2;
    REQUIRE(sum[0] == expected, "its reduction gives %ld instead of %ld", sum[0], expected);
}

static void sections(const struct node *n, struct env *e)
{
    if (n->nowait) {
#pragma omp sections nowait
        {
#pragma omp section
            run(n->kid[0], e);
#pragma omp section
            run(n->kid[1], e);
#pragma omp section
            run(n->kid[2], e);
#pragma omp section
            run(n->kid[3], e);
        }
        return;
    }
    long *sum = &e->team->shares[n->share].sum;
#pragma omp sections reduction(+ : sum[ : 1])
    {
#pragma omp section
        run(n->kid[0], e), sum[0] += 1;
#pragma omp section
        run(n->kid[1], e), sum[0] += 2;
#pragma omp section
        run(n->kid[2], e), sum[0] += 4;
#pragma omp section
        run(n->kid[3], e), sum[0] += 8;
    }
    passed_barrier(n, e);
    REQUIRE(sum[0] == 15, "sections %ld of 15 were executed once", sum[0]);
}

static void single(const struct node *n, struct env *e)
{
    if (n->nowait) {
#pragma omp single nowait
        run(n->kid[0], e);
        return;
    }
#pragma omp single
    run(n->kid[0], e);
    passed_barrier(n, e);
}

static void copyprivate(const struct node *n, struct env *e)
{
    long passed = -1, expected = e->team->base ^ n->id;
#pragma omp single copyprivate(passed)
    {
        run(n->kid[0], e);
        passed = expected;
    }
    REQUIRE(passed == expected, "copyprivate gives %ld instead of %ld", passed, expected);
    passed_barrier(n, e);
}

static void scope(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
#pragma omp scope
    {
        run(n->kid[0], e);
        atomic_fetch_add(&share->arrived, 1);
    }
    passed_barrier(n, e);
    REQUIRE(atomic_load(&share->arrived) == e->team->size, "%d of %d members were in it", atomic_load(&share->arrived), e->team->size);
}

static void barrier(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    wait_a_little(e, n);
    atomic_fetch_add(&share->arrived, 1);
    if (!breaks("barrier") || n->id % 4) {
#pragma omp barrier
    }
    int arrived = atomic_load(&share->arrived);
    REQUIRE(arrived == e->team->size, "%d of %d members have come to the barrier that is passed", arrived, e->team->size);
    passed_barrier(n, e);
}

static void spin(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    atomic_fetch_add(&share->arrived, 1);
    while (atomic_load_explicit(&share->arrived, memory_order_relaxed) < e->team->size) {
        if (n->variant & 1) sched_yield();
    }
}

/* Waits in the kernel, which knows nothing of OpenMP. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, meeting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_here = PTHREAD_COND_INITIALIZER;

static void locked(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->mutexes, 1);
    pthread_mutex_lock(&mutex);
    long count = p->mutex_count;
    wait_a_little(e, n);
    if (n->variant % 8 == 0) sched_yield();
    p->mutex_count = count + 1;
    pthread_mutex_unlock(&mutex);
}

static void meet(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    pthread_mutex_lock(&meeting);
    if (atomic_fetch_add(&share->arrived, 1) + 1 == e->team->size) pthread_cond_broadcast(&all_here);
    while (atomic_load(&share->arrived) < e->team->size) pthread_cond_wait(&all_here, &meeting);
    pthread_mutex_unlock(&meeting);
}

/* The first member that comes makes a pipe, the last one writes a byte for each, and the last one that goes closes the pipe. */
static void pass(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    char all[MAX_THREADS] = {0}, one;
    int size = e->team->size;
    pthread_mutex_lock(&meeting);
    int arrived = atomic_fetch_add(&share->arrived, 1) + 1;
    if (arrived == 1) REQUIRE(pipe(share->ends) == 0, "there is no pipe: %s", strerror(errno));
    pthread_mutex_unlock(&meeting);
    if (arrived == size) REQUIRE(write(share->ends[1], all, (size_t)size) == size, "the pipe takes no %d bytes: %s", size, strerror(errno));
    REQUIRE(read(share->ends[0], &one, 1) == 1, "the pipe gives no byte: %s", strerror(errno));
    REQUIRE(atomic_load(&share->arrived) == size, "%d of %d members have come where a byte is there", atomic_load(&share->arrived), size);
    if (atomic_fetch_add(&share->next, 1) + 1 == size) close(share->ends[0]), close(share->ends[1]);
}

static void critical(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    int which = n->variant & 1;
    atomic_fetch_add(&p->criticals[which], 1);
    if (breaks("critical")) {
        long count = p->critical_count[which];
        sched_yield();
        p->critical_count[which] = count + 1;
        return;
    }
    if (which) {
#pragma omp critical(named) hint(omp_sync_hint_contended)
        {
            long count = p->critical_count[1];
            wait_a_little(e, n);
            p->critical_count[1] = count + 1;
        }
    } else {
#pragma omp critical
        {
            REQUIRE(atomic_fetch_add(&p->critical_inside, 1) == 0, "two are in the critical section");
            long count = p->critical_count[0];
            wait_a_little(e, n);
            p->critical_count[0] = count + 1;
            atomic_fetch_sub(&p->critical_inside, 1);
        }
    }
}

static void atomically(struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->atomics, 1);
#pragma omp atomic
    p->atomic_sum += 3;
#pragma omp atomic
    p->atomic_double += 1;
#pragma omp atomic
    p->atomic_byte ^= 1;
#pragma omp atomic
    p->atomic_long_double += 1;
}

static void lock(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->locks, 1);
    if (n->variant % 8 || !may_spin) omp_set_lock(&p->lock);
    else
        while (!omp_test_lock(&p->lock)) sched_yield();
    REQUIRE(atomic_fetch_add(&p->lock_inside, 1) == 0, "two have the lock");
    long count = p->lock_count;
    wait_a_little(e, n);
    p->lock_count = count + 1;
    atomic_fetch_sub(&p->lock_inside, 1);
    omp_unset_lock(&p->lock);
}

static void nest_lock(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->nests, 1);
    omp_set_nest_lock(&p->nest_lock);
    int depth = omp_test_nest_lock(&p->nest_lock);
    REQUIRE(depth == 2, "a member's nestable lock is set for the time %d instead of 2", depth);
    omp_set_nest_lock(&p->nest_lock);
    omp_unset_nest_lock(&p->nest_lock);
    REQUIRE(atomic_fetch_add(&p->nest_inside, 1) == 0, "two have the nestable lock");
    long count = p->nest_count;
    wait_a_little(e, n);
    p->nest_count = count + 1;
    atomic_fetch_sub(&p->nest_inside, 1);
    omp_unset_nest_lock(&p->nest_lock);
    omp_unset_nest_lock(&p->nest_lock);
}

static void body(const struct node *n, struct env *task, const struct env *maker)
{
    struct env *e = task;
    int thread = omp_get_thread_num();
    check_place(n, task);
    run(n->kid[0], task);
    check_place(n, task);
    REQUIRE(thread == omp_get_thread_num(), "a tied task went from thread %d to %d", thread, omp_get_thread_num());
    task_done(maker);
}

/* An environment that outlives the frame in which it lies, for tasks that read their creator's when
 * they end. */
static struct env *kept(const struct env *e)
{
    struct env *copy = allocate(e->program, sizeof *copy);
    *copy = *e;
    return copy;
}

static void task(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    int how = n->variant % 8;
    made->is_final |= how == 2;
    if (how == 4) {
        /* Arguments that are copied by code of the program. */
        int length = 1 + n->value;
        long values[length];
        for (int k = 0; k < length; k++) values[k] = n->id + k;
#pragma omp task firstprivate(values, n, made, maker, length)
        {
            struct env *e = made;
            for (int k = 0; k < length; k++) REQUIRE(values[k] == n->id + k, "firstprivate gives %ld instead of %d", values[k], n->id + k);
            body(n, made, maker);
        }
    } else if (how == 5) {
#pragma omp task mergeable
        body(n, made, maker);
    } else {
        atomic_int *mark = allocate(e->program, sizeof *mark);
#pragma omp task if (how != 1) final(how == 2) priority(how == 3 ? n->value : 0)
        {
            body(n, made, maker);
            atomic_store(mark, 1);
        }
        if ((how == 1 || e->is_final) && !e->is_loose) REQUIRE(atomic_load(mark), "an undeferred task is not complete");
    }
}

static void untied(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    made->is_untied = 1;
#pragma omp task untied
    {
        run(n->kid[0], made);
        task_done(maker);
    }
}

static void detach(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    omp_event_handle_t event;
    omp_event_handle_t *passed = allocate(e->program, sizeof *passed);
#pragma omp task detach(event) firstprivate(passed)
    {
        *passed = event;
        run(n->kid[0], made);
        /* What is cancelled may include the task that would fulfil the event. The maker's own environment may be gone by now. */
        if (n->variant & 1 || made->is_loose) {
            task_done(maker);
            omp_fulfill_event(event);
        } else {
#pragma omp task firstprivate(passed, maker, made)
            {
                task_done(maker);
                omp_fulfill_event(*passed);
            }
        }
    }
}

/* Whether dependent task `later` has to wait for `earlier`: they name an address, and not both for reading or both with
 * mutexinoutset. */
static int must_follow(const struct node *n, int earlier, int later)
{
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) {
            int both_in = (a == 2 || a == 3) && (b == 2 || b == 3), both_mutex = a == 4 && b == 4;
            if (n->access[earlier][a] >= 0 && n->access[earlier][a] == n->access[later][b] && !both_in && !both_mutex) return 1;
        }
    return 0;
}

struct chain {
    char at[ADDRESSES], unused[DEPENDENT + 1][5];
    atomic_int done[DEPENDENT], inside[ADDRESSES];
};

static void dependent(const struct node *n, struct env *e, struct chain *chain, int k)
{
    for (int earlier = 0; earlier < k; earlier++)
        if (!e->is_loose && must_follow(n, earlier, k)) REQUIRE(atomic_load(&chain->done[earlier]), "task %d begins before %d, on which it depends, is done", k, earlier);
    int mutex = n->access[k][4];
    if (mutex >= 0) REQUIRE(atomic_fetch_add(&chain->inside[mutex], 1) == 0, "two tasks with mutexinoutset are executed");
    run(n->kid[0], e);
    if (mutex >= 0) atomic_fetch_sub(&chain->inside[mutex], 1);
    atomic_store(&chain->done[k], 1);
}

static void depend(const struct node *n, struct env *e)
{
    struct chain *chain = allocate(e->program, sizeof *chain);
    struct env *maker = kept(e);
    for (int k = 0; k < n->iterations; k++) {
        struct env *made = new_task(e);
        /* What names no address of the chain names one that nothing else does. */
        char *at[5];
        for (int a = 0; a < 5; a++)
            at[a] = n->access[k][a] < 0 || breaks("depend") ? &chain->unused[k][a] : &chain->at[n->access[k][a]];
        if (n->variant % 4 == 3) {
            omp_depend_t object;
#pragma omp depobj(object) depend(inout : at[1][0])
#pragma omp task depend(depobj : object) depend(out : at[0][0]) depend(in : at[2][0], at[3][0]) depend(mutexinoutset : at[4][0])
            {
                dependent(n, made, chain, k);
                task_done(maker);
            }
#pragma omp depobj(object) destroy
        } else {
            int defers = (n->variant >> k & 3) != 3;
#pragma omp task if (defers) priority(k % 3) depend(out : at[0][0]) depend(inout : at[1][0]) depend(in : at[2][0], at[3][0]) \
    depend(mutexinoutset : at[4][0])
            {
                dependent(n, made, chain, k);
                task_done(maker);
            }
        }
    }
    switch (n->variant % 4) {
    case 0: {
#pragma omp taskwait
        break;
    }
    case 1: {
        if (breaks("depend")) break;
#pragma omp taskwait depend(in : chain->at[0])
        for (int k = 0; k < n->iterations; k++)
            for (int a = 0; a < 5; a++)
                if (a != 2 && a != 3 && n->access[k][a] == 0 && !e->is_loose)
                    REQUIRE(atomic_load(&chain->done[k]), "taskwait with a dependence has not waited for task %d", k);
        break;
    }
    default:
        break;
    }
}

static void taskwait(const struct node *n, struct env *e)
{
    if (!breaks("taskwait")) {
#pragma omp taskwait
    }
    if (!e->is_loose)
        REQUIRE(is_done(e->children), "%d of %d children are done behind the taskwait", atomic_load(&e->children->done), atomic_load(&e->children->made));
}

static void in_group(const struct node *n, struct env *e, struct tally *group, long *reduction)
{
    struct tally *outside = e->group;
    long *variable = e->reduction;
    e->group = group;
    if (reduction) e->reduction = reduction;
    for (int k = 0; k < n->kids; k++) run(n->kid[k], e);
    e->group = outside;
    e->reduction = variable;
}

static void taskgroup(const struct node *n, struct env *e)
{
    struct tally *group = allocate(e->program, sizeof *group);
    if (n->kind == TASKGROUP) {
#pragma omp taskgroup
        in_group(n, e, group, NULL);
    } else {
        long *sum = allocate(e->program, sizeof *sum);
        sum[0] = 5;
#pragma omp taskgroup task_reduction(+ : sum[ : 1])
        in_group(n, e, group, sum);
        long expected = 5 + n->expected_reduction;
        if (n->is_reduction_bounded) REQUIRE(sum[0] <= expected, "its task reduction gives %ld, which is more than %ld", sum[0], expected);
        else REQUIRE(sum[0] == expected, "its task reduction gives %ld instead of %ld", sum[0], expected);
    }
    /* Tasks made in it count for the taskgroup outside as well, which cannot end before. */
    if (!e->is_loose)
        REQUIRE(is_done(group), "%d of %d tasks are done behind the taskgroup", atomic_load(&group->done), atomic_load(&group->made));
}

static void task_in_reduction(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    long *sum = e->reduction;
#pragma omp task in_reduction(+ : sum[ : 1]) firstprivate(made, maker)
    {
        sum[0] += n->value;
        made->reduction = sum;
        run(n->kid[0], made);
        task_done(maker);
    }
}

/* Iterations of a taskloop have no place before them: the task that executes one has an environment of its own for each. */
static void taskloop_iteration(const struct node *n, const struct env *maker, struct tally *group, long k)
{
    struct env me = *maker, *e = &me;
    me.children = allocate(me.program, sizeof *me.children);
    me.group = group;
    me.is_final |= n->variant % 8 == 6;
    if (!me.is_loose) atomic_fetch_add(&group->made, 1);
    check_place(n, e);
    iteration(n, e, k);
    if (!me.is_loose) atomic_fetch_add(&group->done, 1);
}

static void taskloop(const struct node *n, struct env *e)
{
    struct env *maker = kept(e);
    struct tally *group = allocate(e->program, sizeof *group);
    int count = n->iterations, size = 1 + n->chunk;
    atomic_int *left = allocate(e->program, sizeof *left);
    long *sum = allocate(e->program, sizeof *sum);
    int has_sum = 0;
    atomic_store(left, count);
    switch (n->variant % 8) {
    case 0:
#pragma omp taskloop grainsize(size)
        for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1);
        break;
    case 1:
#pragma omp taskloop num_tasks(size)
        for (int i = count - 1; i >= 0; i--) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1);
        break;
    case 2:
#pragma omp taskloop grainsize(strict : size) priority(2)
        for (unsigned long long i = 0; i < (unsigned long long)count; i++)
            taskloop_iteration(n, maker, group, (long)i), atomic_fetch_sub(left, 1);
        break;
    case 3:
#pragma omp taskloop num_tasks(strict : size) mergeable
        for (long i = n->lower; i < n->lower + 3 * count; i += 3)
            taskloop_iteration(n, maker, group, (i - n->lower) / 3), atomic_fetch_sub(left, 1);
        break;
    case 4:
        has_sum = 1;
#pragma omp taskloop reduction(+ : sum[ : 1]) grainsize(size)
        for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1), sum[0] += i + 1;
        break;
    case 5:
        has_sum = 1;
#pragma omp taskgroup task_reduction(+ : sum[ : 1])
        {
#pragma omp taskloop in_reduction(+ : sum[ : 1]) nogroup
            for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1), sum[0] += i + 1;
        }
        break;
    case 6:
#pragma omp taskloop final(1)
        for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1);
        break;
    default:
#pragma omp taskloop if (0) collapse(2)
        for (int i = 0; i < count; i++)
            for (int j = 0; j < 1; j++) taskloop_iteration(n, maker, group, i + j), atomic_fetch_sub(left, 1);
    }
    if (e->is_loose) return;
    REQUIRE(atomic_load(left) == 0, "%d of %d iterations are left behind the taskloop", atomic_load(left), count);
    REQUIRE(is_done(group), "%d of %d tasks are done behind the taskloop", atomic_load(&group->done), atomic_load(&group->made));
    long expected = (long)count * (count + 1) / 2;
    if (has_sum) REQUIRE(sum[0] == expected, "its reduction gives %ld instead of %ld", sum[0], expected);
}

static void cancel_parallel(const struct node *n, struct env *e)
{
    long outside = own_value;
    struct team *team = new_team(n, e);
    int threads = n->threads, who = n->value % n->size, when = n->chunk;
#pragma omp parallel num_threads(threads)
    {
        struct env me;
        enter(n, e, team, &me, 0);
        me.is_loose |= cancels;
        for (int k = 0; k < n->iterations; k++) {
            if (omp_get_thread_num() == who && k == when) {
#pragma omp cancel parallel
            }
            run(n->kid[0], &me);
            if (n->variant & 1) {
#pragma omp barrier
                me.phase++;
            }
            struct env *made = new_task(&me), *maker = kept(&me);
#pragma omp task firstprivate(made, maker)
            {
                run(n->kid[1], made);
                task_done(maker);
            }
            if (n->variant & 2) {
#pragma omp for schedule(dynamic)
                for (int i = 0; i < 5; i++) leaf(n, &me);
                me.phase++;
            }
#pragma omp cancellation point parallel
        }
    }
    own_value = outside;
    check_team(n, e, team);
}

static void cancel_for(const struct node *n, struct env *e)
{
    int count = n->iterations, which = n->value % count, chunk = n->chunk + 1, is_loose = e->is_loose;
    e->is_loose |= cancels;
    switch (n->schedule % 3) {
#define CANCELLED(...)                                              \
    _Pragma(TEXT(omp for __VA_ARGS__))                              \
    for (int i = 0; i < count; i++) {                               \
        _Pragma("omp cancellation point for")                       \
        iteration(n, e, i);                                         \
        if (i == which) {                                           \
            _Pragma("omp cancel for")                               \
        }                                                           \
    }
    case 0: CANCELLED(schedule(static)) break;
    case 1: CANCELLED(schedule(dynamic, chunk)) break;
    default: CANCELLED(schedule(guided, chunk))
    }
    e->is_loose = is_loose;
    passed_barrier(n, e);
}

static void cancel_sections(const struct node *n, struct env *e)
{
    int is_loose = e->is_loose;
    e->is_loose |= cancels;
#pragma omp sections
    {
#pragma omp section
        {
#pragma omp cancellation point sections
            run(n->kid[0], e);
        }
#pragma omp section
        {
#pragma omp cancel sections if (n->variant & 1)
            run(n->kid[1], e);
        }
#pragma omp section
        {
            run(n->kid[2], e);
#pragma omp cancel sections
        }
#pragma omp section
        run(n->kid[3], e);
    }
    e->is_loose = is_loose;
    passed_barrier(n, e);
}

static void cancel_taskgroup(const struct node *n, struct env *e)
{
    struct env *maker = kept(e);
    maker->is_loose |= cancels;
    atomic_int *running = allocate(e->program, sizeof *running);
    atomic_int *begun = allocate(e->program, sizeof *begun);
    int which = n->value % n->iterations;
#pragma omp taskgroup
    {
        struct tally *group = maker->group = allocate(e->program, sizeof *group);
        for (int k = 0; k < n->iterations; k++) {
            struct env *made = new_task(maker);
#pragma omp task firstprivate(k, made) if (n->variant & 4 || k % 3)
            {
                atomic_fetch_add(running, 1);
                atomic_fetch_add(begun, 1);
                run(n->kid[0], made);
                atomic_fetch_sub(running, 1);
                task_done(maker);
                if (k == which) {
#pragma omp cancel taskgroup
                }
#pragma omp cancellation point taskgroup
            }
        }
    }
    REQUIRE(atomic_load(running) == 0, "%d tasks still run behind the taskgroup", atomic_load(running));
    REQUIRE(atomic_load(begun) <= n->iterations, "%d of %d tasks have begun", atomic_load(begun), n->iterations);
    if (!cancels) REQUIRE(atomic_load(begun) == n->iterations, "%d of %d tasks have begun", atomic_load(begun), n->iterations);
}

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
