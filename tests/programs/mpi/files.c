/* Files: chapter 14, function by function. The argument is a name for the file. */
#include "check.h"

static int rank, size;
static char name[1000];

static MPI_File open_file(int amode)
{
    MPI_File file;
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    return file;
}

static int opens_with(int amode, const char *path)
{
    MPI_File file = MPI_FILE_NULL;
    int code = MPI_File_open(MPI_COMM_WORLD, path, amode, MPI_INFO_NULL, &file);
    if (code == MPI_SUCCESS) MPI_File_close(&file);
    else CHECK(file == MPI_FILE_NULL);
    return class_of(code);
}

static void opening(void)
{
    char other[1100], message[MPI_MAX_ERROR_STRING];
    int length, amode;
    snprintf(other, sizeof other, "%s/nothing/here", name);
    CHECK(opens_with(MPI_MODE_RDONLY, name) == MPI_ERR_NO_SUCH_FILE);
    int code = MPI_File_delete(name, MPI_INFO_NULL);
    CHECK(class_of(code) == MPI_ERR_NO_SUCH_FILE);
    MPI_Error_string(code, message, &length);
    CHECK(strstr(message, "cannot delete file") && strstr(message, name));
    CHECK(opens_with(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, name) == MPI_SUCCESS);
    CHECK(opens_with(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, name) == MPI_ERR_FILE_EXISTS);
    CHECK(opens_with(MPI_MODE_RDWR | MPI_MODE_CREATE, other) == MPI_ERR_BAD_FILE);
    CHECK(opens_with(MPI_MODE_RDONLY, "/") == MPI_ERR_BAD_FILE);
    CHECK(opens_with(MPI_MODE_RDONLY, "") == MPI_ERR_BAD_FILE);
    CHECK(opens_with(MPI_MODE_CREATE, name) == MPI_ERR_AMODE);
    CHECK(opens_with(MPI_MODE_RDONLY | MPI_MODE_RDWR, name) == MPI_ERR_AMODE);
    CHECK(opens_with(MPI_MODE_RDONLY | MPI_MODE_CREATE, name) == MPI_ERR_AMODE);
    CHECK(opens_with(MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL, name) == MPI_ERR_AMODE);
    if (size > 1) {
        MPI_File file;
        amode = rank ? MPI_MODE_RDONLY : MPI_MODE_RDWR;
        code = MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &file);
        CHECK(class_of(code) == MPI_ERR_NOT_SAME);
    }
    MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    CHECK(MPI_File_get_amode(file, &amode) == MPI_SUCCESS && amode == (MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE));
    MPI_Group group, world;
    int result;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    CHECK(MPI_File_get_group(file, &group) == MPI_SUCCESS);
    MPI_Group_compare(group, world, &result);
    CHECK(result == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    CHECK(MPI_File_fromint(MPI_File_toint(file)) == file);
    MPI_File old = file;
    CHECK(MPI_File_close(&file) == MPI_SUCCESS && file == MPI_FILE_NULL);
    CHECK(opens_with(MPI_MODE_RDONLY, name) == MPI_ERR_NO_SUCH_FILE);
    MPI_Offset bytes;
    CHECK(class_of(MPI_File_get_size(old, &bytes)) == MPI_ERR_FILE);
    CHECK(class_of(MPI_File_get_size(MPI_FILE_NULL, &bytes)) == MPI_ERR_FILE);
}

