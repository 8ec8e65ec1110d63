/*
 * The evaluation of a parallel file system as Forschungszentrum Juelich did it on its Paragon
 * (KFA-ZAM-IB-9409, 5.2): rates of a file that all ranks write and read, by mode of access, length
 * of records and size. Through MPI-IO; through NX's modes when compiled with FILES_NX.
 *
 * The file is made in the current directory and loses its name once all ranks have opened it, so
 * nothing is left behind however the job ends. Every byte that was written or read is verified,
 * outside of the time: what is written by reading the file past the interface.
 *   files [-modes 0,1,2,3,4,5] [-records 8000,65536] [-sizes 1,20] [-sync] [-ms 30] [-rounds 5] [-limit-s 600]
 */
#include "suite.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#ifdef FILES_NX
#include <nx.h>
#endif

enum { MODES, RECORDS, SIZES, SYNC, MS, ROUNDS, LIMIT, OPTIONS };
enum { MODE_COUNT = 6, MOST_ROUNDS = 64, CHUNK = 1 << 20 };

static long modes[SUITE_LIST], lengths[SUITE_LIST], sizes[SUITE_LIST];

static SuiteOption options[OPTIONS] = {
    [MODES] = {"-modes", "modes of access by number", 0, 0, MODE_COUNT - 1, modes, 0},
    [RECORDS] = {"-records", "bytes of a record", 65536, 64, 1 << 30, lengths, 0},
    [SIZES] = {"-sizes", "megabytes of each rank; of 2^20 bytes where records are multiples of 1024, else of 10^6", 1, 1, 1024,
               sizes, 0},
    [SYNC] = {"-sync", "the time of writing includes that everything is stored", 0, 0, 1, NULL, 0},
    [MS] = {"-ms", "milliseconds after which nothing is repeated", 30, 1, 1000000, NULL, 0},
    [ROUNDS] = {"-rounds", "repetitions at most", 5, 1, MOST_ROUNDS, NULL, 0},
    [LIMIT] = {"-limit-s", "seconds after which the rest is left out", 600, 1, 1000000, NULL, 0},
};

/* Where the records of the ranks lie. */
enum layout {
    OWN,   /* each rank's one after the other in a part of its own */
    ANY,   /* as they come */
    ORDER, /* the first of all ranks in their order, then the second */
    SAME   /* all ranks have the same ones */
};

/* A combination of parameters. */
struct cell {
    int mode;
    enum layout layout;
    long length, records, megabytes;
    uint64_t salt; /* no two combinations write the same */
};

static long part_of(const struct cell *cell) { return cell->records * cell->length; }
static long blocks_of(const struct cell *cell) { return cell->layout == SAME ? cell->records : suite_ranks * cell->records; }

#ifdef FILES_NX
static const char *const NAMES[MODE_COUNT] = {"M_UNIX", "M_LOG", "M_SYNC", "M_RECORD", "M_GLOBAL", "M_ASYNC"};
static const enum layout LAYOUTS[MODE_COUNT] = {OWN, ANY, ORDER, ORDER, SAME, OWN};

struct file {
    int fd;
};

static void file_open(struct file *file, const char *name, const struct cell *cell) {
    file->fd = _gopen(name, O_RDWR | O_CREAT | O_EXCL, cell->mode, 0600);
    if (file->fd < 0) suite_fail("%s cannot be made in the current directory: %s", name, strerror(errno));
}

static void file_rewind(struct file *file, const struct cell *cell) {
    const esize_t start = {0, 0};
    gsync();
    if (cell->layout != ANY) lseek(file->fd, cell->layout == OWN ? suite_rank * part_of(cell) : 0, SEEK_SET);
    else if (suite_rank == 0) eseek(file->fd, start, SIZE_SET);
}

static void file_move(struct file *file, const struct cell *cell, char *data, int writes) {
    long done = writes ? _cwrite(file->fd, data, (unsigned)cell->length) : _cread(file->fd, data, (unsigned)cell->length);
    if (done < 0) suite_fail("%s in %s: %s", writes ? "cwrite" : "cread", NAMES[cell->mode], strerror(errno));
    if (done != cell->length)
        suite_fail("%s in %s: %ld bytes of %ld", writes ? "cwrite" : "cread", NAMES[cell->mode], done, cell->length);
}

