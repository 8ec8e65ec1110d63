/* Part of random.c. What a program consists of: its constructs, the threads that execute them, and what is counted. */

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
