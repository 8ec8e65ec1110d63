/* Groups, communicators, inter-communicators and collectives on them, attributes. Two ranks or more. */
#include "check.h"

static int rank, size;
/* The ranks are on several hosts, two on each: any argument says so. */
static int on_hosts;

static int sum_of(MPI_Comm comm)
{
    int one = rank, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static void groups(void)
{
    MPI_Group world, low, high, other;
    int n, r, result, ranks[3], there[3];
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(world, &n);
    MPI_Group_rank(world, &r);
    CHECK(n == size && r == rank);
    MPI_Group_range_incl(world, 1, (int[][3]){{0, size / 2, 1}}, &low);
    MPI_Group_difference(world, low, &high);
    MPI_Group_union(high, low, &other);
    MPI_Group_compare(world, other, &result);
    CHECK(result == (size / 2 + 1 == size ? MPI_IDENT : MPI_SIMILAR));
    MPI_Group_free(&other);
    MPI_Group_intersection(high, low, &other);
    CHECK(other == MPI_GROUP_EMPTY);
    MPI_Group_free(&other);
    MPI_Group_excl(world, 1, (int[]){0}, &other);
    ranks[0] = 0;
    ranks[1] = size - 1;
    ranks[2] = MPI_PROC_NULL;
    MPI_Group_translate_ranks(world, 3, ranks, other, there);
    CHECK(there[0] == MPI_UNDEFINED && there[1] == size - 2 && there[2] == MPI_PROC_NULL);
    MPI_Group_free(&other);
    MPI_Group_range_excl(world, 1, (int[][3]){{size - 1, 0, -1}}, &other);
    CHECK(other == MPI_GROUP_EMPTY);
    MPI_Group_free(&low);
    if (high != MPI_GROUP_EMPTY)
        MPI_Group_free(&high);
    MPI_Group_free(&world);
    CHECK(world == MPI_GROUP_NULL);
}

static void communicators(void)
{
    MPI_Comm twin, half, part, later;
    MPI_Group world, even;
    MPI_Request request;
    char name[MPI_MAX_OBJECT_NAME];
    int result, n, r, length, buffer = rank, x = -1;

    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Comm_compare(MPI_COMM_WORLD, twin, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_compare(twin, twin, &result);
    CHECK(result == MPI_IDENT);
    /* The same envelope on two communicators: they do not mix. */
    if (rank == 0) {
        int a = 1, b = 2;
        MPI_Send(&a, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Send(&b, 1, MPI_INT, 1, 0, twin);
    } else if (rank == 1) {
        MPI_Recv(&x, 1, MPI_INT, 0, 0, twin, MPI_STATUS_IGNORE);
        CHECK(x == 2);
        MPI_Recv(&x, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(x == 1);
    }
    MPI_Comm_set_name(twin, "twin");
    MPI_Comm_get_name(twin, name, &length);
    CHECK(strcmp(name, "twin") == 0 && length == 4);
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0);

    MPI_Comm_split(twin, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &r);
    MPI_Comm_size(half, &n);
    CHECK(n == (size + 1 - rank % 2) / 2 && r == n - 1 - rank / 2);
    x = sum_of(half);
    int expected = 0;
    for (int i = rank % 2; i < size; i += 2)
        expected += i;
    CHECK(x == expected);
    MPI_Comm_free(&half);
    MPI_Comm_split(twin, rank == 0 ? MPI_UNDEFINED : 5, 0, &half);
    CHECK((half == MPI_COMM_NULL) == (rank == 0));
    if (half != MPI_COMM_NULL)
        MPI_Comm_free(&half);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &half);
    MPI_Comm_size(half, &n);
    CHECK(on_hosts ? n < size : n == size);
    MPI_Comm_free(&half);

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, (int[][3]){{0, size - 1, 2}}, &even);
    MPI_Comm_create(MPI_COMM_WORLD, even, &part);
    CHECK((part == MPI_COMM_NULL) == (rank % 2 == 1));
    if (part != MPI_COMM_NULL) {
        MPI_Comm_rank(part, &r);
        CHECK(r == rank / 2);
        MPI_Comm_disconnect(&part);
        CHECK(part == MPI_COMM_NULL);
    }
    if (rank % 2 == 0) {
        for (int i = 0; i < 3; i++) {
            MPI_Comm_create_group(MPI_COMM_WORLD, even, 7, &part);
            MPI_Comm_size(part, &n);
            CHECK(n == (size + 1) / 2);
            sum_of(part);
            MPI_Comm_free(&part);
        }
    }
    MPI_Group_free(&even);
    MPI_Group_free(&world);

    MPI_Comm_idup(twin, &later, &request);
    MPI_Bcast(&buffer, 1, MPI_INT, 0, twin);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum_of(later) == size * (size - 1) / 2);
    MPI_Comm_free(&later);
    MPI_Comm_free(&twin);
    /* Many of them, so that numbers and handles are used again. */
    for (int i = 0; i < 300; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &twin);
        MPI_Comm_free(&twin);
    }
}

