/* Derived datatypes: what they transfer, what they say of themselves, packing, attributes and names. */
#include "check.h"
#include <stddef.h>

static int rank, size;

/* Sends one element of `type` from the pattern 0, 1, 2, ... to oneself as bytes and as the type, and checks both. */
static void transfers(MPI_Datatype type, const int *expected, int n)
{
    int source[64], packed[64], target[64], bytes;
    for (int i = 0; i < 64; i++) {
        source[i] = i;
        target[i] = -1;
    }
    MPI_Type_commit(&type);
    MPI_Type_size(type, &bytes);
    CHECK(bytes == n * (int)sizeof(int));
    MPI_Sendrecv(source, 1, type, rank, 0, packed, 64, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < n; i++)
        CHECK(packed[i] == expected[i]);
    MPI_Sendrecv(packed, n, MPI_INT, rank, 0, target, 1, type, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int touched = 0;
    for (int i = 0; i < 64; i++) {
        int wanted = -1;
        for (int j = 0; j < n; j++)
            if (expected[j] == i)
                wanted = i;
        CHECK(target[i] == wanted);
        touched += target[i] >= 0;
    }
    CHECK(touched == n);
    int position = 0;
    char room[512];
    MPI_Pack(source, 1, type, room, sizeof room, &position, MPI_COMM_WORLD);
    CHECK(position == bytes && memcmp(room, packed, bytes) == 0);
    position = 0;
    memset(target, 0xff, sizeof target);
    MPI_Unpack(room, sizeof room, &position, target, 1, type, MPI_COMM_WORLD);
    CHECK(position == bytes && target[expected[n - 1]] == expected[n - 1]);
}

static void constructors(void)
{
    MPI_Datatype type, inner;
    MPI_Type_contiguous(3, MPI_INT, &type);
    transfers(type, (int[]){0, 1, 2}, 3);
    MPI_Type_free(&type);
    CHECK(type == MPI_DATATYPE_NULL);
    MPI_Type_vector(3, 2, 5, MPI_INT, &type);
    transfers(type, (int[]){0, 1, 5, 6, 10, 11}, 6);
    MPI_Type_free(&type);
    MPI_Type_create_hvector(2, 1, 12, MPI_INT, &type);
    transfers(type, (int[]){0, 3}, 2);
    MPI_Type_free(&type);
    MPI_Type_indexed(3, (int[]){2, 0, 1}, (int[]){8, 1, 0}, MPI_INT, &type);
    transfers(type, (int[]){8, 9, 0}, 3);
    MPI_Type_free(&type);
    MPI_Type_create_hindexed(2, (int[]){1, 2}, (MPI_Aint[]){16, 40}, MPI_INT, &type);
    transfers(type, (int[]){4, 10, 11}, 3);
    MPI_Type_free(&type);
    MPI_Type_create_indexed_block(3, 2, (int[]){0, 9, 4}, MPI_INT, &type);
    transfers(type, (int[]){0, 1, 9, 10, 4, 5}, 6);
    MPI_Type_free(&type);
    MPI_Type_create_hindexed_block(2, 1, (MPI_Aint[]){8, 0}, MPI_INT, &type);
    transfers(type, (int[]){2, 0}, 2);
    MPI_Type_free(&type);
    MPI_Type_create_resized(MPI_INT, 0, 16, &inner);
    MPI_Type_contiguous(3, inner, &type);
    transfers(type, (int[]){0, 4, 8}, 3);
    MPI_Type_free(&inner); /* the outer one keeps it */
    MPI_Type_free(&type);
    MPI_Type_vector(2, 1, 2, MPI_INT, &inner);
    MPI_Type_create_struct(2, (int[]){1, 2}, (MPI_Aint[]){4, 40}, (MPI_Datatype[]){MPI_INT, inner}, &type);
    transfers(type, (int[]){1, 10, 12, 13, 15}, 5);
    MPI_Type_free(&inner);
    MPI_Type_free(&type);
    MPI_Type_create_subarray(2, (int[]){4, 6}, (int[]){2, 3}, (int[]){1, 2}, MPI_ORDER_C, MPI_INT, &type);
    transfers(type, (int[]){8, 9, 10, 14, 15, 16}, 6);
    MPI_Type_free(&type);
    MPI_Type_create_subarray(2, (int[]){6, 4}, (int[]){3, 2}, (int[]){2, 1}, MPI_ORDER_FORTRAN, MPI_INT, &type);
    transfers(type, (int[]){8, 9, 10, 14, 15, 16}, 6);
    MPI_Type_free(&type);
    /* Process 1 of two: the odd elements of a cyclic distribution. */
    MPI_Type_create_darray(2, 1, 1, (int[]){7}, (int[]){MPI_DISTRIBUTE_CYCLIC}, (int[]){MPI_DISTRIBUTE_DFLT_DARG},
                           (int[]){2}, MPI_ORDER_C, MPI_INT, &type);
    transfers(type, (int[]){1, 3, 5}, 3);
    MPI_Type_free(&type);
}

struct particle {
    char kind;
    double position[3];
    int id;
};

/* Arrays of structures with holes, large enough for every protocol. */
static void structures(void)
{
    MPI_Datatype raw, type;
    MPI_Type_create_struct(3, (int[]){1, 3, 1},
                           (MPI_Aint[]){offsetof(struct particle, kind), offsetof(struct particle, position),
                                        offsetof(struct particle, id)},
                           (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_INT}, &raw);
    MPI_Type_create_resized(raw, 0, sizeof(struct particle), &type);
    MPI_Type_commit(&type);
    for (int n = 1; n < 100000; n = 9 * n + 1) {
        struct particle *out = calloc(n, sizeof *out), *in = malloc(n * sizeof *in);
        memset(in, 0xee, n * sizeof *in);
        for (int i = 0; i < n; i++)
            out[i] = (struct particle){(char)i, {i, 2.5 * i, -i}, i + rank};
        int right = (rank + 1) % size, left = (rank + size - 1) % size, count;
        MPI_Status status;
        MPI_Sendrecv(out, n, type, right, 1, in, n, type, left, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, type, &count);
        CHECK(count == n);
        MPI_Get_elements(&status, type, &count);
        CHECK(count == 5 * n);
        int good = 1;
        for (int i = 0; i < n; i++)
            good &= in[i].kind == (char)i && in[i].position[1] == 2.5 * i && in[i].id == i + left &&
                    ((unsigned char *)&in[i])[1] == 0xee;
        CHECK(good);
        free(out);
        free(in);
    }
    MPI_Type_free(&raw);
    MPI_Type_free(&type);
    /* Absolute addresses. */
    int a = 4, c = 0;
    double b = 2.5, d = 0;
    MPI_Aint addresses[4];
    MPI_Get_address(&a, &addresses[0]);
    MPI_Get_address(&b, &addresses[1]);
    MPI_Get_address(&c, &addresses[2]);
    MPI_Get_address(&d, &addresses[3]);
    MPI_Datatype from, to;
    MPI_Type_create_struct(2, (int[]){1, 1}, addresses, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &from);
    MPI_Type_create_struct(2, (int[]){1, 1}, addresses + 2, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &to);
    MPI_Type_commit(&from);
    MPI_Type_commit(&to);
    MPI_Sendrecv(MPI_BOTTOM, 1, from, rank, 2, MPI_BOTTOM, 1, to, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(c == 4 && d == 2.5);
    CHECK(MPI_Aint_diff(MPI_Aint_add(addresses[0], 8), addresses[0]) == 8);
    MPI_Type_free(&from);
    MPI_Type_free(&to);
}

static void descriptions(void)
{
    MPI_Datatype type, twin;
    int ni, na, nd, combiner, integers[10], length;
    MPI_Count lci, lca, lcc, lcd, counts[10], large;
    MPI_Aint addresses[10], lb, extent;
    MPI_Datatype types[10];
    char name[MPI_MAX_OBJECT_NAME];

    MPI_Type_create_hindexed(2, (int[]){1, 2}, (MPI_Aint[]){16, 40}, MPI_DOUBLE, &type);
    MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner);
    CHECK(ni == 3 && na == 2 && nd == 1 && combiner == MPI_COMBINER_HINDEXED);
    MPI_Type_get_contents(type, 10, 10, 10, integers, addresses, types);
    CHECK(integers[0] == 2 && integers[1] == 1 && integers[2] == 2);
    CHECK(addresses[0] == 16 && addresses[1] == 40 && types[0] == MPI_DOUBLE);
    MPI_Type_get_extent(type, &lb, &extent);
    CHECK(lb == 16 && extent == 40);
    MPI_Type_get_true_extent(type, &lb, &extent);
    CHECK(lb == 16 && extent == 40);
    MPI_Type_set_name(type, "pairs");
    MPI_Type_get_name(type, name, &length);
    CHECK(strcmp(name, "pairs") == 0 && length == 5);
    MPI_Type_dup(type, &twin);
    MPI_Type_get_envelope(twin, &ni, &na, &nd, &combiner);
    CHECK(combiner == MPI_COMBINER_DUP && nd == 1 && ni == 0);
    MPI_Type_get_contents(twin, 0, 0, 1, NULL, NULL, types);
    MPI_Type_get_envelope(types[0], &ni, &na, &nd, &combiner);
    CHECK(combiner == MPI_COMBINER_HINDEXED);
    MPI_Type_free(&types[0]);
    MPI_Type_free(&twin);
    MPI_Type_free(&type);

    MPI_Type_vector_c(2, 3, (MPI_Count)1 << 33, MPI_INT, &type);
    MPI_Type_get_envelope_c(type, &lci, &lca, &lcc, &lcd, &combiner);
    CHECK(lci == 0 && lca == 0 && lcc == 3 && lcd == 1 && combiner == MPI_COMBINER_VECTOR);
    MPI_Type_get_contents_c(type, 0, 0, 10, 10, integers, addresses, counts, types);
    CHECK(counts[0] == 2 && counts[1] == 3 && counts[2] == (MPI_Count)1 << 33);
    MPI_Type_get_extent_c(type, counts, &large);
    CHECK(large == ((MPI_Count)1 << 35) + 12);
    MPI_Type_free(&type);

    MPI_Type_get_envelope(MPI_DOUBLE, &ni, &na, &nd, &combiner);
    CHECK(combiner == MPI_COMBINER_NAMED);
    MPI_Type_get_name(MPI_C_DOUBLE_COMPLEX, name, &length);
    CHECK(strcmp(name, "MPI_C_DOUBLE_COMPLEX") == 0);
    MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &type);
    CHECK(type == MPI_REAL8);
    MPI_Type_create_f90_real(12, 100, &type);
    MPI_Type_create_f90_real(12, 100, &twin);
    MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner);
    CHECK(type == twin && combiner == MPI_COMBINER_F90_REAL && ni == 2);
    MPI_Type_get_contents(type, 2, 0, 0, integers, addresses, types);
    CHECK(integers[0] == 12 && integers[1] == 100);
    MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &type);
    CHECK(type == MPI_DOUBLE_INT);
    /* A count that is no whole number of elements. */
    MPI_Status status;
    int count, three[3] = {1, 2, 3}, four[4];
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Sendrecv(three, 3, MPI_INT, rank, 3, four, 2, type, rank, 3, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, type, &count);
    CHECK(count == MPI_UNDEFINED);
    MPI_Get_elements(&status, type, &count);
    CHECK(count == 3);
    MPI_Type_free(&type);
}

