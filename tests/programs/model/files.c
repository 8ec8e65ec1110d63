/* Random accesses to a file against a plain array of bytes: every rank computes from the seed alone what must be in the
 * file. Usage: files <seed> <rounds> <file>
 * In each round the ranks share the file out among themselves at random, write parts of what they own by a random
 * function and look at parts of the whole through random views. Whole buffers are compared, gaps between elements too. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16, MOST_SLOTS = 24 };

static int rank, size;
static unsigned char model[MOST];
static long model_size;
static char text[256];
static unsigned long long seed;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int below(uint64_t *state, int bound) { return (int)(mix((*state)++) % (uint64_t)bound); }

static void fail(const char *what, long where)
{
    fprintf(stderr, "seed %llu, rank %d of %d: %s: %s at %ld\n", seed, rank, size, text, what, where);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void ok(int code)
{
    if (code == MPI_SUCCESS) return;
    char message[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, message, &length);
    fail(message, code);
}

/* A view: a tile of slots, each an owned run of etypes; owner -1 is nobody. */
typedef struct {
    int unit, slots, first[MOST_SLOTS], length[MOST_SLOTS], owner[MOST_SLOTS], tile, disp;
} Tiling;

static Tiling random_tiling(uint64_t *state, int owners)
{
    static const int units[] = {1, 4, 8, 12};
    Tiling t = {.unit = units[below(state, 4)], .slots = 1 + below(state, MOST_SLOTS)};
    for (int i = 0; i < t.slots; i++) {
        t.first[i] = t.tile;
        t.length[i] = below(state, 3) ? 1 + below(state, 4) : 1 + below(state, 40);
        t.owner[i] = below(state, owners + 1) - 1;
        t.tile += t.length[i];
    }
    t.disp = below(state, 100);
    return t;
}

/* Etypes of a tile that an owner has. */
static int owned(const Tiling *t, int owner)
{
    int n = 0;
    for (int i = 0; i < t->slots; i++)
        if (t->owner[i] == owner) n += t->length[i];
    return n;
}

/* Where an owner's k-th etype is in the file. */
static long place(const Tiling *t, int owner, long k)
{
    int each = owned(t, owner);
    long tile = k / each, rest = k % each;
    for (int i = 0; i < t->slots; i++) {
        if (t->owner[i] != owner) continue;
        if (rest < t->length[i]) return t->disp + (tile * t->tile + t->first[i] + rest) * t->unit;
        rest -= t->length[i];
    }
    return -1;
}

static MPI_Datatype etype_of(const Tiling *t)
{
    MPI_Datatype type;
    switch (t->unit) {
    case 1: return MPI_BYTE;
    case 4: return MPI_INT;
    case 8: return MPI_DOUBLE;
    default: MPI_Type_contiguous(3, MPI_INT, &type); MPI_Type_commit(&type); return type;
    }
}

static void set_view(MPI_File file, const Tiling *t, int owner, MPI_Info info)
{
    int n = 0, first[MOST_SLOTS], length[MOST_SLOTS];
    for (int i = 0; i < t->slots; i++)
        if (t->owner[i] == owner) first[n] = t->first[i], length[n] = t->length[i], n++;
    MPI_Datatype etype = etype_of(t), indexed, filetype;
    ok(MPI_Type_indexed(n, length, first, etype, &indexed));
    ok(MPI_Type_create_resized(indexed, 0, (MPI_Aint)t->tile * t->unit, &filetype));
    ok(MPI_Type_commit(&filetype));
    ok(MPI_File_set_view(file, t->disp, etype, filetype, "native", info));
    MPI_Type_free(&indexed);
    MPI_Type_free(&filetype);
    if (t->unit == 12) MPI_Type_free(&etype);
}

/* Memory for count etypes, perhaps with gaps of one etype between them. */
typedef struct {
    MPI_Datatype type;
    int count, gaps;
    unsigned char *base;
    long bytes;
} Memory;

static Memory memory_for(const Tiling *t, int count, int gaps)
{
    Memory m = {.gaps = gaps, .bytes = (long)t->unit * count * (gaps ? 2 : 1) + 1};
    MPI_Datatype etype = etype_of(t);
    if (gaps) {
        MPI_Type_vector(count, 1, 2, etype, &m.type);
        m.count = 1;
    } else {
        MPI_Type_dup(etype, &m.type);
        m.count = count;
    }
    MPI_Type_commit(&m.type);
    if (t->unit == 12) MPI_Type_free(&etype);
    m.base = malloc((size_t)m.bytes);
    memset(m.base, 0xee, (size_t)m.bytes);
    return m;
}

static unsigned char *element(const Memory *m, const Tiling *t, long k)
{
    return m->base + k * t->unit * (m->gaps ? 2 : 1);
}

