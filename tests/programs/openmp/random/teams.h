/* Part of random.c. Regions, and the loops that their members share. */

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