static int copies, deletions;

static int copy(MPI_Datatype type, int key, void *state, void *in, void *out, int *flag)
{
    (void)type, (void)key, (void)state;
    copies++;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_(MPI_Datatype type, int key, void *value, void *state)
{
    (void)type, (void)key, (void)value;
    deletions += *(int *)state;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    MPI_Datatype type, twin;
    int key, one = 1, flag;
    static char mark[2];
    void *value;
    MPI_Type_create_keyval(copy, delete_, &key, &one);
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_set_attr(type, key, mark);
    MPI_Type_dup(type, &twin);
    MPI_Type_get_attr(twin, key, &value, &flag);
    CHECK(flag && value == mark + 1 && copies == 1);
    MPI_Type_delete_attr(twin, key);
    MPI_Type_get_attr(twin, key, &value, &flag);
    CHECK(!flag && deletions == 1);
    int freed = key;
    MPI_Type_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Type_get_attr(type, freed, &value, &flag);
    CHECK(flag && value == mark);
    MPI_Type_free(&type);
    CHECK(deletions == 2);
    MPI_Type_free(&twin);
}

/* The same bytes on every machine. */
static void external(void)
{
    struct {
        int a;
        double b;
    } out[2] = {{1, 1.0}, {-2, -2.5}}, in[2] = {{0, 0}, {0, 0}};
    unsigned char room[64];
    MPI_Aint bytes, position = 0;
    MPI_Datatype type;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &type);
    MPI_Type_commit(&type);
    MPI_Pack_external_size("external32", 2, type, &bytes);
    CHECK(bytes == 24);
    MPI_Pack_external("external32", out, 2, type, room, sizeof room, &position);
    CHECK(position == 24 && room[3] == 1 && room[4] == 0x3f && room[5] == 0xf0 && room[12] == 0xff);
    position = 0;
    MPI_Unpack_external("external32", room, 24, &position, in, 2, type);
    CHECK(position == 24 && in[0].a == 1 && in[1].a == -2 && in[1].b == -2.5);
    long double ld = 0.1L, back = 0;
    position = 0;
    MPI_Pack_external("external32", &ld, 1, MPI_LONG_DOUBLE, room, sizeof room, &position);
    CHECK(position == 16);
    position = 0;
    MPI_Unpack_external("external32", room, 16, &position, &back, 1, MPI_LONG_DOUBLE);
    CHECK(back == ld);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    constructors();
    structures();
    descriptions();
    attributes();
    external();
    return finish();
}