static void release(Memory *m)
{
    MPI_Type_free(&m->type);
    free(m->base);
}

/* The ways to access a file. */
enum { AT, PLAIN, IAT, IPLAIN, AT_ALL, ALL, IAT_ALL, IALL, BEGIN_AT, BEGIN, ORDERED, WAYS };
static const char *const ways[WAYS] = {"at",       "individual", "iat",          "iindividual", "at_all", "all",
                                       "iat_all", "iall",       "at_all_begin", "all_begin",   "ordered"};

static void access_file(MPI_File f, int write, int way, int meet, long at, Memory *m, MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    void *b = m->base;
    int n = m->count;
    MPI_Datatype t = m->type;
    if (way == PLAIN || way == IPLAIN || way == ALL || way == IALL || way == BEGIN) ok(MPI_File_seek(f, at, MPI_SEEK_SET));
    switch (way) {
    case AT: ok(write ? MPI_File_write_at(f, at, b, n, t, status) : MPI_File_read_at(f, at, b, n, t, status)); break;
    case PLAIN: ok(write ? MPI_File_write(f, b, n, t, status) : MPI_File_read(f, b, n, t, status)); break;
    case IAT: ok(write ? MPI_File_iwrite_at(f, at, b, n, t, &request) : MPI_File_iread_at(f, at, b, n, t, &request)); break;
    case IPLAIN: ok(write ? MPI_File_iwrite(f, b, n, t, &request) : MPI_File_iread(f, b, n, t, &request)); break;
    case AT_ALL: ok(write ? MPI_File_write_at_all(f, at, b, n, t, status) : MPI_File_read_at_all(f, at, b, n, t, status)); break;
    case ALL: ok(write ? MPI_File_write_all(f, b, n, t, status) : MPI_File_read_all(f, b, n, t, status)); break;
    case IAT_ALL: ok(write ? MPI_File_iwrite_at_all(f, at, b, n, t, &request) : MPI_File_iread_at_all(f, at, b, n, t, &request)); break;
    case IALL: ok(write ? MPI_File_iwrite_all(f, b, n, t, &request) : MPI_File_iread_all(f, b, n, t, &request)); break;
    case BEGIN_AT:
        ok(write ? MPI_File_write_at_all_begin(f, at, b, n, t) : MPI_File_read_at_all_begin(f, at, b, n, t));
        ok(write ? MPI_File_write_at_all_end(f, b, status) : MPI_File_read_at_all_end(f, b, status));
        break;
    case BEGIN:
        ok(write ? MPI_File_write_all_begin(f, b, n, t) : MPI_File_read_all_begin(f, b, n, t));
        ok(write ? MPI_File_write_all_end(f, b, status) : MPI_File_read_all_end(f, b, status));
        break;
    default: ok(write ? MPI_File_write_ordered(f, b, n, t, status) : MPI_File_read_ordered(f, b, n, t, status));
    }
    if (way == IAT || way == IPLAIN || way == IAT_ALL || way == IALL) {
        if (meet) MPI_Barrier(MPI_COMM_WORLD); /* the operation must go on in other calls */
        ok(MPI_Wait(&request, status));
    }
}

static MPI_Info random_hints(uint64_t *state)
{
    static const char *const switches[] = {"enable", "disable", "automatic"};
    char number[32];
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", switches[below(state, 3)]);
    MPI_Info_set(info, "romio_cb_read", switches[below(state, 3)]);
    MPI_Info_set(info, "romio_ds_read", switches[below(state, 3)]);
    sprintf(number, "%d", 1 + below(state, 6));
    MPI_Info_set(info, "cb_nodes", number);
    sprintf(number, "%d", below(state, 2) ? 1 + below(state, 300) : 1 << 20);
    MPI_Info_set(info, "cb_buffer_size", number);
    sprintf(number, "%d", 1 << below(state, 13));
    MPI_Info_set(info, "striping_unit", number);
    return info;
}

