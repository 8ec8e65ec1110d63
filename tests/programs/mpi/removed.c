/* What MPI-3 removed, in the style of its time; compiled by `mpicc -mpi1`. */
#include "check.h"

struct particle {
    char kind;
    double place[3];
    int count;
};

static MPI_Datatype particle_type(void)
{
    struct particle one[2];
    int lengths[5] = {1, 1, 3, 1, 1};
    MPI_Aint displacements[5], base;
    MPI_Datatype types[5] = {MPI_LB, MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_UB}, type;
    MPI_Address(&one[0], &displacements[0]);
    MPI_Address(&one[0].kind, &displacements[1]);
    MPI_Address(one[0].place, &displacements[2]);
    MPI_Address(&one[0].count, &displacements[3]);
    MPI_Address(&one[1], &displacements[4]);
    base = displacements[0];
    for (int i = 0; i < 5; i++) displacements[i] -= base;
    CHECK(MPI_Type_struct(5, lengths, displacements, types, &type) == MPI_SUCCESS);
    MPI_Type_commit(&type);
    return type;
}

static void check_bounds(MPI_Datatype type, MPI_Aint lb, MPI_Aint ub)
{
    MPI_Aint found[3] = {77, 77, 77}, both[2];
    MPI_Type_lb(type, &found[0]);
    MPI_Type_ub(type, &found[1]);
    MPI_Type_extent(type, &found[2]);
    MPI_Type_get_extent(type, &both[0], &both[1]);
    CHECK(found[0] == lb && found[1] == ub && found[2] == ub - lb && both[0] == lb && both[1] == ub - lb);
    if (found[0] != lb || found[1] != ub) fprintf(stderr, "bounds %ld %ld, not %ld %ld\n", (long)found[0], (long)found[1], (long)lb, (long)ub);
}

static void messages(int rank, int size)
{
    MPI_Datatype type = particle_type();
    struct particle out[7], in[7];
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    for (int i = 0; i < 7; i++) out[i] = (struct particle){(char)('a' + i), {rank, i, i * 0.5}, i * 1000 + rank};
    MPI_Status status;
    int right = (rank + 1) % size, left = (rank + size - 1) % size, count;
    MPI_Sendrecv(out, 7, type, right, 3, in, 7, type, left, 3, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, type, &count);
    CHECK(count == 7);
    for (int i = 0; i < 7; i++)
        CHECK(in[i].kind == 'a' + i && in[i].place[0] == left && in[i].place[2] == i * 0.5 && in[i].count == i * 1000 + left);
    check_bounds(type, 0, sizeof(struct particle));
    MPI_Type_free(&type);

    /* Addresses themselves, with MPI_BOTTOM. */
    int number = 100 + rank;
    double parts[2] = {rank, -rank};
    int lengths[2] = {1, 2};
    MPI_Aint places[2];
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE};
    MPI_Address(&number, &places[0]);
    MPI_Address(parts, &places[1]);
    MPI_Type_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    MPI_Bcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD);
    CHECK(number == 100 && parts[0] == 0 && parts[1] == 0);
    MPI_Type_free(&type);

    /* Columns of a matrix by hvector, of which one element is resized by MPI_UB. */
    int matrix[4][6], transposed[6][4];
    for (int i = 0; i < 24; i++) matrix[i / 6][i % 6] = i;
    MPI_Datatype column, spaced, pair[2] = {MPI_DATATYPE_NULL, MPI_UB};
    MPI_Aint at[2] = {0, sizeof(int)}, extent;
    MPI_Type_hvector(4, 1, 6 * sizeof(int), MPI_INT, &column);
    pair[0] = column;
    MPI_Type_struct(2, (int[]){1, 1}, at, pair, &spaced);
    MPI_Type_extent(spaced, &extent);
    CHECK(extent == sizeof(int));
    MPI_Type_commit(&spaced);
    MPI_Sendrecv(matrix, 6, spaced, rank, 4, transposed, 24, MPI_INT, rank, 4, MPI_COMM_WORLD, &status);
    for (int i = 0; i < 24; i++) CHECK(transposed[i % 6][i / 6] == i);
    MPI_Type_free(&column);
    MPI_Type_free(&spaced);
}

static void bounds(void)
{
    MPI_Datatype inner, outer, vector, types[3] = {MPI_LB, MPI_INT, MPI_UB};
    MPI_Aint at[3] = {-3, 0, 6};
    int ones[3] = {1, 1, 1}, size;
    /* The example of MPI-1.1, section 3.12.3. */
    MPI_Type_struct(3, ones, at, types, &inner);
    check_bounds(inner, -3, 6);
    MPI_Type_contiguous(2, inner, &outer);
    check_bounds(outer, -3, 15);
    MPI_Type_free(&outer);
    /* In a struct of a struct the least and the greatest marks count, and the data does not. */
    MPI_Datatype parts[3] = {inner, MPI_DOUBLE, inner};
    MPI_Aint where[3] = {100, 400, 0};
    MPI_Type_struct(3, ones, where, parts, &outer);
    check_bounds(outer, -3, 106);
    MPI_Type_size(outer, &size);
    CHECK(size == 16);
    /* MPI_Type_create_resized removes the marks of what it resizes. */
    MPI_Datatype again;
    MPI_Type_create_resized(outer, 0, 24, &again);
    check_bounds(again, 0, 24);
    MPI_Type_free(&again);
    MPI_Type_free(&outer);
    int lengths[2] = {2, 1};
    MPI_Type_hindexed(2, lengths, (MPI_Aint[]){0, -50}, inner, &vector);
    check_bounds(vector, -53, 15);
    MPI_Type_free(&vector);
    MPI_Type_free(&inner);
    /* One mark alone. */
    MPI_Type_struct(2, ones, (MPI_Aint[]){0, 11}, (MPI_Datatype[]){MPI_INT, MPI_UB}, &outer);
    check_bounds(outer, 0, 11);
    MPI_Type_free(&outer);
    check_bounds(MPI_LB, 0, 0);
    check_bounds(MPI_UB, 0, 0);
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Type_get_name(MPI_UB, name, &length);
    CHECK(strcmp(name, "MPI_UB") == 0 && length == 6);
    MPI_Type_size(MPI_LB, &size);
    CHECK(size == 0);
}