static void file_sync(struct file *file) {
    gsync();
    if (suite_rank == 0 && fsync(file->fd) < 0) suite_fail("fsync: %s", strerror(errno));
}

static void file_close(struct file *file) { close(file->fd); }
#else
static const char *const NAMES[MODE_COUNT] = {"atomic", "shared", "ordered", "strided", "collective", "independent"};
static const enum layout LAYOUTS[MODE_COUNT] = {OWN, ANY, ORDER, ORDER, ORDER, OWN};

struct file {
    MPI_File handle;
};

static void must(int code, const char *what, const struct cell *cell) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, text, &length);
    suite_fail("%s in %s: %s", what, NAMES[cell->mode], text);
}

static void file_open(struct file *file, const char *name, const struct cell *cell) {
    must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL, &file->handle),
         "MPI_File_open in the current directory", cell);
    if (strcmp(NAMES[cell->mode], "atomic") == 0) must(MPI_File_set_atomicity(file->handle, 1), "MPI_File_set_atomicity", cell);
    if (strcmp(NAMES[cell->mode], "strided") == 0 || strcmp(NAMES[cell->mode], "collective") == 0) {
        MPI_Datatype record, type;
        MPI_Type_contiguous((int)cell->length, MPI_BYTE, &record);
        MPI_Type_create_resized(record, 0, suite_ranks * cell->length, &type);
        MPI_Type_commit(&type);
        must(MPI_File_set_view(file->handle, suite_rank * cell->length, MPI_BYTE, type, "native", MPI_INFO_NULL), "MPI_File_set_view",
             cell);
        MPI_Type_free(&record);
        MPI_Type_free(&type);
    }
}

static void file_rewind(struct file *file, const struct cell *cell) {
    const char *name = NAMES[cell->mode];
    if (strcmp(name, "shared") == 0 || strcmp(name, "ordered") == 0)
        must(MPI_File_seek_shared(file->handle, 0, MPI_SEEK_SET), "MPI_File_seek_shared", cell);
    else
        must(MPI_File_seek(file->handle, cell->layout == OWN ? suite_rank * part_of(cell) : 0, MPI_SEEK_SET), "MPI_File_seek", cell);
}

static void file_move(struct file *file, const struct cell *cell, char *data, int writes) {
    MPI_File handle = file->handle;
    MPI_Status status;
    const int n = (int)cell->length;
    int code, done;
    switch (cell->mode) {
    case 1:
        code = writes ? MPI_File_write_shared(handle, data, n, MPI_BYTE, &status)
                      : MPI_File_read_shared(handle, data, n, MPI_BYTE, &status);
        break;
    case 2:
        code = writes ? MPI_File_write_ordered(handle, data, n, MPI_BYTE, &status)
                      : MPI_File_read_ordered(handle, data, n, MPI_BYTE, &status);
        break;
    case 4:
        code = writes ? MPI_File_write_all(handle, data, n, MPI_BYTE, &status) : MPI_File_read_all(handle, data, n, MPI_BYTE, &status);
        break;
    default: code = writes ? MPI_File_write(handle, data, n, MPI_BYTE, &status) : MPI_File_read(handle, data, n, MPI_BYTE, &status);
    }
    must(code, writes ? "writing" : "reading", cell);
    MPI_Get_count(&status, MPI_BYTE, &done);
    if (done != n) suite_fail("%s in %s: %d bytes of %d", writes ? "writing" : "reading", NAMES[cell->mode], done, n);
}

static void file_sync(struct file *file) { MPI_File_sync(file->handle); }
static void file_close(struct file *file) { MPI_File_close(&file->handle); }
#endif

/* The contents of a record: its number, so that it is known wherever it is found, and then words that no other has. */
static uint64_t first_word(uint64_t id, uint64_t salt) { return id ^ salt; }
static uint64_t second_word(uint64_t id, uint64_t salt) { return ((id + 1) * 0x9e3779b97f4a7c15u) ^ (salt << 7); }
static const uint64_t STEP = 0xbf58476d1ce4e5b9u;