static void between_groups(void)
{
    MPI_Comm half, inter, merged, twin, parts;
    MPI_Request request;
    int upper = rank >= size / 2, first = upper ? size / 2 : 0, ours = upper ? size - size / 2 : size / 2, n, r, flag;
    int theirs = size - ours, other_first = upper ? 0 : size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other_first, 12, &inter);
    MPI_Comm_test_inter(inter, &flag);
    MPI_Comm_remote_size(inter, &n);
    MPI_Comm_rank(inter, &r);
    CHECK(flag && n == theirs && r == rank - first);
    /* Point to point: ranks are those of the other group. */
    if (r < theirs && r < ours) {
        int x = -1;
        MPI_Sendrecv(&rank, 1, MPI_INT, r, 0, &x, 1, MPI_INT, r, 0, inter, MPI_STATUS_IGNORE);
        CHECK(x == other_first + r);
    }
    int x = 0, expected = 0, all[64];
    for (int i = 0; i < theirs; i++)
        expected += other_first + i;
    CHECK(sum_of(inter) == expected);
    MPI_Barrier(inter);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int i = 0; i < theirs; i++)
        CHECK(all[i] == other_first + i);
    int out[64];
    for (int i = 0; i < theirs; i++)
        out[i] = rank * 100 + i;
    MPI_Alltoall(out, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int i = 0; i < theirs; i++)
        CHECK(all[i] == (other_first + i) * 100 + r);
    /* From rank 0 of the lower group to the upper one. */
    x = rank == 0 ? 42 : -1;
    MPI_Bcast(&x, 1, MPI_INT, upper ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
    CHECK(x == (upper || rank == 0 ? 42 : -1));
    x = -1;
    MPI_Reduce(&rank, &x, 1, MPI_INT, MPI_SUM, upper ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
    if (rank == 0)
        CHECK(x == expected);
    MPI_Gather(&rank, 1, MPI_INT, all, 1, MPI_INT, upper ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
    if (rank == 0)
        for (int i = 0; i < theirs; i++)
            CHECK(all[i] == size / 2 + i);
    MPI_Scatter(out, 1, MPI_INT, &x, 1, MPI_INT, upper ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
    if (upper)
        CHECK(x == r);

    MPI_Comm_dup(inter, &twin);
    CHECK(sum_of(twin) == expected);
    MPI_Comm_free(&twin);
    MPI_Comm_idup(inter, &twin, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum_of(twin) == expected);
    MPI_Comm_free(&twin);
    MPI_Intercomm_merge(inter, upper, &merged);
    MPI_Comm_rank(merged, &r);
    CHECK(r == rank && sum_of(merged) == size * (size - 1) / 2);
    MPI_Comm_free(&merged);
    MPI_Intercomm_merge(inter, !upper, &merged);
    MPI_Comm_rank(merged, &r);
    CHECK(r == (upper ? rank - size / 2 : rank + size - size / 2));
    MPI_Comm_free(&merged);
    /* Only the first of each group. */
    MPI_Comm_split(inter, rank == first ? 0 : MPI_UNDEFINED, 0, &parts);
    CHECK((parts != MPI_COMM_NULL) == (rank == first));
    if (parts != MPI_COMM_NULL) {
        MPI_Comm_remote_size(parts, &n);
        CHECK(n == 1 && sum_of(parts) == other_first);
        MPI_Comm_free(&parts);
    }
    MPI_Comm_split_type(inter, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &parts);
    if (parts != MPI_COMM_NULL) {
        MPI_Comm_remote_size(parts, &n);
        CHECK(on_hosts ? n < theirs : n == theirs);
        MPI_Comm_free(&parts);
    }
    CHECK(on_hosts || parts == MPI_COMM_NULL);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static char trace[64];

static int note_delete(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    strcat(trace, value);
    return MPI_SUCCESS;
}

static int refuse(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    return *(int *)value ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void attributes(void)
{
    int a, b, none, refusing, flag, keep = 1;
    MPI_Comm comm, twin;
    void *value;
    int *number;
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, note_delete, &a, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note_delete, &b, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &none, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuse, &refusing, NULL);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_attr(comm, a, "a");
    MPI_Comm_set_attr(comm, b, "b");
    MPI_Comm_set_attr(comm, none, NULL);
    MPI_Comm_get_attr(comm, none, &value, &flag);
    CHECK(flag && value == NULL);
    MPI_Comm_dup(comm, &twin);
    MPI_Comm_get_attr(twin, a, &value, &flag);
    CHECK(flag && strcmp(value, "a") == 0);
    MPI_Comm_get_attr(twin, b, &value, &flag);
    CHECK(!flag);
    MPI_Comm_free(&twin);
    CHECK(strcmp(trace, "a") == 0);
    MPI_Comm_set_attr(comm, b, "c"); /* replaces, so deletes */
    CHECK(strcmp(trace, "ab") == 0);
    MPI_Comm_free(&comm);
    CHECK(strlen(trace) == 4 && strchr(trace, 'c'));
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_attr(comm, refusing, &keep);
    CHECK(MPI_Comm_free(&comm) != MPI_SUCCESS && comm != MPI_COMM_NULL);
    keep = 0;
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    MPI_Comm_free_keyval(&a);
    MPI_Comm_free_keyval(&b);
    MPI_Comm_free_keyval(&none);
    MPI_Comm_free_keyval(&refusing);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag);
    CHECK(flag && *number >= 32767);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &number, &flag);
    CHECK(flag && *number >= size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &number, &flag);
    CHECK(flag && *number == !on_hosts);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
    CHECK(flag && *number == 0);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag);
    CHECK(flag && *number >= MPI_ERR_LASTCODE);
}

int main(int argc, char **argv)
{
    on_hosts = argc > 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    groups();
    communicators();
    between_groups();
    attributes();
    return finish();
}
