/* Where in the program an access was made that a watch register has seen. */
#include "watch.h"

#if defined(__x86_64__)
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Code whose accesses are not the program's: this library and MPI's; and the C library, which makes those of its callers. */
struct range {
    uintptr_t begin, end;
    int is_c;
};
#define MOST_RANGES 64
static struct range ranges[MOST_RANGES];
static int ranges_used;
static const char *const COPIERS[] = {"memcpy",       "memmove",       "mempcpy",      "memset",
                                      "__memcpy_chk", "__memmove_chk", "__memset_chk", "__mempcpy_chk"};
static uintptr_t copiers[sizeof COPIERS / sizeof *COPIERS];

static int enter_ranges(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    static const char *const OTHERS[] = {"libmpi_abi.so", "libmargay", "libmpi_", "libfabric", "ld-linux", "libnx.", "libmpl."};
    const char *name = strrchr(info->dlpi_name, '/');
    name = name == NULL ? info->dlpi_name : name + 1;
    int is_c = strncmp(name, "libc.so", 7) == 0, is_other = is_c;
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        is_other |= strncmp(name, OTHERS[i], strlen(OTHERS[i])) == 0;
    }
    for (int i = 0; is_other && i < info->dlpi_phnum && ranges_used < MOST_RANGES; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            uintptr_t begin = info->dlpi_addr + part->p_vaddr;
            ranges[ranges_used++] = (struct range){begin, begin + part->p_memsz, is_c};
        }
    }
    return 0;
}

static const struct range *range_of(uintptr_t address)
{
    for (int i = 0; i < ranges_used; i++) {
        if (ranges[i].begin <= address && address < ranges[i].end) {
            return &ranges[i];
        }
    }
    return NULL;
}

/* Reads memory that may not be there. */
static int peek(uintptr_t from, void *to, size_t bytes)
{
    struct iovec here = {to, bytes}, there = {(void *)from, bytes};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

/* The function that the call before an address calls, through a table of addresses; 0 where it is another kind of call. */
static uintptr_t called_before(uintptr_t address)
{
    unsigned char code[16];
    int32_t offset;
    uintptr_t slot = 0, function = 0;
    if (!peek(address - 6, code, 6)) {
        return 0;
    }
    memcpy(&offset, code + 2, sizeof offset);
    if (code[0] == 0xff && code[1] == 0x15) {
        slot = address + (intptr_t)offset;
    } else if (code[1] == 0xe8) {
        uintptr_t stub = address + (intptr_t)offset;
        if (!peek(stub, code, sizeof code)) {
            return 0;
        }
        /* endbr64, and a prefix of jumps */
        size_t at = memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0 ? 4 : 0;
        at += code[at] == 0xf2;
        if (code[at] == 0xff && code[at + 1] == 0x25) {
            memcpy(&offset, code + at + 2, sizeof offset);
            slot = stub + at + 6 + (intptr_t)offset;
        }
    }
    return slot != 0 && peek(slot, &function, sizeof function) ? function : 0;
}

void *margay_watch_place(uintptr_t at, uintptr_t stack)
{
    const struct range *range = range_of(at);
    uintptr_t caller;
    if (range == NULL) {
        return (void *)at;
    }
    if (!range->is_c || !peek(stack, &caller, sizeof caller) || range_of(caller) != NULL) {
        return NULL;
    }
    uintptr_t function = called_before(caller);
    for (size_t i = 0; function != 0 && i < sizeof copiers / sizeof *copiers; i++) {
        if (copiers[i] == function) {
            return (void *)caller;
        }
    }
    return NULL;
}

void margay_watch_find_code(void)
{
    dl_iterate_phdr(enter_ranges, NULL);
    for (size_t i = 0; i < sizeof copiers / sizeof *copiers; i++) {
        copiers[i] = (uintptr_t)dlsym(RTLD_DEFAULT, COPIERS[i]);
    }
}

/* Between a load and the store behind it that the program's next instructions make, as those of `n++` do. */
#define MOST_BETWEEN 24

int margay_watch_is_update(uintptr_t load, uintptr_t store)
{
    unsigned char code[MOST_BETWEEN];
    if (store <= load || store - load > sizeof code || !peek(load, code, store - load)) {
        return 0;
    }
    for (size_t i = 0; i < store - load; i++) {
        if ((code[i] & 0xf0) == 0x70 || code[i] == 0x0f || (code[i] & 0xfc) == 0xe0 || code[i] == 0xe8 || code[i] == 0xff) {
            return 0;
        }
    }
    return 1;
}

#endif