static void sizes(void)
{
    MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Offset bytes = 77;
    CHECK(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == 0);
    CHECK(MPI_File_set_size(file, 1000) == MPI_SUCCESS);
    CHECK(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == 1000);
    CHECK(MPI_File_preallocate(file, 5000) == MPI_SUCCESS);
    CHECK(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == 5000);
    CHECK(MPI_File_preallocate(file, 10) == MPI_SUCCESS);
    CHECK(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == 5000);
    CHECK(class_of(MPI_File_set_size(file, -1)) == MPI_ERR_ARG);
    if (size > 1) CHECK(class_of(MPI_File_set_size(file, rank)) == MPI_ERR_NOT_SAME);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    /* Positions: behind the end of a view, before its begin. */
    CHECK(MPI_File_seek(file, 5, MPI_SEEK_SET) == MPI_SUCCESS);
    CHECK(MPI_File_seek(file, -3, MPI_SEEK_CUR) == MPI_SUCCESS);
    CHECK(MPI_File_get_position(file, &bytes) == MPI_SUCCESS && bytes == 2);
    CHECK(class_of(MPI_File_seek(file, -3, MPI_SEEK_CUR)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_seek(file, 0, 12345)) == MPI_ERR_ARG);
    CHECK(MPI_File_seek(file, -10, MPI_SEEK_END) == MPI_SUCCESS);
    CHECK(MPI_File_get_position(file, &bytes) == MPI_SUCCESS && bytes == 4990);
    CHECK(MPI_File_seek_shared(file, -4, MPI_SEEK_END) == MPI_SUCCESS);
    CHECK(MPI_File_get_position_shared(file, &bytes) == MPI_SUCCESS && bytes == 4996);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_seek_shared(file, 2, MPI_SEEK_CUR) == MPI_SUCCESS);
    CHECK(MPI_File_get_position_shared(file, &bytes) == MPI_SUCCESS && bytes == 4998);
    if (size > 1) CHECK(class_of(MPI_File_seek_shared(file, rank, MPI_SEEK_SET)) == MPI_ERR_NOT_SAME);
    MPI_File_close(&file);
    /* Appending begins at the end. */
    file = open_file(MPI_MODE_WRONLY | MPI_MODE_CREATE);
    MPI_File_set_size(file, 30);
    MPI_File_close(&file);
    file = open_file(MPI_MODE_WRONLY | MPI_MODE_APPEND | MPI_MODE_DELETE_ON_CLOSE);
    CHECK(MPI_File_get_position(file, &bytes) == MPI_SUCCESS && bytes == 30);
    CHECK(MPI_File_get_position_shared(file, &bytes) == MPI_SUCCESS && bytes == 30);
    char c = 1;
    CHECK(class_of(MPI_File_read(file, &c, 1, MPI_CHAR, MPI_STATUS_IGNORE)) == MPI_ERR_ACCESS);
    MPI_File_close(&file);
}

