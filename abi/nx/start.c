/* The part of libnx that is not printed from the definitions: what happens before main, and calls with as many arguments as
 * the caller likes. It stands behind the printed part in one file. */
#include <elf.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

long msginfo[8];

/* Whether the program itself calls one of these, by the names that it has to be linked with: it controls its application
 * then, and its options are for nx_initve. */
static int controls(struct dl_phdr_info *program, size_t size, void *answer) {
    static const char *const names[] = {"nx_initve", "nx_initve_rect", "nx_initve_attr", "nx_initve_", "nx_initve_rect_", "nx_initve_attr_",
                                        "_nx_initve", "_nx_initve_rect", "_nx_initve_attr"};
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        if (program->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const char *strings = NULL;
        size_t bytes = 0;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(program->dlpi_addr + program->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_STRTAB) strings = (const char *)entry->d_un.d_ptr;
            if (entry->d_tag == DT_STRSZ) bytes = entry->d_un.d_val;
        }
        for (const char *at = strings; at && at < strings + bytes; at += strlen(at) + 1)
            for (size_t n = 0; n < sizeof names / sizeof *names; n++)
                if (strcmp(at, names[n]) == 0) *(int *)answer = 1;
    }
    return 1; /* the program comes first; its libraries are not asked */
}

__attribute__((constructor)) static void start(void) {
    int answer = 0;
    dl_iterate_phdr(controls, &answer);
    margay_nx_start(msginfo, answer);
}

/* What a list of attributes says that ends with NX_ATTR_END; -1 where it says nothing. Others tune what this machine has not. */
struct attributes {
    long size, rows, cols, anchor, count, sched, rq, epl, mode, relaxed;
    long *map;
    const char *account;
};

static struct attributes attributes(va_list list) {
    struct attributes all = {.size = 0, .anchor = -1, .sched = -1, .rq = -1, .epl = -1, .mode = -1};
    for (int attribute = va_arg(list, int); attribute != NX_ATTR_END; attribute = va_arg(list, int)) {
        switch (attribute) {
        case NX_ATTR_SZ: all.size = va_arg(list, int); break;
        case NX_ATTR_RECT: all.rows = va_arg(list, int); all.cols = va_arg(list, int); break;
        case NX_ATTR_MAP: all.count = va_arg(list, int); all.map = va_arg(list, long *); break;
        case NX_ATTR_ANCHOR: all.anchor = va_arg(list, int); break;
        case NX_ATTR_SCHED: all.sched = va_arg(list, int); break;
        case NX_ATTR_RQ: all.rq = va_arg(list, int); break;
        case NX_ATTR_EPL: all.epl = va_arg(list, int); break;
        case NX_ATTR_RELAXED: all.relaxed = va_arg(list, int); break;
        case NX_ATTR_MOD: all.mode = va_arg(list, int); break;
        case NX_ATTR_ACCT: all.account = va_arg(list, char *); break;
        case NX_ATTR_SEL: (void)va_arg(list, char *); break;
        default: (void)va_arg(list, int); break;
        }
    }
    return all;
}

#define INITVE_ATTR(name, inner)                                          \
    long name(const char *part, int *argc, char *argv[], ...) {           \
        va_list list;                                                     \
        va_start(list, argv);                                             \
        struct attributes a = attributes(list);                           \
        va_end(list);                                                     \
        long size = a.count ? a.count : a.size;                           \
        return inner(part, size, a.rows, a.cols, a.account, argc, argv);  \
    }
INITVE_ATTR(nx_initve_attr, margay_nx_nx_initve_attr)
INITVE_ATTR(_nx_initve_attr, margay_nx__nx_initve_attr)

#define MKPART_ATTR(name, inner)                                                                           \
    long name(const char *part, ...) {                                                                     \
        va_list list;                                                                                      \
        va_start(list, part);                                                                              \
        struct attributes a = attributes(list);                                                            \
        va_end(list);                                                                                      \
        return inner(part, a.size, a.rows, a.cols, a.anchor, a.count, a.map, a.sched, a.rq, a.epl, a.mode, a.relaxed); \
    }
MKPART_ATTR(nx_mkpart_attr, margay_nx_nx_mkpart_attr)
MKPART_ATTR(_nx_mkpart_attr, margay_nx__nx_mkpart_attr)

/* The same in Fortran, whose calls have as many arguments each time: the list is an array of integers. Behind NX_ATTR_MAP stand the
 * number of nodes and the nodes themselves, and texts are no attributes. */
static struct attributes listed(const int *list) {
    struct attributes all = {.size = 0, .anchor = -1, .sched = -1, .rq = -1, .epl = -1, .mode = -1};
    while (*list != NX_ATTR_END) {
        int attribute = *list++;
        if (attribute == NX_ATTR_MAP) {
            all.count = *list++;
            all.map = calloc(all.count > 0 ? (size_t)all.count : 1, sizeof *all.map);
            for (long i = 0; i < all.count; i++, list++)
                if (all.map) all.map[i] = *list;
            continue;
        }
        long value = *list++;
        switch (attribute) {
        case NX_ATTR_SZ: all.size = value; break;
        case NX_ATTR_RECT: all.rows = value; all.cols = *list++; break;
        case NX_ATTR_ANCHOR: all.anchor = value; break;
        case NX_ATTR_SCHED: all.sched = value; break;
        case NX_ATTR_RQ: all.rq = value; break;
        case NX_ATTR_EPL: all.epl = value; break;
        case NX_ATTR_MOD: all.mode = value; break;
        case NX_ATTR_RELAXED: all.relaxed = value; break;
        default: break;
        }
    }
    return all;
}

int nx_mkpart_attr_(const char *name, const int *list, size_t name_length) {
    struct attributes a = listed(list);
    int nodes = (int)margay_nx_nx_mkpart_attr(TEXT(name), a.size, a.rows, a.cols, a.anchor, a.count, a.map, a.sched, a.rq, a.epl,
                                              a.mode, a.relaxed);
    free(a.map);
    return nodes;
}

int nx_initve_attr_(const char *part, const int *list, size_t part_length) {
    struct attributes a = listed(list);
    free(a.map);
    return (int)margay_nx_nx_initve_attr(TEXT(part), a.count ? a.count : a.size, a.rows, a.cols, NULL, NULL, NULL);
}

/* Arrays that C gets from the library are in Fortran the caller's: n says how much room there is, then how many there are. */
static int filled(long *all, long count, long of, int *place, int *n) {
    for (long i = 0; i < of * (count < *n ? count : *n); i++) place[i] = (int)all[i];
    free(all);
    *n = (int)count;
    return 0;
}

int nx_part_nodes_(const char *name, int *nodes, int *n, size_t name_length) {
    long *all, count;
    nx_part_nodes(TEXT(name), &all, &count);
    return filled(all, count, 1, nodes, n);
}

int nx_pspart_(const char *name, int *list, int *n, size_t name_length) {
    nx_pspart_t *all;
    long count;
    nx_pspart(TEXT(name), &all, &count);
    return filled((long *)all, count, sizeof *all / sizeof(long), list, n);
}

int nx_empty_nodes_(int *nodes, int *n) {
    long *all, count;
    nx_empty_nodes(&all, &count);
    return filled(all, count, 1, nodes, n);
}

int nx_failed_nodes_(int *nodes, int *n) {
    long *all, count;
    nx_failed_nodes(&all, &count);
    return filled(all, count, 1, nodes, n);
}

int nx_app_nodes_(const int *pid, int *nodes, int *n) {
    long *all, count;
    nx_app_nodes(*pid, &all, &count);
    return filled(all, count, 1, nodes, n);
}
