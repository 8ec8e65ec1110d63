/* The part of libnx that is not printed from the definitions: what happens before main, and calls with as many arguments as
 * the caller likes. It stands behind the printed part in one file. */
#include <elf.h>
#include <link.h>
#include <stdarg.h>
#include <string.h>

long msginfo[8];

/* Whether the program itself calls one of these, by the names that it has to be linked with: it controls its application
 * then, and its options are for nx_initve. */
static int controls(struct dl_phdr_info *program, size_t size, void *answer) {
    static const char *const names[] = {"nx_initve", "nx_initve_rect", "nx_initve_attr", "nx_initve_", "nx_initve_rect_",
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
    long size, rows, cols, anchor, count, sched, rq, epl, mode;
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
        return inner(part, a.size, a.rows, a.cols, a.anchor, a.count, a.map, a.sched, a.rq, a.epl, a.mode); \
    }
MKPART_ATTR(nx_mkpart_attr, margay_nx_nx_mkpart_attr)
MKPART_ATTR(_nx_mkpart_attr, margay_nx__nx_mkpart_attr)
