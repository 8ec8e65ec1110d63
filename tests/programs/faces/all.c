/* Everything of MPI that differs between ABIs, as a program of any implementation sees it: handles, statuses, constants,
 * functions of the program, attributes. Prints "ok" from rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("rank %d, line %d: %s\n", rank, __LINE__, #condition);                                              \
            fflush(stdout);                                                                                            \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                                              \
        }                                                                                                              \
    } while (0)

static void largest(void *in, void *inout, int *n, MPI_Datatype *type)
{
    CHECK(*type == MPI_INT);
    for (int i = 0; i < *n; i++)
        if (((int *)in)[i] > ((int *)inout)[i]) ((int *)inout)[i] = ((int *)in)[i];
}

static void of_pairs(void *in, void *inout, int *n, MPI_Datatype *type)
{
    int bytes;
    MPI_Type_size(*type, &bytes);
    CHECK(bytes == 2 * sizeof(double));
    for (int i = 0; i < 2 * *n; i++) ((double *)inout)[i] += ((double *)in)[i];
}

static int copies, deletes;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    CHECK(comm == MPI_COMM_SELF && key != MPI_KEYVAL_INVALID && extra == &copies);
    copies++;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int forget(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value;
    CHECK(extra == &copies);
    deletes++;
    return MPI_SUCCESS;
}

static int no_copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)in, (void)out, (void)flag;
    return MPI_ERR_OTHER;
}

static int raised;

static void on_comm(MPI_Comm *comm, int *code, ...)
{
    int class;
    MPI_Error_class(*code, &class);
    CHECK(*comm == MPI_COMM_SELF);
    raised = class;
}

static void on_file(MPI_File *file, int *code, ...)
{
    CHECK(*file != MPI_FILE_NULL);
    MPI_Error_class(*code, &raised);
}

static void messages(void)
{
    int got = -1, count, next = (rank + 1) % size, before = (rank + size - 1) % size, flag, index;
    MPI_Request two[2];
    MPI_Status statuses[2], status;
    CHECK(MPI_PROC_NULL < 0 && MPI_ANY_SOURCE != MPI_PROC_NULL);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &two[0]);
    MPI_Isend(&rank, 1, MPI_INT, next, 5, MPI_COMM_WORLD, &two[1]);
    MPI_Waitall(2, two, statuses);
    MPI_Get_count(&statuses[0], MPI_INT, &count);
    CHECK(two[0] == MPI_REQUEST_NULL && two[1] == MPI_REQUEST_NULL);
    CHECK(statuses[0].MPI_SOURCE == before && statuses[0].MPI_TAG == 5 && count == 1 && got == before);

    memset(&status, 0x55, sizeof status);
    MPI_Recv(&got, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    CHECK(status.MPI_ERROR == 0x55555555 || status.MPI_ERROR == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == 0);

    MPI_Isend(&rank, 1, MPI_INT, next, 6, MPI_COMM_WORLD, &two[0]);
    do {
        MPI_Iprobe(before, 6, MPI_COMM_WORLD, &flag, &status);
    } while (!flag);
    MPI_Message message;
    MPI_Mprobe(before, 6, MPI_COMM_WORLD, &message, &status);
    CHECK(message != MPI_MESSAGE_NULL && message != MPI_MESSAGE_NO_PROC);
    MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    CHECK(message == MPI_MESSAGE_NULL && got == before);
    two[1] = MPI_REQUEST_NULL;
    MPI_Waitany(2, two, &index, &status);
    CHECK(index == 0);
    MPI_Waitany(2, two, &index, &status);
    CHECK(index == MPI_UNDEFINED);

    MPI_Irecv(&got, 1, MPI_INT, 0, 77, MPI_COMM_SELF, &two[0]);
    MPI_Cancel(&two[0]);
    MPI_Wait(&two[0], &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    MPI_Status_set_cancelled(&status, 0);
    MPI_Status_set_elements(&status, MPI_DOUBLE, 3);
    MPI_Test_cancelled(&status, &flag);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    CHECK(!flag && count == 3);

    int many[100], values[100];
    MPI_Request hundred[100];
    MPI_Status of_hundred[100];
    for (int i = 0; i < 50; i++) {
        values[i] = i;
        MPI_Irecv(&many[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &hundred[i]);
        MPI_Isend(&values[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &hundred[50 + i]);
    }
    MPI_Waitall(100, hundred, of_hundred);
    for (int i = 0; i < 50; i++) CHECK(many[i] == i && of_hundred[i].MPI_TAG == i && hundred[i] == MPI_REQUEST_NULL);
}

static void collectives(void)
{
    int sum, most, *all = malloc(sizeof(int) * (size_t)size), minus = -rank;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size * (size - 1) / 2);
    struct {
        double value;
        int index;
    } mine = {-rank, rank}, best;
    MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    CHECK(best.index == size - 1);
    MPI_Op op;
    MPI_Op_create(largest, 1, &op);
    MPI_Allreduce(&rank, &most, 1, MPI_INT, op, MPI_COMM_WORLD);
    CHECK(most == size - 1);
    MPI_Op_free(&op);
    CHECK(op == MPI_OP_NULL);
    MPI_Datatype pair;
    double values[2] = {1, rank}, totals[2];
    MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(of_pairs, 1, &op);
    MPI_Allreduce(values, totals, 1, pair, op, MPI_COMM_WORLD);
    CHECK(totals[0] == size && totals[1] == sum);
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
    CHECK(pair == MPI_DATATYPE_NULL);
    for (int i = 0; i < size; i++) all[i] = rank;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) CHECK(all[i] == i);
    MPI_Datatype *types = malloc(sizeof(MPI_Datatype) * (size_t)size);
    int *counts = malloc(sizeof(int) * (size_t)size), *places = malloc(sizeof(int) * (size_t)size);
    int *from = malloc(sizeof(int) * (size_t)size);
    for (int i = 0; i < size; i++) types[i] = MPI_INT, counts[i] = 1, places[i] = 4 * i, from[i] = 100 * rank + i;
    MPI_Request request;
    MPI_Ialltoallw(from, counts, places, types, all, counts, places, types, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++) CHECK(all[i] == 100 * i + rank);
    MPI_Reduce(rank ? &minus : MPI_IN_PLACE, &minus, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    CHECK(rank || minus == 1 - size);
    free(from), free(places), free(counts), free(types), free(all);
}

static void communicators(void)
{
    MPI_Comm part, line, again, ring;
    int result, dims[1] = {size}, open[1] = {0}, below, above, kind, flag, *upper, *value;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2 ? MPI_UNDEFINED : 0, rank, &part);
    CHECK((part == MPI_COMM_NULL) == rank % 2);
    if (part != MPI_COMM_NULL) {
        MPI_Comm_compare(part, MPI_COMM_WORLD, &result);
        CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));
        MPI_Comm_free(&part);
    }
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result);
    CHECK(result == MPI_IDENT);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &again);
    MPI_Comm_compare(MPI_COMM_WORLD, again, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_free(&again);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, open, 0, &line);
    MPI_Cart_shift(line, 0, 1, &below, &above);
    CHECK(below == (rank ? rank - 1 : MPI_PROC_NULL) && above == (rank < size - 1 ? rank + 1 : MPI_PROC_NULL));
    MPI_Topo_test(line, &kind);
    CHECK(kind == MPI_CART);
    MPI_Topo_test(MPI_COMM_WORLD, &kind);
    CHECK(kind == MPI_UNDEFINED);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &ring);
    int got = -1, one = 1;
    MPI_Datatype type = MPI_INT;
    MPI_Aint place = 0;
    MPI_Neighbor_alltoallw(&rank, &one, &place, &type, &got, &one, &place, &type, ring);
    CHECK(got == before);
    MPI_Comm_free(&ring);
    MPI_Comm_free(&line);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper, &flag);
    CHECK(flag && *upper >= 32767);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag);
    CHECK(flag && (*value == MPI_ANY_SOURCE || *value == rank));
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag);
    MPI_Group all, few;
    int ranks[2] = {0, MPI_PROC_NULL}, found[2];
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, ranks, &few);
    MPI_Group_translate_ranks(few, 2, ranks, all, found);
    CHECK(found[0] == 0 && found[1] == MPI_PROC_NULL);
    MPI_Group_difference(few, all, &few);
    CHECK(few == MPI_GROUP_EMPTY);
    MPI_Group_free(&all);
    CHECK(all == MPI_GROUP_NULL);
}

static void attributes(void)
{
    int key, flag;
    void *value;
    MPI_Comm twin;
    MPI_Comm_create_keyval(copy, forget, &key, &copies);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, (void *)41);
    MPI_Comm_dup(MPI_COMM_SELF, &twin);
    MPI_Comm_get_attr(twin, key, &value, &flag);
    CHECK(flag && value == (void *)42 && copies == 1);
    MPI_Comm_free(&twin);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    CHECK(deletes == 2);
    MPI_Comm_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    MPI_Comm_dup(MPI_COMM_SELF, &twin);
    MPI_Comm_get_attr(twin, key, &value, &flag);
    CHECK(flag && value == &key);
    MPI_Comm_free(&twin);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    MPI_Comm_free_keyval(&key);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &key, NULL);
    MPI_Datatype type, other;
    MPI_Type_dup(MPI_INT, &type);
    MPI_Type_set_attr(type, key, &key);
    MPI_Type_dup(type, &other);
    MPI_Type_get_attr(other, key, &value, &flag);
    CHECK(!flag);
    MPI_Type_free(&type);
    MPI_Type_free(&other);
    MPI_Type_free_keyval(&key);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_create_keyval(no_copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    CHECK(MPI_Comm_dup(MPI_COMM_SELF, &twin) != MPI_SUCCESS);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    MPI_Comm_free_keyval(&key);
}

static void errors(void)
{
    MPI_Errhandler handler, old;
    char text[MPI_MAX_ERROR_STRING];
    int length, class, code, x = 0;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    code = MPI_Send(&x, 1, MPI_INT, 77, 0, MPI_COMM_SELF);
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    CHECK(class == MPI_ERR_RANK && length == (int)strlen(text) && length < MPI_MAX_ERROR_STRING);
    code = MPI_Send(&x, -1, MPI_INT, 0, 0, MPI_COMM_SELF);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_COUNT);
    code = MPI_Send(&x, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TYPE);
    MPI_Comm_create_errhandler(on_comm, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &old);
    CHECK(old == handler);
    MPI_Errhandler_free(&old);
    MPI_Errhandler_free(&handler);
    CHECK(handler == MPI_ERRHANDLER_NULL);
    MPI_Send(&x, 1, MPI_INT, 0, -5, MPI_COMM_SELF);
    CHECK(raised == MPI_ERR_TAG);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int own, last, flag, *used;
    MPI_Add_error_class(&own);
    CHECK(own > MPI_ERR_LASTCODE);
    MPI_Add_error_code(own, &last);
    MPI_Add_error_string(last, "mine");
    MPI_Error_string(last, text, &length);
    CHECK(!strcmp(text, "mine"));
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &used, &flag);
    CHECK(*used >= last);
    char a = 'a', room;
    MPI_Request two[2];
    MPI_Status statuses[2];
    MPI_Irecv(&room, 0, MPI_CHAR, 0, 1, MPI_COMM_SELF, &two[0]);
    MPI_Isend(&a, 1, MPI_CHAR, 0, 1, MPI_COMM_SELF, &two[1]);
    code = MPI_Waitall(2, two, statuses);
    CHECK(code == MPI_ERR_IN_STATUS);
    MPI_Error_class(statuses[0].MPI_ERROR, &class);
    CHECK(class == MPI_ERR_TRUNCATE && statuses[1].MPI_ERROR == MPI_SUCCESS);
}

static void datatypes(void)
{
    MPI_Datatype vector, inner, array;
    int integers[16], n, addresses, types, combiner;
    MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &vector);
    MPI_Type_get_envelope(vector, &n, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_VECTOR && n == 3 && types == 1);
    MPI_Type_get_contents(vector, n, addresses, types, integers, NULL, &inner);
    CHECK(inner == MPI_DOUBLE && integers[0] == 3 && integers[2] == 2);
    MPI_Type_free(&vector);
    int sizes[2] = {4, 6}, distributions[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, processes[2] = {1, 1};
    int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, 2};
    MPI_Type_create_darray(1, 0, 2, sizes, distributions, arguments, processes, MPI_ORDER_FORTRAN, MPI_INT, &array);
    MPI_Type_get_envelope(array, &n, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_DARRAY && n == 12);
    MPI_Type_get_contents(array, n, addresses, types, integers, NULL, &inner);
    CHECK(integers[5] == MPI_DISTRIBUTE_BLOCK && integers[6] == MPI_DISTRIBUTE_CYCLIC);
    CHECK(integers[7] == MPI_DISTRIBUTE_DFLT_DARG && integers[8] == 2 && integers[11] == MPI_ORDER_FORTRAN && inner == MPI_INT);
    MPI_Type_free(&array);
    MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &inner);
    MPI_Type_size(inner, &n);
    CHECK(n == 8);
    MPI_Type_size(MPI_LONG_DOUBLE_INT, &n);
    CHECK(n == sizeof(long double) + sizeof(int));
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Type_get_name(MPI_UNSIGNED_LONG, name, &n);
    CHECK(!strcmp(name, "MPI_UNSIGNED_LONG"));
}

static void windows(void)
{
    MPI_Win win;
    int *base, *what, flag, next = (rank + 1) % size, before = (rank + size - 1) % size, got;
    MPI_Win_allocate(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &what, &flag);
    CHECK(flag && *what == MPI_WIN_FLAVOR_ALLOCATE);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &what, &flag);
    CHECK(flag && *what == MPI_WIN_UNIFIED);
    base[0] = base[1] = 0;
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    CHECK(base[0] == before);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    MPI_Fetch_and_op(&rank, &got, MPI_INT, next, 1, MPI_SUM, win);
    MPI_Win_unlock(next, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    CHECK(got == 0 && base[1] == before);
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
    CHECK(win == MPI_WIN_NULL);
}

static void files(const char *name)
{
    MPI_File file;
    MPI_Status status;
    MPI_Errhandler handler;
    MPI_Offset offset;
    int got = -1, mode, count;
    MPI_File_create_errhandler(on_file, &handler);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    MPI_File_set_size(file, 0);
    MPI_File_get_amode(file, &mode);
    CHECK(mode == (MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE));
    MPI_File_write_at_all(file, 4 * rank, &rank, 1, MPI_INT, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 1);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_File_seek(file, -4, MPI_SEEK_END);
    MPI_File_read(file, &got, 1, MPI_INT, &status);
    CHECK(got == size - 1);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    MPI_File_get_position(file, &offset);
    CHECK(offset == 0);
    MPI_File_set_errhandler(file, handler);
    raised = MPI_SUCCESS;
    CHECK(MPI_File_seek(file, -1, MPI_SEEK_SET) != MPI_SUCCESS && raised == MPI_ERR_ARG);
    MPI_Errhandler_free(&handler);
    MPI_File_close(&file);
    CHECK(file == MPI_FILE_NULL);
    CHECK(MPI_File_open(MPI_COMM_SELF, "/nowhere/at/all", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS);
}

static int answer(void *extra, MPI_Status *status)
{
    MPI_Status_set_elements(status, MPI_INT, *(int *)extra);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_PROC_NULL;
    status->MPI_TAG = 9;
    return MPI_SUCCESS;
}

static int release(void *extra)
{
    *(int *)extra = -1;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    (void)extra, (void)complete;
    return MPI_SUCCESS;
}

static void others(void)
{
    MPI_Request request;
    MPI_Status status;
    int state = 6, count, length, flag, level;
    MPI_Grequest_start(answer, release, cancel, &state, &request);
    MPI_Grequest_complete(request);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 6 && state == -1 && status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == 9);
    char name[MPI_MAX_PROCESSOR_NAME], library[MPI_MAX_LIBRARY_VERSION_STRING], key[MPI_MAX_INFO_KEY], value[20];
    MPI_Get_processor_name(name, &length);
    CHECK(length == (int)strlen(name));
    MPI_Get_library_version(library, &length);
    CHECK(!strncmp(library, "Margay", 6));
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "colour", "blue");
    MPI_Info_get_nthkey(info, 0, key);
    MPI_Info_get(info, key, 19, value, &flag);
    CHECK(flag && !strcmp(key, "colour") && !strcmp(value, "blue"));
    MPI_Info_free(&info);
    CHECK(info == MPI_INFO_NULL);
    MPI_Query_thread(&level);
    CHECK(level == MPI_THREAD_MULTIPLE);
    void *memory;
    MPI_Alloc_mem(100, MPI_INFO_NULL, &memory);
    MPI_Free_mem(memory);
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    messages();
    collectives();
    communicators();
    attributes();
    errors();
    datatypes();
    windows();
    files(argc > 1 ? argv[1] : "all.out");
    others();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("ok %d\n", size);
    MPI_Finalize();
    return 0;
}
