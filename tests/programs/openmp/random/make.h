/* Part of random.c. Making a program from its seed, and printing it. */

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