static void views(void)
{
    MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Offset disp;
    MPI_Datatype etype, filetype, pair, vector, back;
    char rep[MPI_MAX_DATAREP_STRING];
    CHECK(MPI_File_get_view(file, &disp, &etype, &filetype, rep) == MPI_SUCCESS);
    CHECK(disp == 0 && etype == MPI_BYTE && filetype == MPI_BYTE && !strcmp(rep, "native"));
    MPI_Type_contiguous(2, MPI_INT, &pair);
    CHECK(class_of(MPI_File_set_view(file, 0, pair, pair, "native", MPI_INFO_NULL)) == MPI_ERR_TYPE);
    MPI_Type_commit(&pair);
    MPI_Type_vector(3, 1, 2, pair, &vector);
    MPI_Type_commit(&vector);
    CHECK(MPI_File_set_view(file, 100, pair, vector, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_get_view(file, &disp, &etype, &filetype, rep) == MPI_SUCCESS);
    MPI_Count bytes, extent;
    MPI_Aint lb, span;
    MPI_Type_size_c(etype, &bytes);
    MPI_Type_get_extent(filetype, &lb, &span);
    CHECK(disp == 100 && bytes == 8 && span == 40);
    MPI_Type_free(&etype);
    MPI_Type_free(&filetype);
    for (int i = 0; i < 7; i++) {
        CHECK(MPI_File_get_byte_offset(file, i, &disp) == MPI_SUCCESS);
        CHECK(disp == 100 + i / 3 * 40 + i % 3 * 16);
    }
    CHECK(class_of(MPI_File_get_byte_offset(file, -1, &disp)) == MPI_ERR_ARG);
    CHECK(MPI_File_get_type_extent(file, MPI_DOUBLE, &span) == MPI_SUCCESS && span == 8);
    CHECK(MPI_File_get_type_extent_c(file, vector, &extent) == MPI_SUCCESS && extent == 40);
    /* Three bytes are no whole etype; an int is none either. */
    int one = 1;
    CHECK(class_of(MPI_File_write_at(file, 0, &one, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_write_at(file, -1, &one, 0, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_write(file, &one, -1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_File_write(file, NULL, 2, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_BUFFER);
    CHECK(class_of(MPI_File_set_view(file, -5, MPI_INT, MPI_INT, "native", MPI_INFO_NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_INT, "native", MPI_INFO_NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "morse", MPI_INFO_NULL)) == MPI_ERR_UNSUPPORTED_DATAREP);
    int lengths[2] = {1, 1}, places[2] = {3, 0};
    MPI_Type_indexed(2, lengths, places, MPI_INT, &back);
    MPI_Type_commit(&back);
    CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, back, "native", MPI_INFO_NULL)) == MPI_ERR_IO);
    if (size > 1) {
        MPI_Datatype mine = rank ? MPI_INT : MPI_DOUBLE;
        CHECK(class_of(MPI_File_set_view(file, 0, mine, mine, "native", MPI_INFO_NULL)) == MPI_ERR_NOT_SAME);
    }
    MPI_Type_free(&back);
    MPI_Type_free(&vector);
    MPI_Type_free(&pair);
    MPI_File_close(&file);
}

/* Columns of a matrix: a filetype has one of them and reaches over those that follow it, as what it is repeated by is one
   element. The programs that make such filetypes often use one repetition only. */
static void columns(void)
{
    enum { ROWS = 4 };
    MPI_Datatype column, filetype;
    MPI_Type_vector(ROWS, 1, 2 * size, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, sizeof(int), &filetype);
    MPI_Type_commit(&filetype);
    for (int way = 0; way < 5; way++) {
        int mine[2 * ROWS], got[2 * ROWS], *all = malloc(2 * sizeof(int) * ROWS * size);
        MPI_Status status;
        MPI_Request request;
        MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
        MPI_File_set_atomicity(file, way == 4);
        CHECK(MPI_File_set_view(file, 2 * sizeof(int) * rank, MPI_INT, filetype, "native", MPI_INFO_NULL) == MPI_SUCCESS);
        for (int i = 0; i < 2 * ROWS; i++)
            mine[i] = 100 * rank + i;
        memset(got, 0, sizeof got);
        switch (way) {
        case 0: /* One column a call. */
            MPI_File_write_at_all(file, 0, mine, ROWS, MPI_INT, MPI_STATUS_IGNORE);
            MPI_File_write_at_all(file, ROWS, mine + ROWS, ROWS, MPI_INT, MPI_STATUS_IGNORE);
            break;
        case 1:
            MPI_File_write_all(file, mine, 2 * ROWS, MPI_INT, MPI_STATUS_IGNORE);
            break;
        case 2: /* From the middle of one to the middle of the next. */
            MPI_File_write_at_all(file, 0, mine, ROWS / 2, MPI_INT, MPI_STATUS_IGNORE);
            MPI_File_iwrite_at_all(file, ROWS / 2, mine + ROWS / 2, ROWS, MPI_INT, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_File_write_at_all(file, ROWS + ROWS / 2, mine + ROWS + ROWS / 2, ROWS / 2, MPI_INT, MPI_STATUS_IGNORE);
            break;
        default:
            MPI_File_write(file, mine, 2 * ROWS, MPI_INT, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (way % 2)
            MPI_File_read_at_all(file, 0, got, 2 * ROWS, MPI_INT, &status);
        else
            MPI_File_read_at(file, 0, got, 2 * ROWS, MPI_INT, &status);
        int count = -1;
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == 2 * ROWS && !memcmp(mine, got, sizeof mine));
        CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
        CHECK(MPI_File_read_at_all(file, 0, all, 2 * ROWS * size, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        for (int row = 0; row < ROWS; row++)
            for (int at = 0; at < 2 * size; at++)
                CHECK(all[row * 2 * size + at] == 100 * (at / 2) + at % 2 * ROWS + row);
        MPI_File_close(&file);
        free(all);
    }
    MPI_Type_free(&filetype);
    MPI_Type_free(&column);
}

static void hints(void)
{
    MPI_Info info, used;
    MPI_File file;
    char value[100];
    int found, length;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_buffer_size", "12345");
    MPI_Info_set(info, "cb_nodes", "1");
    MPI_Info_set(info, "access_style", "read_once");
    MPI_Info_set(info, "file_perm", "600");
    MPI_Info_set(info, "what_is_this", "unknown");
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, info, &file) == MPI_SUCCESS);
    MPI_Info_set(info, "romio_cb_write", "enable");
    CHECK(MPI_File_set_info(file, info) == MPI_SUCCESS);
    CHECK(MPI_File_get_info(file, &used) == MPI_SUCCESS);
    const char *expected[][2] = {{"cb_buffer_size", "12345"}, {"cb_nodes", "1"},       {"access_style", "read_once"},
                                 {"file_perm", "600"},        {"romio_cb_write", "enable"}, {"romio_ds_write", "disable"}};
    for (int i = 0; i < 6; i++) {
        length = sizeof value;
        MPI_Info_get_string(used, expected[i][0], &length, value, &found);
        CHECK(found && !strcmp(value, expected[i][1]));
    }
    MPI_Info_get_string(used, "what_is_this", &length, value, &found);
    CHECK(!found);
    MPI_Info_free(&used);
    MPI_Info_free(&info);
    MPI_File_close(&file);
}

static int handled, handled_code;
static MPI_File handled_file;

static void handler(MPI_File *file, int *code, ...)
{
    handled++, handled_code = *code, handled_file = *file;
}

static void handlers(void)
{
    MPI_Errhandler mine, now;
    MPI_File file;
    CHECK(MPI_File_get_errhandler(MPI_FILE_NULL, &now) == MPI_SUCCESS && now == MPI_ERRORS_RETURN);
    CHECK(MPI_File_create_errhandler(handler, &mine) == MPI_SUCCESS);
    CHECK(MPI_File_set_errhandler(MPI_FILE_NULL, mine) == MPI_SUCCESS);
    CHECK(opens_with(MPI_MODE_RDONLY, name) == MPI_ERR_NO_SUCH_FILE);
    CHECK(handled == 1 && handled_code == MPI_ERR_NO_SUCH_FILE && handled_file == MPI_FILE_NULL);
    file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    CHECK(class_of(MPI_File_seek(file, -1, MPI_SEEK_SET)) == MPI_ERR_ARG);
    CHECK(handled == 2 && handled_code == MPI_ERR_ARG && handled_file == file);
    CHECK(MPI_File_call_errhandler(file, MPI_ERR_QUOTA) == MPI_SUCCESS);
    CHECK(handled == 3 && handled_code == MPI_ERR_QUOTA);
    CHECK(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_seek(file, -1, MPI_SEEK_SET)) == MPI_ERR_ARG && handled == 3);
    /* A wrong request is reported through the file's handler, too. */
    MPI_File_set_errhandler(file, mine);
    MPI_File_close(&file);
    file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE);
    MPI_File_close(&file);
    file = open_file(MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Request request;
    int x = 0;
    CHECK(MPI_File_iwrite_all(file, &x, 1, MPI_INT, &request) == MPI_SUCCESS);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_READ_ONLY);
    CHECK(handled == 4 && handled_code == MPI_ERR_READ_ONLY && handled_file == file);
    MPI_File_close(&file);
    CHECK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    MPI_Errhandler_free(&mine);
}

static void pointers(void)
{
    MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_Status status;
    MPI_Offset position;
    int three[3] = {rank, rank + 100, rank + 200}, got, *all = malloc(sizeof(int) * 3 * (size_t)size), seen = 0;
    /* Everybody writes three at the shared pointer, in any order, none over another. */
    CHECK(MPI_File_write_shared(file, three, 3, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &got);
    CHECK(got == 3);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_get_position_shared(file, &position) == MPI_SUCCESS && position == 3 * size);
    CHECK(MPI_File_read_at_all(file, 0, all, 3 * size, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < size; i++) {
        CHECK(all[3 * i + 1] == all[3 * i] + 100 && all[3 * i + 2] == all[3 * i] + 200);
        seen += all[3 * i];
    }
    CHECK(seen == size * (size - 1) / 2);
    /* In order, with requests in between. */
    MPI_Request request;
    CHECK(MPI_File_write_ordered_begin(file, three, rank % 3, MPI_INT) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_write_all(file, three, 1, MPI_INT, &status)) == MPI_ERR_IO);
    CHECK(class_of(MPI_File_read_ordered_end(file, three, &status)) == MPI_ERR_IO);
    CHECK(MPI_File_iwrite_at(file, 1000 + rank, three, 1, MPI_INT, &request) == MPI_SUCCESS);
    CHECK(MPI_File_write_ordered_end(file, three, &status) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_write_ordered_end(file, three, &status)) == MPI_ERR_IO);
    CHECK(MPI_File_seek_shared(file, 3 * size, MPI_SEEK_SET) == MPI_SUCCESS);
    int back[3] = {-1, -1, -1};
    CHECK(MPI_File_read_ordered(file, back, rank % 3, MPI_INT, &status) == MPI_SUCCESS);
    for (int i = 0; i < 3; i++) CHECK(back[i] == (i < rank % 3 ? three[i] : -1));
    /* Many nonblocking ones at the shared pointer. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    MPI_Request many[20];
    for (int i = 0; i < 20; i++) CHECK(MPI_File_iwrite_shared(file, three, 1, MPI_INT, &many[i]) == MPI_SUCCESS);
    CHECK(MPI_Waitall(20, many, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_position_shared(file, &position);
    CHECK(position == 20 * size);
    int *counts = calloc((size_t)size, sizeof *counts), *twenty = malloc(20 * sizeof *twenty * (size_t)size);
    MPI_File_read_at(file, 0, twenty, 20 * size, MPI_INT, &status);
    for (int i = 0; i < 20 * size; i++)
        if (twenty[i] >= 0 && twenty[i] < size) counts[twenty[i]]++;
    for (int i = 0; i < size; i++) CHECK(counts[i] == 20);
    free(counts);
    free(twenty);
    /* A subset of the ranks has files of its own. */
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    char own[1100];
    snprintf(own, sizeof own, "%s.%d", name, rank % 2);
    MPI_File other;
    CHECK(MPI_File_open(half, own, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &other) == MPI_SUCCESS);
    int members;
    MPI_Comm_size(half, &members);
    CHECK(MPI_File_write_shared(other, three, 12, MPI_BYTE, &status) == MPI_SUCCESS);
    CHECK(MPI_File_sync(other) == MPI_SUCCESS);
    CHECK(MPI_File_get_position_shared(other, &position) == MPI_SUCCESS && position == 12 * members);
    MPI_File_close(&other);
    MPI_Comm_free(&half);
    free(all);
    MPI_File_close(&file);
}

static void sequential(void)
{
    MPI_File file = open_file(MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_SEQUENTIAL);
    int two[2] = {rank, -rank};
    MPI_Offset offset;
    CHECK(class_of(MPI_File_write_at(file, 0, two, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(class_of(MPI_File_write(file, two, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(class_of(MPI_File_seek(file, 0, MPI_SEEK_SET)) == MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(class_of(MPI_File_get_position(file, &offset)) == MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(MPI_File_write_ordered(file, two, 2, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_Datatype etype, filetype;
    char rep[MPI_MAX_DATAREP_STRING];
    CHECK(MPI_File_get_view(file, &offset, &etype, &filetype, rep) == MPI_SUCCESS && offset == 8 * size);
    CHECK(MPI_File_write_ordered(file, two, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_File_close(&file);
    file = open_file(MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL | MPI_MODE_DELETE_ON_CLOSE);
    int back[2] = {7, 7};
    CHECK(MPI_File_read_ordered(file, back, 2, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(back[0] == two[0] && back[1] == two[1]);
    CHECK(MPI_File_read_ordered(file, back, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS && back[0] == rank);
    CHECK(class_of(MPI_File_write_shared(file, back, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_READ_ONLY);
    MPI_File_close(&file);
}

/* A representation of the program: everything as decimal text of eight characters. */
static int text_extent(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    (*(int *)state)++;
    *extent = 8;
    return type == MPI_SHORT ? MPI_ERR_TYPE : MPI_SUCCESS;
}

static int text_write(void *user, MPI_Datatype type, int count, void *file, MPI_Offset position, void *state)
{
    (void)type, (void)state;
    for (int i = 0; i < count; i++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%8d", ((int *)user)[position + i]);
        memcpy((char *)file + 8 * i, digits, 8);
    }
    return MPI_SUCCESS;
}

static int text_read(void *user, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state)
{
    (void)type, (void)state;
    for (MPI_Count i = 0; i < count; i++) {
        char digits[9] = "";
        memcpy(digits, (char *)file + 8 * i, 8);
        ((int *)user)[position + i] = atoi(digits);
    }
    return MPI_SUCCESS;
}

static int text_write_c(void *user, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state)
{
    return text_write(user, type, (int)count, file, position, state);
}

static void representations(void)
{
    static int calls;
    CHECK(MPI_Register_datarep_c("text", text_read, text_write_c, text_extent, &calls) == MPI_SUCCESS);
    CHECK(class_of(MPI_Register_datarep_c("text", text_read, text_write_c, text_extent, &calls)) == MPI_ERR_DUP_DATAREP);
    CHECK(class_of(MPI_Register_datarep("native", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, text_extent, &calls)) == MPI_ERR_DUP_DATAREP);
    CHECK(MPI_Register_datarep("plain", MPI_CONVERSION_FN_NULL, text_write, text_extent, &calls) == MPI_SUCCESS);
    MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Status status;
    MPI_Aint extent;
    int got, numbers[4] = {10 * rank, 10 * rank + 1, -5, 7}, back[4] = {0};
    char bytes[32];
    CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "text", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(calls > 0);
    CHECK(MPI_File_get_type_extent(file, MPI_INT, &extent) == MPI_SUCCESS && extent == 8);
    CHECK(class_of(MPI_File_get_type_extent(file, MPI_SHORT, &extent)) == MPI_ERR_CONVERSION);
    CHECK(MPI_File_write_at_all(file, 4 * rank, numbers, 4, MPI_INT, &status) == MPI_SUCCESS);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    int next = (rank + 1) % size;
    MPI_Request request;
    CHECK(MPI_File_iread_at_all(file, 4 * next, back, 4, MPI_INT, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &got);
    CHECK(got == 4 && back[0] == 10 * next && back[1] == 10 * next + 1 && back[2] == -5 && back[3] == 7);
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, 32 * rank + 16, bytes, 16, MPI_BYTE, &status) == MPI_SUCCESS);
    CHECK(!memcmp(bytes, "      -5       7", 16));
    /* external32: big-endian, long in four bytes; strides count elements of the file. */
    long longs[3] = {1, -2, 0x01020304}, longs_back[4] = {9, 9, 9, 9};
    MPI_Datatype open_vector, vector;
    MPI_Type_vector(3, 1, size, MPI_LONG, &open_vector);
    MPI_Type_create_resized(open_vector, 0, 12 * size, &vector);
    MPI_Type_commit(&vector);
    MPI_Type_free(&open_vector);
    MPI_File_set_size(file, 0);
    CHECK(MPI_File_set_view(file, 4 * rank, MPI_LONG, vector, "external32", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_get_type_extent(file, MPI_LONG, &extent) == MPI_SUCCESS && extent == 4);
    CHECK(MPI_File_write_all(file, longs, 3, MPI_LONG, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_LONG, &got);
    MPI_Offset size_now;
    MPI_File_get_size(file, &size_now);
    CHECK(size_now == 12 * size);
    CHECK(MPI_File_read_at_all(file, 0, longs_back, 4, MPI_LONG, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_LONG, &got);
    CHECK(got == 3 && longs_back[0] == 1 && longs_back[1] == -2 && longs_back[2] == 0x01020304 && longs_back[3] == 9);
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "internal", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, 8 * size + 4 * rank, bytes, 4, MPI_BYTE, &status) == MPI_SUCCESS);
    CHECK(!memcmp(bytes, "\1\2\3\4", 4));
    MPI_Type_free(&vector);
    MPI_File_close(&file);
}

/* In atomic mode what many write to one place is of one rank, whole. */
static void atomic(void)
{
    enum { BYTES = 20000, TIMES = 20 };
    static unsigned char mine[BYTES], seen[BYTES];
    MPI_File file = open_file(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Datatype vector;
    MPI_Type_vector(BYTES / 100, 100, 200, MPI_BYTE, &vector);
    MPI_Type_commit(&vector);
    int flag = 1, torn = 0;
    CHECK(MPI_File_get_atomicity(file, &flag) == MPI_SUCCESS && flag == 0);
    CHECK(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
    CHECK(MPI_File_get_atomicity(file, &flag) == MPI_SUCCESS && flag == 1);
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, vector, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    memset(mine, 0, BYTES);
    MPI_File_write_at_all(file, 0, mine, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    memset(mine, rank + 1, BYTES);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < TIMES; i++) {
        CHECK(MPI_File_write_at(file, 0, mine, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(MPI_File_read_at(file, 0, seen, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        for (int b = 1; b < BYTES; b++) torn += seen[b] != seen[0];
    }
    CHECK(torn == 0);
    CHECK(MPI_File_write_at_all(file, 0, mine, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_read_at_all(file, 0, seen, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int b = 1; b < BYTES; b++) torn += seen[b] != seen[0];
    CHECK(torn == 0);
    MPI_Type_free(&vector);
    MPI_File_close(&file);
}

/* A nonblocking collective goes on while its rank waits for something else, and ends in every kind of wait and test. */
static void nonblocking(void)
{
    enum { N = 3000 };
    static int numbers[4][N], back[N];
    MPI_File file;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "cb_buffer_size", "1000");
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, info, &file) == MPI_SUCCESS);
    MPI_Info_free(&info);
    MPI_Datatype vector;
    MPI_Type_create_resized(MPI_INT, 0, 4 * size, &vector);
    MPI_Type_commit(&vector);
    MPI_File_set_view(file, 4 * rank, MPI_INT, vector, "native", MPI_INFO_NULL);
    MPI_Request requests[4];
    MPI_Status statuses[4], status;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < N; k++) numbers[i][k] = rank * 1000000 + i * 10000 + k;
        CHECK(MPI_File_iwrite_all(file, numbers[i], N, MPI_INT, &requests[i]) == MPI_SUCCESS);
    }
    /* Rank 0 sends only when its own are over; the others help while they wait for it. */
    int token = 0, index, count, flag = 0, indices[4];
    if (rank == 0) {
        CHECK(MPI_Waitany(2, requests, &index, &status) == MPI_SUCCESS);
        CHECK(MPI_Waitall(4, requests, statuses) == MPI_SUCCESS);
        for (int r = 1; r < size; r++) MPI_Send(&token, 1, MPI_INT, r, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        while (!flag) CHECK(MPI_Test(&requests[0], &flag, &status) == MPI_SUCCESS);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == N);
        CHECK(MPI_Waitsome(4, requests, &count, indices, statuses) == MPI_SUCCESS && count >= 1);
        CHECK(MPI_Waitall(4, requests, statuses) == MPI_SUCCESS);
    }
    MPI_Offset position;
    MPI_File_get_position(file, &position);
    CHECK(position == 4 * N);
    for (int i = 3; i >= 0; i--) {
        CHECK(MPI_File_iread_at_all(file, i * N, back, N, MPI_INT, &requests[0]) == MPI_SUCCESS);
        CHECK(class_of(MPI_Cancel(&requests[0])) == MPI_ERR_REQUEST);
        CHECK(MPI_Wait(&requests[0], &status) == MPI_SUCCESS);
        CHECK(!memcmp(back, numbers[i], sizeof back));
    }
    MPI_Type_free(&vector);
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    snprintf(name, sizeof name, "%s", argv[1]);
    opening();
    sizes();
    views();
    columns();
    hints();
    handlers();
    pointers();
    sequential();
    representations();
    atomic();
    nonblocking();
    return finish();
}