static unsigned char value(uint64_t round, int who, long k, int byte)
{
    return (unsigned char)mix(seed * 1000003 + round * 7919 + (uint64_t)who * 104729 + (uint64_t)k * 16 + (uint64_t)byte);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    seed = strtoull(argv[1], NULL, 10);
    int rounds = atoi(argv[2]);
    uint64_t common = mix(seed), local = mix(seed ^ (uint64_t)(rank + 1) << 40);
    MPI_File file;
    ok(MPI_File_open(MPI_COMM_WORLD, argv[3], MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    ok(MPI_File_set_size(file, 0));
    for (int round = 0; round < rounds; round++) {
        /* Writes: the ranks that own nothing of the tiling see all of it, and write nothing. */
        Tiling t = random_tiling(&common, size);
        int way = below(&common, WAYS), most = 1 + below(&common, 300);
        if (below(&common, 10) == 0) ok(MPI_File_set_atomicity(file, below(&common, 2)));
        MPI_Info info = random_hints(&common);
        if (way == ORDERED)
            for (int i = 0; i < t.slots; i++) t.owner[i] = 0;
        long base = below(&common, 20), at[64];
        int counts[64];
        for (int r = 0; r < size; r++) {
            int owner = way == ORDERED ? 0 : r;
            counts[r] = owned(&t, owner) ? below(&common, most) : 0;
            at[r] = way == ORDERED ? (r ? at[r - 1] + counts[r - 1] : base) : below(&common, 40);
            while (counts[r] && place(&t, owner, at[r] + counts[r] - 1) + t.unit > MOST) counts[r]--;
        }
        if (way == ORDERED) /* later ranks must not have been cut */
            for (int r = 1; r < size; r++) at[r] = at[r - 1] + counts[r - 1];
        snprintf(text, sizeof text, "round %d, write %s, etype of %d bytes, %d etypes", round, ways[way], t.unit, counts[rank]);
        int mine = way == ORDERED ? 0 : rank;
        Tiling seen = t;
        if (!owned(&t, mine))
            for (int i = 0; i < t.slots; i++) seen.owner[i] = mine;
        set_view(file, &seen, mine, info);
        if (way == ORDERED) ok(MPI_File_seek_shared(file, base, MPI_SEEK_SET));
        Memory m = memory_for(&t, counts[rank], below(&local, 2));
        for (long k = 0; k < counts[rank]; k++)
            for (int b = 0; b < t.unit; b++) element(&m, &t, k)[b] = value((uint64_t)round, rank, k, b);
        MPI_Status status;
        access_file(file, 1, way, below(&common, 2), at[rank], &m, &status);
        MPI_Count got;
        MPI_Get_elements_c(&status, MPI_BYTE, &got);
        if (got != (MPI_Count)counts[rank] * t.unit) fail("wrong count of bytes written", (long)got);
        release(&m);
        for (int r = 0; r < size; r++)
            for (long k = 0; k < counts[r]; k++) {
                long to = place(&t, way == ORDERED ? 0 : r, at[r] + k);
                for (int b = 0; b < t.unit; b++) model[to + b] = value((uint64_t)round, r, k, b);
                if (to + t.unit > model_size) model_size = to + t.unit;
            }
        ok(MPI_File_sync(file));
        MPI_Offset bytes;
        ok(MPI_File_get_size(file, &bytes));
        if (bytes != model_size) fail("wrong size of the file", (long)bytes);
        MPI_Barrier(MPI_COMM_WORLD);

        /* Reads: every rank has a view of its own, which may show what others see too. */
        int unit = (way = below(&common, WAYS), below(&common, 4));
        Tiling r = random_tiling(way == ORDERED ? &common : &local, 0);
        static const int units[] = {1, 4, 8, 12};
        r.unit = units[unit];
        uint64_t *dice = way == ORDERED ? &common : &local;
        for (int i = 0; i < r.slots; i++) r.owner[i] = below(dice, 2) - 1;
        r.owner[below(dice, r.slots)] = 0;
        int count = below(&local, 400);
        long from = below(dice, 200);
        set_view(file, &r, 0, info);
        if (way == ORDERED) {
            int before = 0;
            MPI_Exscan(&count, &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            ok(MPI_File_seek_shared(file, from, MPI_SEEK_SET));
            if (rank) from += before;
        }
        snprintf(text, sizeof text, "round %d, read %s, etype of %d bytes, %d etypes", round, ways[way], r.unit, count);
        m = memory_for(&r, count, below(&local, 2));
        Memory expected = memory_for(&r, count, m.gaps);
        long there = 0;
        for (long k = 0; k < count; k++)
            for (int b = 0; b < r.unit; b++) {
                long where = place(&r, 0, from + k) + b;
                if (where < model_size) element(&expected, &r, k)[b] = model[where], there++;
            }
        access_file(file, 0, way, below(&common, 2), from, &m, &status);
        MPI_Get_elements_c(&status, MPI_BYTE, &got);
        if (got != there) fail("wrong count of bytes read", (long)got);
        for (long i = 0; i < m.bytes; i++)
            if (m.base[i] != expected.base[i]) fail("wrong data", i);
        if (way == PLAIN || way == ALL) {
            MPI_Offset position;
            ok(MPI_File_get_position(file, &position));
            if (position != from + there / r.unit) fail("wrong position", (long)position);
        }
        release(&m);
        release(&expected);
        MPI_Info_free(&info);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    ok(MPI_File_close(&file));
    MPI_Finalize();
    return 0;
}