static void fill(char *record, const struct cell *cell, long id) {
    const long words = cell->length / 8;
    uint64_t word = second_word((uint64_t)id, cell->salt), first = first_word((uint64_t)id, cell->salt);
    memcpy(record, &first, 8);
    for (long n = 1; n < words; n++, word += STEP) memcpy(record + 8 * n, &word, 8);
    memcpy(record + 8 * words, &word, (size_t)(cell->length % 8));
}

/* Wrong bytes of a record, in words. */
static long wrong_in(const char *record, const struct cell *cell, long id) {
    const long words = cell->length / 8;
    uint64_t word = second_word((uint64_t)id, cell->salt), first = first_word((uint64_t)id, cell->salt), found;
    long count = memcmp(record, &first, 8) != 0;
    for (long n = 1; n < words; n++, word += STEP) {
        memcpy(&found, record + 8 * n, 8);
        count += found != word;
    }
    return 8 * count + (memcmp(record + 8 * words, &word, (size_t)(cell->length % 8)) != 0);
}

/* The record of that number is rank `id / records`'s number `id % records`. */
static long id_at(const struct cell *cell, long block) {
    return cell->layout == ORDER ? block % suite_ranks * cell->records + block / suite_ranks : block;
}

/* How often each record was found, and where. */
struct found {
    long *times, *places;
};

/* Wrong bytes of a record that may be any one. */
static long wrong_in_any(const char *record, const struct cell *cell, long place, struct found *found) {
    uint64_t first;
    memcpy(&first, record, 8);
    const uint64_t id = first ^ cell->salt;
    if (id >= (uint64_t)blocks_of(cell)) return cell->length;
    found->times[id]++;
    found->places[id] += place;
    return wrong_in(record, cell, (long)id);
}

/* Wrong bytes because records are there twice or not at all, or not in the order of their rank. Collective. */
static long wrong_records(const struct cell *cell, const struct found *found, int ordered) {
    const int blocks = (int)blocks_of(cell);
    long wrong = 0;
    MPI_Allreduce(MPI_IN_PLACE, found->times, blocks, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, found->places, blocks, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (long id = 0; id < blocks; id++) {
        int follows = id % cell->records == 0 || found->places[id] > found->places[id - 1];
        if (found->times[id] != 1 || (ordered && !follows)) wrong += cell->length;
    }
    return suite_rank == 0 ? wrong : 0;
}

/* Wrong bytes of what was read: the records of this rank one after the other. Collective. */
static long wrong_in_memory(const char *memory, const struct cell *cell, struct found *found) {
    long wrong = 0;
    for (long n = 0; n < cell->records; n++) {
        const char *record = memory + n * cell->length;
        if (cell->layout == ANY) wrong += wrong_in_any(record, cell, 0, found);
        else wrong += wrong_in(record, cell, cell->layout == SAME ? n : suite_rank * cell->records + n);
    }
    return cell->layout == ANY ? wrong + wrong_records(cell, found, 0) : wrong;
}

/* Wrong bytes of the file, which every rank reads a part of. Collective. */
static long wrong_in_file(int plain, const struct cell *cell, char *room, struct found *found) {
    const long blocks = blocks_of(cell), last = blocks * (suite_rank + 1) / suite_ranks, many = CHUNK / cell->length + 1;
    long wrong = 0;
    struct stat now;
    if (fstat(plain, &now) < 0) suite_fail("fstat: %s", strerror(errno));
    if (now.st_size != blocks * cell->length) wrong += cell->length;
    for (long block = blocks * suite_rank / suite_ranks; block < last;) {
        const long count = last - block < many ? last - block : many, bytes = count * cell->length;
        for (long done = 0; done < bytes;) {
            ssize_t n = pread(plain, room + done, (size_t)(bytes - done), block * cell->length + done);
            if (n < 0 && errno != EINTR) suite_fail("pread: %s", strerror(errno));
            if (n == 0) memset(room + done, 0, (size_t)(bytes - done));
            done += n > 0 ? n : n == 0 ? bytes : 0;
        }
        for (long n = 0; n < count; n++, block++)
            wrong += cell->layout == ANY ? wrong_in_any(room + n * cell->length, cell, block, found)
                                         : wrong_in(room + n * cell->length, cell, id_at(cell, block));
    }
    return cell->layout == ANY ? wrong + wrong_records(cell, found, 1) : wrong;
}

static double all_of(long own) {
    double sum = (double)own;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* Empties the file before it is written, and otherwise lets nothing be read from the memory of this host. Collective. */
static void prepare(int plain, int writes) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == 0) {
        if (writes && ftruncate(plain, 0) < 0) suite_fail("ftruncate: %s", strerror(errno));
        if (!writes && fsync(plain) < 0) suite_fail("fsync: %s", strerror(errno));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!writes) posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED);
}

