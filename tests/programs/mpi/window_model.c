/* Random one-sided programs against plain arrays: every rank knows what all ranks do in a round, from one seed, and what
 * all windows must hold after it. Within a round a segment of a window is put to by one rank once, or accumulated to
 * by all with one operation, or only read. */
#include "check.h"

enum { WINDOWS = 4, SLOTS = 96, SEGMENTS = 8, SPAN = SLOTS / SEGMENTS, RANKS = 16 };

static int rank, size;
static long model[WINDOWS][RANKS][SLOTS], *base[WINDOWS], memory[WINDOWS][SLOTS];
static MPI_Win win[WINDOWS];
static int kinds[WINDOWS];
static unsigned state;

static unsigned below(unsigned n) { return next_random(&state) % n; }

static void make(int w)
{
    kinds[w] = (int)below(4);
    switch (kinds[w]) {
    case 0:
        MPI_Win_allocate(sizeof memory[w], 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base[w], &win[w]);
        break;
    case 1:
        base[w] = memory[w];
        MPI_Win_create(memory[w], sizeof memory[w], 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win[w]);
        break;
    case 2:
        MPI_Alloc_mem(sizeof memory[w], MPI_INFO_NULL, &base[w]);
        MPI_Win_create(base[w], sizeof memory[w], 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win[w]);
        break;
    default:
        base[w] = memory[w];
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win[w]);
        MPI_Win_attach(win[w], memory[w], sizeof memory[w]);
    }
    memset(base[w], 0, sizeof memory[w]);
    memset(model[w], 0, sizeof model[w]);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void drop(int w)
{
    if (kinds[w] == 3)
        MPI_Win_detach(win[w], memory[w]);
    MPI_Win_free(&win[w]);
    if (kinds[w] == 2)
        MPI_Free_mem(base[w]);
}

/* What an origin keeps of an operation until the epoch ends. */
struct op {
    long out[SPAN * 2], in[SPAN * 2];
    int got, w, target, first, count, stride, spread, bounds;
};

static MPI_Datatype strided(int count, int stride)
{
    MPI_Datatype type;
    MPI_Type_vector(count, 1, stride, MPI_LONG, &type);
    MPI_Type_commit(&type);
    return type;
}