static void contents(void)
{
    MPI_Datatype type, parts[2] = {MPI_INT, MPI_UB}, back[2];
    int ones[2] = {1, 1}, n[4], integers[8];
    MPI_Aint at[2] = {0, 32}, addresses[2];
    MPI_Type_struct(2, ones, at, parts, &type);
    MPI_Type_get_envelope(type, &n[0], &n[1], &n[2], &n[3]);
    CHECK(n[0] == 3 && n[1] == 2 && n[2] == 2 && n[3] == MPI_COMBINER_STRUCT);
    MPI_Type_get_contents(type, 3, 2, 2, integers, addresses, back);
    CHECK(back[0] == MPI_INT && back[1] == MPI_UB && addresses[1] == 32);
    MPI_Type_get_envelope(MPI_UB, &n[0], &n[1], &n[2], &n[3]);
    CHECK(n[3] == MPI_COMBINER_NAMED);
    CHECK(MPI_COMBINER_HVECTOR_INTEGER != MPI_COMBINER_HVECTOR && MPI_COMBINER_HINDEXED_INTEGER != MPI_COMBINER_STRUCT_INTEGER);
    MPI_Type_free(&type);
}

static int calls, seen;

static void handler(MPI_Comm *comm, int *code, ...)
{
    calls += *comm == MPI_COMM_WORLD;
    seen = class_of(*code);
}

static void errors(int size)
{
    MPI_Errhandler mine, before, now;
    MPI_Handler_function *function = handler;
    MPI_Datatype type = MPI_UB;
    CHECK(MPI_Errhandler_get(MPI_COMM_WORLD, &before) == MPI_SUCCESS && before == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_create(function, &mine);
    MPI_Errhandler_set(MPI_COMM_WORLD, mine);
    MPI_Errhandler_get(MPI_COMM_WORLD, &now);
    CHECK(now == mine);
    MPI_Errhandler_free(&now);
    MPI_Errhandler_free(&mine);
    MPI_Send(&size, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    CHECK(calls == 1 && seen == MPI_ERR_RANK);
    MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(class_of(MPI_Address(&size, NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Type_extent(MPI_INT, NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Type_hvector(-1, 1, 8, MPI_INT, &type)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Type_struct(1, NULL, NULL, NULL, &type)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Type_lb((MPI_Datatype)0x1206, (MPI_Aint[1]){0})) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Errhandler_create(NULL, &mine)) == MPI_ERR_ARG);
    type = MPI_UB;
    CHECK(class_of(MPI_Type_free(&type)) == MPI_ERR_TYPE);
    /* It has no data: nothing is sent. */
    CHECK(MPI_Send(&size, 5, MPI_LB, MPI_PROC_NULL, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static int deleted;

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key;
    deleted += *(int *)value + *(int *)extra;
    return MPI_SUCCESS;
}

static int no_copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)in, (void)out, (void)flag;
    return MPI_ERR_OTHER;
}

/* A copy function that fails: no communicator. */
static void refused(void)
{
    MPI_Comm first, second = MPI_COMM_SELF;
    int key, value;
    MPI_Comm_dup(MPI_COMM_SELF, &first);
    MPI_Errhandler_set(first, MPI_ERRORS_RETURN);
    MPI_Keyval_create(no_copy, MPI_NULL_DELETE_FN, &key, NULL);
    MPI_Attr_put(first, key, &value);
    CHECK(class_of(MPI_Comm_dup(first, &second)) == MPI_ERR_OTHER && second == MPI_COMM_NULL);
    MPI_Comm_free(&first);
    MPI_Keyval_free(&key);
}

static void attributes(void)
{
    MPI_Comm copy, none;
    int key, other, flag, value = 5, extra = 30, *found, *bound;
    MPI_Copy_function *dup = MPI_DUP_FN;
    MPI_Delete_function *on_end = on_delete;
    MPI_Keyval_create(dup, on_end, &key, &extra);
    MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, &other, NULL);
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    MPI_Attr_put(copy, key, &value);
    MPI_Attr_put(copy, other, &value);
    MPI_Comm_dup(copy, &none);
    MPI_Attr_get(none, key, &found, &flag);
    CHECK(flag && *found == 5);
    MPI_Attr_get(none, other, &found, &flag);
    CHECK(!flag);
    MPI_Attr_delete(copy, key);
    CHECK(deleted == 35);
    MPI_Comm_free(&none);
    CHECK(deleted == 70);
    MPI_Comm_free(&copy);
    MPI_Keyval_free(&key);
    MPI_Keyval_free(&other);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
    CHECK(flag && *bound >= 32767);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    messages(rank, size);
    bounds();
    contents();
    errors(size);
    attributes();
    refused();
    return finish();
}