/* Seconds of one pass over the file; on all ranks those of rank 0. Collective. */
static double pass(struct file *file, const struct cell *cell, char *memory, int writes) {
    file_rewind(file, cell);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (long n = 0; n < cell->records; n++) file_move(file, cell, memory + n * cell->length, writes);
    if (writes && options[SYNC].value) file_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - start;
    MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return took;
}

/* What all passes of a run have in common. */
struct work {
    char *memory, *room;
    struct found found;
    char name[64];
    double wrong[MODE_COUNT][2];
    int verified[MODE_COUNT][2];
};

/* Writes or reads the file several times, reports the rate and counts what is wrong. Collective. */
static void rounds(struct file *file, int plain, const struct cell *cell, struct work *work, int writes) {
    double rates[MOST_ROUNDS], total = 0, wrong;
    const double bytes = (double)suite_ranks * (double)part_of(cell), aim = (double)options[MS].value / 1000;
    int count = 0;
    if (!writes) memset(work->memory, 0, (size_t)part_of(cell));
    while (count < options[ROUNDS].value && (count == 0 || total < aim)) {
        prepare(plain, writes);
        const double took = pass(file, cell, work->memory, writes);
        rates[count++] = bytes / took / 1e6;
        total += took;
    }
    const size_t list = (size_t)blocks_of(cell) * sizeof(long);
    memset(work->found.times, 0, list);
    memset(work->found.places, 0, list);
    wrong = all_of(writes ? wrong_in_file(plain, cell, work->room, &work->found) : wrong_in_memory(work->memory, cell, &work->found));
    work->wrong[cell->mode][writes] += wrong;
    work->verified[cell->mode][writes] = 1;
    char name[96];
    snprintf(name, sizeof name, "%s-%s-%ld-%ld", NAMES[cell->mode], writes ? "write" : "read", cell->length, cell->megabytes);
    if (wrong > 0) {
        suite_note("%s: %.0f bytes are wrong", name, wrong);
        return;
    }
    if (suite_rank == 0) suite_figure(name, "MB/s", suite_median(rates, count), suite_noise(rates, count));
}

static void measure(const struct cell *cell, struct work *work) {
    struct file file;
    for (long n = 0; n < cell->records; n++)
        fill(work->memory + n * cell->length, cell, cell->layout == SAME ? n : suite_rank * cell->records + n);
    file_open(&file, work->name, cell);
    int plain = open(work->name, O_RDWR | O_CLOEXEC);
    if (plain < 0) suite_fail("%s: cannot be opened: %s", work->name, strerror(errno));
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == 0 && unlink(work->name) < 0) suite_fail("%s: cannot be removed: %s", work->name, strerror(errno));
    rounds(&file, plain, cell, work, 1);
    rounds(&file, plain, cell, work, 0);
    file_close(&file);
    close(plain);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* What the current directory is. */
static void describe(void) {
    static const struct {
        unsigned long magic;
        const char *name;
    } KNOWN[] = {{0x01021994, "tmpfs"}, {0xef53, "ext4"},    {0x58465342, "xfs"}, {0x9123683e, "btrfs"},  {0x794c7630, "overlayfs"},
                 {0x6969, "nfs"},       {0x65735546, "FUSE"}, {0xbd00bd0, "lustre"}, {0x47504653, "gpfs"}};
    struct statfs now;
    char layout[64] = "", what[32];
    if (statfs(".", &now) < 0) return;
    snprintf(what, sizeof what, "file system 0x%lx", (unsigned long)now.f_type);
    for (size_t n = 0; n < sizeof KNOWN / sizeof *KNOWN; n++)
        if (KNOWN[n].magic == (unsigned long)now.f_type) snprintf(what, sizeof what, "%s", KNOWN[n].name);
    long unit = 0, factor = 0;
    if (getxattr(".", "system.margay.layout", layout, sizeof layout - 1) > 0 && sscanf(layout, "%ld %ld", &unit, &factor) == 2)
        suite_note("Margay's parallel file system, rows of %ld units of %ld bytes", factor, unit);
    else
        suite_note("on %s", what);
}