static void round_of(int w, MPI_Aint *bases)
{
    enum { OPS = 60 };
    static struct op ops[OPS];
    static long before[RANKS][SLOTS];
    int what[RANKS][SEGMENTS], owner[RANKS][SEGMENTS], used[RANKS][SEGMENTS] = {{0}}, mine = 0;
    static const MPI_Op operations[] = {MPI_SUM, MPI_BXOR, MPI_MAX};
    memcpy(before, model[w], sizeof before);
    for (int t = 0; t < size; t++)
        for (int s = 0; s < SEGMENTS; s++) {
            what[t][s] = (int)below(5);
            owner[t][s] = (int)below((unsigned)size);
        }
    int sync = (int)below(5);
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Barrier(MPI_COMM_WORLD);
    switch (sync) {
    case 0:
        MPI_Win_fence(0, win[w]);
        break;
    case 1:
        MPI_Win_post(all, 0, win[w]);
        MPI_Win_start(all, 0, win[w]);
        break;
    case 2:
        MPI_Win_lock_all(0, win[w]);
        break;
    }
    for (int i = 0; i < OPS; i++) {
        int o = (int)below((unsigned)size), t = (int)below((unsigned)size), s = (int)below(SEGMENTS);
        int stride = 1 + (int)below(2), spread = 1 + (int)below(2), form = (int)below(3);
        int count = 1 + (int)below(SPAN / 2), first = s * SPAN + (int)below(SPAN / 2 - 1) * (stride == 1);
        long seed = (long)next_random(&state) + 1;
        if (what[t][s] == 0) {
            if (o != owner[t][s] || used[t][s]++)
                continue;
            for (int k = 0; k < count; k++)
                model[w][t][first + k * stride] = seed + k;
        } else if (what[t][s] <= 3) {
            for (int k = 0; k < count; k++) {
                long *to = &model[w][t][first + k * stride], value = seed + k;
                *to = what[t][s] == 1 ? *to + value : what[t][s] == 2 ? *to ^ value : *to > value ? *to : value;
            }
        }
        if (o != rank)
            continue;
        struct op *op = &ops[mine++];
        *op = (struct op){.w = w, .target = t, .first = first, .count = count, .stride = stride, .spread = spread};
        for (int k = 0; k < count; k++)
            op->out[k * spread] = seed + k;
        MPI_Aint disp = kinds[w] == 3 ? bases[t] + 8 * first : first;
        MPI_Datatype near = strided(count, spread), far = strided(count, stride);
        if (sync >= 3)
            MPI_Win_lock(sync == 3 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, t, 0, win[w]);
        MPI_Request request = MPI_REQUEST_NULL;
        int passive = sync >= 2 && form == 2;
        if (what[t][s] == 0 && passive) {
            MPI_Rput(op->out, 1, near, t, disp, 1, far, win[w], &request);
        } else if (what[t][s] == 0) {
            MPI_Put(op->out, 1, near, t, disp, 1, far, win[w]);
        } else if (what[t][s] == 4) {
            op->got = 1;
            if (passive)
                MPI_Rget(op->in, 1, near, t, disp, 1, far, win[w], &request);
            else if (form == 1)
                MPI_Get_accumulate(NULL, 0, MPI_LONG, op->in, 1, near, t, disp, 1, far, MPI_NO_OP, win[w]);
            else
                MPI_Get(op->in, 1, near, t, disp, 1, far, win[w]);
        } else {
            MPI_Op operation = operations[what[t][s] - 1];
            op->bounds = what[t][s] != 2;
            op->got = form > 0 && op->bounds;
            if (form == 0 || !op->bounds) {
                MPI_Accumulate(op->out, 1, near, t, disp, 1, far, operation, win[w]);
            } else if (count == 1) {
                MPI_Fetch_and_op(op->out, op->in, MPI_LONG, t, disp, operation, win[w]);
            } else if (passive) {
                MPI_Rget_accumulate(op->out, 1, near, op->in, 1, near, t, disp, 1, far, operation, win[w], &request);
            } else {
                MPI_Get_accumulate(op->out, 1, near, op->in, 1, near, t, disp, 1, far, operation, win[w]);
            }
        }
        MPI_Type_free(&near);
        MPI_Type_free(&far);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (sync == 2 && i % 7 == 0)
            MPI_Win_flush(t, win[w]);
        if (sync >= 3)
            MPI_Win_unlock(t, win[w]);
    }
    switch (sync) {
    case 0:
        MPI_Win_fence(0, win[w]);
        break;
    case 1:
        MPI_Win_complete(win[w]);
        MPI_Win_wait(win[w]);
        break;
    case 2:
        MPI_Win_unlock_all(win[w]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < mine; i++) {
        struct op *op = &ops[i];
        if (!op->got)
            continue;
        for (int k = 0; k < op->count; k++) {
            long got = op->in[k * op->spread], at = op->first + k * op->stride;
            if (op->bounds)
                CHECK(got >= before[op->target][at] && got <= model[w][op->target][at]);
            else
                CHECK(got == before[op->target][at]);
        }
    }
    MPI_Group_free(&all);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int first = argc > 1 ? atoi(argv[1]) : 1, seeds = argc > 2 ? atoi(argv[2]) : 5;
    for (int seed = first; seed < first + seeds; seed++) {
        state = (unsigned)seed * 2654435761u;
        MPI_Aint bases[WINDOWS][RANKS], address;
        for (int w = 0; w < WINDOWS; w++)
            make(w);
        for (int w = 0; w < WINDOWS; w++) {
            MPI_Get_address(base[w], &address);
            MPI_Allgather(&address, 1, MPI_AINT, bases[w], 1, MPI_AINT, MPI_COMM_WORLD);
        }
        for (int turn = 0; turn < 20; turn++) {
            int w = (int)below(WINDOWS);
            round_of(w, bases[w]);
            for (int v = 0; v < WINDOWS; v++) {
                int same = memcmp(base[v], model[v][rank], sizeof memory[v]) == 0;
                if (!same)
                    fprintf(stderr, "seed %d, round %d: window %d (kind %d) of rank %d is not as it must be\n", seed, turn, v, kinds[v], rank);
                CHECK(same);
            }
        }
        for (int w = 0; w < WINDOWS; w++)
            drop(w);
    }
    return finish();
}
