/*
 * What all programs of `margay bench` share, with MPI or without: options, memory, statistics, and the lines that they report:
 *   library <what was measured>
 *   figure <name> <unit> <value> <noise>          noise: of the repetitions, in percent (suite_noise); or -
 *   check <name> passed|failed <value> <limit>    a verification: value at most limit
 *   note <text>
 * A program ends with 0 when all its checks passed, with 1 when one failed, with 2 after wrong options. C and C++.
 *
 * The program that includes this says how a process leaves: suite_abort ends everything at once,
 * suite_leave in order.
 */
#ifndef SUITE_REPORT_H
#define SUITE_REPORT_H
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUITE_LIST = 64 };

/*
 * A whole number on the command line: `name value`, between `least` and `most`; a switch when these are 0 and 1. With
 * `list`, an array of SUITE_LIST values, several numbers separated by commas; `count` is how many, and `value` the first.
 */
typedef struct {
    const char *name, *help;
    long value, least, most, *list;
    int count;
} SuiteOption;

static int suite_rank, suite_failed;
static const char *suite_program = "suite";

static void suite_abort(void);
static void suite_leave(void);

/* Ends the job: something went wrong that is not the numbers' fault. */
static inline void suite_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: rank %d: ", suite_program, suite_rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    suite_abort();
}

/* Ends the job in order after wrong use; called by all ranks alike. */
static inline void suite_misused(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (suite_rank == 0) {
        fprintf(stderr, "%s: ", suite_program);
        vfprintf(stderr, format, arguments);
        fprintf(stderr, "; -help lists the options\n");
    }
    va_end(arguments);
    suite_leave();
    exit(2);
}

static inline void suite_help(const SuiteOption *options, int count) {
    if (suite_rank == 0) {
        printf("options of %s:\n", suite_program);
        for (int n = 0; n < count; n++)
            if (options[n].least == 0 && options[n].most == 1) printf("  %-10s %s\n", options[n].name, options[n].help);
            else printf("  %-10s %s [%ld]\n", options[n].name, options[n].help, options[n].value);
    }
    suite_leave();
    exit(0);
}

/* Reads the numbers of an option, or ends the job with a message. */
static inline void suite_numbers(SuiteOption *option, const char *text) {
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long value = strtol(at, &end, 10);
        int more = option->list && *end == ',';
        if (end == at || errno || (*end && !more) || value < option->least || value > option->most)
            suite_misused("%s: '%s' is not a number from %ld to %ld", option->name, text, option->least, option->most);
        if (option->count == SUITE_LIST) suite_misused("%s: more than %d numbers", option->name, (int)SUITE_LIST);
        if (option->count == 0) option->value = value;
        if (option->list) option->list[option->count++] = value;
        if (!more) return;
        at = end;
    }
}

/* Reads the options; all ranks see the same arguments. */
static inline void suite_read(int argc, char **argv, const char *program, SuiteOption *options, int count) {
    suite_program = program;
    for (int n = 1; n < argc; n++) {
        const char *word = argv[n];
        int found = -1;
        if (strcmp(word, "-help") == 0 || strcmp(word, "--help") == 0) suite_help(options, count);
        for (int m = 0; m < count; m++)
            if (strcmp(word, options[m].name) == 0) found = m;
        if (found < 0) suite_misused("unknown option '%s'", word);
        SuiteOption *option = &options[found];
        if (option->least == 0 && option->most == 1) {
            option->value = 1;
            continue;
        }
        if (n + 1 == argc) suite_misused("%s: needs a value", word);
        option->count = 0;
        suite_numbers(option, argv[++n]);
    }
    for (int n = 0; n < count; n++)
        if (options[n].list && options[n].count == 0) options[n].list[options[n].count++] = options[n].value;
}

/* `noise` below 0: measured once. */
static inline void suite_figure(const char *name, const char *unit, double value, double noise) {
    if (suite_rank != 0) return;
    if (noise < 0) printf("figure %s %s %.6g -\n", name, unit, value);
    else printf("figure %s %s %.6g %.3g\n", name, unit, value, noise);
    fflush(stdout);
}

/* Only rank 0's verdict counts. A NaN fails. */
static inline void suite_check(const char *name, double value, double limit) {
    if (suite_rank != 0) return;
    int passed = value <= limit;
    if (!passed) suite_failed = 1;
    printf("check %s %s %.6g %.6g\n", name, passed ? "passed" : "failed", value, limit);
    fflush(stdout);
}

static inline void suite_note(const char *format, ...) {
    if (suite_rank != 0) return;
    va_list arguments;
    va_start(arguments, format);
    printf("note ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

/* Memory at a boundary of 2 MiB, on huge pages where the system gives them. Not initialized. */
static inline void *suite_memory(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    size_t size = bytes < huge ? (bytes + 4095) / 4096 * 4096 + 4096 : (bytes + huge - 1) / huge * huge;
    void *memory = NULL;
    if (posix_memalign(&memory, bytes < huge ? 4096 : huge, size)) suite_fail("no memory for %zu bytes", size);
    madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

/* Bytes of the data cache of `level` as the kernel reports them; 0 when it does not. */
static inline long suite_cache(int level) {
    for (int index = 0; index < 8; index++) {
        char name[96], type[32] = "", unit = 0;
        long found = 0, size = 0;
        FILE *file;
        snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
        if ((file = fopen(name, "r"))) { if (fscanf(file, "%ld", &found) != 1) found = 0; fclose(file); }
        snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
        if ((file = fopen(name, "r"))) { if (fscanf(file, "%31s", type) != 1) type[0] = 0; fclose(file); }
        snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        if ((file = fopen(name, "r"))) { if (fscanf(file, "%ld%c", &size, &unit) < 1) size = 0; fclose(file); }
        if (found == level && strcmp(type, "Instruction") != 0)
            return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
    }
    return 0;
}

static inline int suite_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Relative standard deviation in percent; -1 for fewer than two values. */
static inline double suite_deviation(const double *values, int count) {
    if (count < 2) return -1;
    double mean = 0, squares = 0;
    for (int n = 0; n < count; n++) mean += values[n] / count;
    for (int n = 0; n < count; n++) squares += (values[n] - mean) * (values[n] - mean);
    return mean != 0 ? 100 * sqrt(squares / (count - 1)) / fabs(mean) : 0;
}

static inline double suite_median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, suite_compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/*
 * The noise of some repetitions in percent: 1.4826 times the median distance from the median, which is the standard
 * deviation of what scatters normally and does not count a repetition or two that something else disturbed. Sorts
 * `values`; -1 for fewer than two.
 */
static inline double suite_noise(double *values, int count) {
    if (count < 2) return -1;
    double middle = suite_median(values, count), *distances = (double *)malloc((size_t)count * sizeof(double));
    if (!distances) suite_fail("no memory for %d distances", count);
    for (int n = 0; n < count; n++) distances[n] = fabs(values[n] - middle);
    double noise = middle != 0 ? 148.26 * suite_median(distances, count) / fabs(middle) : 0;
    free(distances);
    return noise;
}
#endif