/* Why a combination cannot be measured here; NULL when it can. The same on all ranks. */
static const char *hindrance(const struct cell *cell, double started, int hosts) {
    struct statvfs now;
    int why = 0;
    if (suite_rank == 0) {
        /* Twice, as a file system may keep what was written before until the new is stored. */
        const double needed = 2 * (double)blocks_of(cell) * (double)cell->length;
        if (statvfs(".", &now) == 0 && (double)now.f_bavail * (double)now.f_frsize < needed) why = 1;
        if (MPI_Wtime() - started > (double)options[LIMIT].value) why = 2;
#ifdef FILES_NX
        if (cell->layout == ANY && hosts > 1) why = 3;
#else
        (void)hosts;
#endif
    }
    MPI_Bcast(&why, 1, MPI_INT, 0, MPI_COMM_WORLD);
    static const char *const TEXTS[] = {NULL, "the file system has too little space", "the time was over",
                                        "M_LOG is for nodes of one host"};
    return TEXTS[why];
}

static int host_count(void) {
    MPI_Comm host;
    int rank, first, count;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    first = rank == 0;
    MPI_Allreduce(&first, &count, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_free(&host);
    return count;
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "files", options, OPTIONS);
    const double started = MPI_Wtime();
    struct work work;
    memset(&work, 0, sizeof work);
    long most = 0, most_records = 0, longest = 0, pid = getpid();
    for (int l = 0; l < options[RECORDS].count; l++)
        for (int s = 0; s < options[SIZES].count; s++) {
            const long bytes = sizes[s] * (1 << 20) + lengths[l], records = bytes / lengths[l] + 1;
            if (bytes > most) most = bytes;
            if (records > most_records) most_records = records;
            if (lengths[l] > longest) longest = lengths[l];
        }
    if (most_records * suite_ranks > INT32_MAX / 2) suite_misused("%ld records of %d ranks are too many", most_records, suite_ranks);
    MPI_Bcast(&pid, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    snprintf(work.name, sizeof work.name, ".margay-bench-files-%ld", pid);
    work.memory = suite_memory((size_t)most);
    work.room = suite_memory((size_t)(CHUNK + 2 * longest));
    work.found.times = suite_memory((size_t)(most_records * suite_ranks) * sizeof(long));
    work.found.places = suite_memory((size_t)(most_records * suite_ranks) * sizeof(long));
    if (suite_rank == 0) describe();
    const int hosts = host_count();
    uint64_t salt = (uint64_t)pid;
    const char *left_why = NULL;
    int left = 0, all = 0;
    for (int m = 0; m < options[MODES].count; m++)
        for (int l = 0; l < options[RECORDS].count; l++)
            for (int s = 0; s < options[SIZES].count; s++) {
                const long unit = lengths[l] % 1024 == 0 ? 1 << 20 : 1000000, records = sizes[s] * unit / lengths[l];
                const struct cell cell = {(int)modes[m], LAYOUTS[modes[m]], lengths[l], records ? records : 1,
                                          sizes[s],      salt += STEP};
                const char *why = hindrance(&cell, started, hosts);
                all++;
                if (why) {
                    left++;
                    left_why = why;
                } else {
                    measure(&cell, &work);
                }
            }
    for (int m = 0; m < MODE_COUNT; m++)
        for (int writes = 1; writes >= 0; writes--) {
            char name[64];
            snprintf(name, sizeof name, "contents-%s-%s", NAMES[m], writes ? "write" : "read");
            if (work.verified[m][writes]) suite_check(name, work.wrong[m][writes], 0);
        }
    if (left) suite_note("left out: %d of %d combinations on %d nodes: %s", left, all, suite_ranks, left_why);
    return suite_end();
}
