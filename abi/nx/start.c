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

/* Number of nodes, or rows and columns, from a list of attributes that ends with NX_ATTR_END. The others need partitions
 * or tune what this machine has not. */
static void attributes(va_list list, long *size, long *rows, long *cols, const char **account) {
    for (int attribute = va_arg(list, int); attribute != NX_ATTR_END; attribute = va_arg(list, int)) {
        switch (attribute) {
        case NX_ATTR_SZ: *size = va_arg(list, int); break;
        case NX_ATTR_RECT: *rows = va_arg(list, int); *cols = va_arg(list, int); break;
        case NX_ATTR_MAP: *size = va_arg(list, int); (void)va_arg(list, long *); break;
        case NX_ATTR_ACCT: *account = va_arg(list, char *); break;
        case NX_ATTR_SEL: (void)va_arg(list, char *); break;
        default: (void)va_arg(list, int); break;
        }
    }
}

#define INITVE_ATTR(name, inner)                                          \
    long name(const char *part, int *argc, char *argv[], ...) {           \
        long size = 0, rows = 0, cols = 0;                                \
        const char *account = NULL;                                       \
        va_list list;                                                     \
        va_start(list, argv);                                             \
        attributes(list, &size, &rows, &cols, &account);                  \
        va_end(list);                                                     \
        return inner(part, size, rows, cols, account, argc, argv);        \
    }
INITVE_ATTR(nx_initve_attr, margay_nx_nx_initve_attr)
INITVE_ATTR(_nx_initve_attr, margay_nx__nx_initve_attr)

long nx_mkpart_attr(const char *name, ...) { return margay_nx_nx_mkpart_attr(name); }
long _nx_mkpart_attr(const char *name, ...) { return margay_nx__nx_mkpart_attr(name); }
