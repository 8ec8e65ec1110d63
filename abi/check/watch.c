/* Loads and stores of the program itself in memory that MPI is using. The processor's four watch registers hold the
 * first and the last bytes of buffers of pending operations and of windows; a hit is a SIGTRAP on the thread that made
 * the access, right behind its instruction. The handler notes where that was, and the next record is preceded by a
 * record of it. */
#include "watch.h"
#include "record.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Thread_local int margay_check_depth;

#if defined(__x86_64__)
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define REGISTERS 4
/* Threads that are looked at, and operations; of more operations the oldest are not. */
#define MOST_THREADS 64
#define MOST_WATCHES 1024
/* Hits that the next record says. */
#define MOST_NOTES 64
/* A register that the library's own accesses hit so often is left alone. */
#define MOST_IGNORED 4096
/* Registers are set, and hit by the library's own accesses, for a while at the begin and then for a part of the time. */
#define FREE_NS 100000000
#define SHARE 16
/* What a hit costs, most of it in the kernel. */
#define HIT_NS 9000

/* Of the kernel's siginfo_t, which older C libraries do not have. */
#define OF_PERF 6
#define DELIVERED_LATER 1
struct perf_info {
    int signal, error, code, padding;
    void *address;
    unsigned long data;
    uint32_t type, flags;
};

/* An operation that uses memory, or a window. */
struct watch {
    enum margay_watch use;
    MPI_Request request;
    MPI_Win win;
    int rank;
    uint64_t number;
    uintptr_t begin, end;
    /* Of an access to a window: its call. */
    const char *name;
    void *site;
    /* Said, or not to be looked at until the next call of MPI: loads, stores. */
    int is_off[2];
    /* By age, and among those of one request or of one window: places in `watches`, NONE at the end. */
    uint16_t older, newer;
    struct links {
        uint16_t next, before;
    } of_request, of_win;
};

struct part {
    uint64_t number;
    uintptr_t address;
    uint32_t length, type;
};

struct note {
    struct watch of;
    /* The instruction, and what is said of it: the line of a program in Python. */
    const void *at;
    void *site;
    uintptr_t address;
    uint32_t length;
    int is_store;
};

struct thread {
    int is_used;
    int events[REGISTERS];
    uint64_t seen[REGISTERS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { UNKNOWN, ON, OFF } state;
#define NONE 0xffff
#define CHAINS 4096
static struct watch watches[MOST_WATCHES];
static uint16_t newest = NONE, oldest = NONE, unused = NONE;
static size_t watches_used, watches_opened;
static uint16_t first_of_request[CHAINS], first_of_win[CHAINS];
static uint64_t next_number = 1;
/* What setting registers and needless hits have cost, since when, and whether a record has said that this is limited. */
static uint64_t spent_ns, began_ns;
static int is_sparing;
static struct part parts[REGISTERS];
static int registers;
static uint32_t ignored[REGISTERS];
static struct thread threads[MOST_THREADS];
static struct note notes[MOST_NOTES];
static volatile int notes_used;
static pthread_key_t at_exit;
static _Thread_local struct thread *own;
static _Thread_local int was_tried;

static struct perf_event_attr attributes(int at, const struct part *part)
{
    struct perf_event_attr a;
    memset(&a, 0, sizeof a);
    a.type = PERF_TYPE_BREAKPOINT;
    a.size = sizeof a;
    a.sample_period = 1;
    a.sample_max_stack = 127;
    a.exclude_kernel = 1;
    a.exclude_hv = 1;
    a.sigtrap = 1;
    a.remove_on_exec = 1;
    a.sig_data = (uint64_t)at;
    a.disabled = part->number == 0;
    a.bp_type = part->number == 0 ? HW_BREAKPOINT_W : part->type;
    a.bp_addr = part->number == 0 ? (uintptr_t)&attributes & ~(uintptr_t)7 : part->address;
    a.bp_len = part->number == 0 ? HW_BREAKPOINT_LEN_8 : part->length;
    return a;
}

static uint64_t hits_of(int event)
{
    uint64_t n = 0;
    return event >= 0 && read(event, &n, sizeof n) == (ssize_t)sizeof n ? n : 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void set(struct thread *thread, int at)
{
    struct perf_event_attr a = attributes(at, &parts[at]);
    uint64_t start = now_ns();
    if (ioctl(thread->events[at], PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &a) != 0) {
        /* Rather nothing than another place. */
        ioctl(thread->events[at], PERF_EVENT_IOC_DISABLE, 0);
    }
    thread->seen[at] = hits_of(thread->events[at]);
    spent_ns += now_ns() - start;
}

static struct watch *watch_of(uint64_t number)
{
    for (uint16_t i = newest; number != 0 && i != NONE; i = watches[i].older) {
        if (watches[i].number == number) {
            return &watches[i];
        }
    }
    return NULL;
}

/* The first bytes of a buffer that one register can hold, or the last ones. */
static struct part piece(const struct watch *of, int is_last, uint32_t type)
{
    /* A window's owner and others may use neighbours at the same time: of a hit of one byte it is certain which. */
    uint32_t length = of->use == WATCH_WINDOW ? 1 : 8;
    uintptr_t at;
    do {
        at = is_last ? (of->end - length) & ~(uintptr_t)(length - 1) : (of->begin + length - 1) & ~(uintptr_t)(length - 1);
        if (at >= of->begin && at + length <= of->end && (is_last ? at + length == of->end : at == of->begin)) {
            break;
        }
        length /= 2;
    } while (length > 1);
    at = is_last ? of->end - length : of->begin;
    return (struct part){of->number, at, length, type};
}

static int is_stored_only(const struct watch *of)
{
    return of->use == WATCH_SENT || of->use == WATCH_PUT;
}

static int is_same(const struct part *a, const struct part *b)
{
    return a->number == b->number && a->address == b->address && a->length == b->length && a->type == b->type;
}

/* Chooses what the registers hold, and sets those that change. The lock is held. */
static void choose(void)
{
    struct part wanted[REGISTERS] = {{0}};
    int used = 0;
    for (int is_last = 0; is_last < 2; is_last++) {
        for (uint16_t i = newest; used < registers && i != NONE; i = watches[i].older) {
            const struct watch *of = &watches[i];
            if (of->use != WATCH_WINDOW && !of->is_off[1] && (!is_last || of->end - of->begin > 8)) {
                wanted[used++] = piece(of, is_last, is_stored_only(of) ? HW_BREAKPOINT_W : HW_BREAKPOINT_RW);
            }
        }
    }
    for (int is_last = 0; is_last < 2; is_last++) {
        for (uint16_t i = newest; used < registers && i != NONE; i = watches[i].older) {
            const struct watch *of = &watches[i];
            if (of->use != WATCH_WINDOW || of->is_off[1] || (is_last && of->end - of->begin == 1)) {
                continue;
            }
            wanted[used++] = piece(of, is_last, HW_BREAKPOINT_W);
            /* The one before it tells stores from loads. */
            if (used < registers && !of->is_off[0]) {
                wanted[used++] = piece(of, is_last, HW_BREAKPOINT_RW);
            }
        }
    }
    /* What is in a register stays there: to set one costs a system call for each thread. */
    int is_kept[REGISTERS] = {0};
    for (int i = 0; i < used; i++) {
        for (int at = 0; at < registers && wanted[i].number != 0; at++) {
            if (!is_kept[at] && is_same(&wanted[i], &parts[at])) {
                is_kept[at] = 1;
                wanted[i].number = 0;
            }
        }
    }
    for (int at = 0, next = 0; at < registers; at++) {
        if (is_kept[at]) {
            continue;
        }
        while (next < used && wanted[next].number == 0) {
            next++;
        }
        struct part new = next < used ? wanted[next++] : (struct part){0};
        if (is_same(&new, &parts[at])) {
            continue;
        }
        parts[at] = new;
        ignored[at] = 0;
        for (int i = 0; i < MOST_THREADS; i++) {
            if (threads[i].is_used) {
                set(&threads[i], at);
            }
        }
    }
}

/* Whether a hit was a store. Of a register for both, the one beside it has counted stores; without one it is not known
 * and does not matter. The lock is held. */
static int was_store(struct thread *thread, int at)
{
    struct part twin = parts[at];
    twin.type = HW_BREAKPOINT_W;
    int of = 0;
    while (of < registers && !is_same(&parts[of], &twin)) {
        of++;
    }
    if (of == registers) {
        return 0;
    }
    uint64_t before = thread->seen[of];
    thread->seen[of] = hits_of(thread->events[of]);
    return of == at || thread->seen[of] > before;
}

static void note(int at, uintptr_t address, void *place)
{
    struct watch *of = watch_of(parts[at].number);
    if (of == NULL || own == NULL || address < parts[at].address || address >= parts[at].address + parts[at].length) {
        return;
    }
    int is_store = was_store(own, at);
    if (of->is_off[is_store]) {
        return;
    }
    const struct note *last = notes_used == 0 ? NULL : &notes[notes_used - 1];
    if (last != NULL && of->use == WATCH_WINDOW && last->of.number == of->number && is_store && !last->is_store &&
        last->address == parts[at].address && margay_watch_is_update((uintptr_t)last->at, (uintptr_t)place)) {
        notes_used--;
    }
    if (notes_used < MOST_NOTES) {
        notes[notes_used] = (struct note){*of, place, (void *)margay_program_address(place), parts[at].address, parts[at].length, is_store};
        notes_used++;
    }
    /* A load of a window may be followed by a store; the rest is said once. */
    of->is_off[0] = 1;
    of->is_off[1] |= is_store || of->use != WATCH_WINDOW;
    choose();
}

/* What the program, or the run-time library of its language, does with the signal. */
static struct sigaction before;

/* The program's own trap. The lock is not held: handlers may not return. */
static void pass_on(int signal_number, siginfo_t *information, void *context)
{
    struct sigaction plain = {.sa_handler = SIG_DFL}, own_action = before;
    if (own_action.sa_flags & SA_RESETHAND) {
        before = plain;
    }
    if (own_action.sa_flags & SA_SIGINFO) {
        own_action.sa_sigaction(signal_number, information, context);
    } else if (own_action.sa_handler == SIG_DFL) {
        sigaction(signal_number, &plain, NULL);
        raise(signal_number);
    } else if (own_action.sa_handler != SIG_IGN) {
        own_action.sa_handler(signal_number);
    }
}

static void hit(int signal_number, siginfo_t *information, void *context)
{
    int error = errno;
    struct perf_info info;
    memcpy(&info, information, sizeof info);
    if (info.code != OF_PERF || info.type != PERF_TYPE_BREAKPOINT) {
        pass_on(signal_number, information, context);
        errno = error;
        return;
    }
    const greg_t *registers_of = ((ucontext_t *)context)->uc_mcontext.gregs;
    void *place = (info.flags & DELIVERED_LATER) != 0 || margay_check_depth > 0
                      ? NULL
                      : margay_watch_place((uintptr_t)registers_of[REG_RIP], (uintptr_t)registers_of[REG_RSP]);
    int at = (int)info.data;
    if (at >= 0 && at < REGISTERS && place != NULL) {
        /* The thread is in the program and does not hold the lock. */
        pthread_mutex_lock(&lock);
        note(at, (uintptr_t)info.address, place);
        pthread_mutex_unlock(&lock);
    } else if (at >= 0 && at < REGISTERS && own != NULL) {
        __atomic_fetch_add(&spent_ns, HIT_NS, __ATOMIC_RELAXED);
        if (++ignored[at] == MOST_IGNORED) {
            ioctl(own->events[at], PERF_EVENT_IOC_DISABLE, 0);
        }
    }
    errno = error;
}

static void close_events(void *thread_of)
{
    struct thread *thread = thread_of;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < REGISTERS; i++) {
        if (thread->events[i] >= 0) {
            close(thread->events[i]);
        }
    }
    thread->is_used = 0;
    pthread_mutex_unlock(&lock);
}

/* Why this process is not looked at, in a record: 0 when a debugger or the program itself has the signal. */
static void say_off(int error)
{
    state = OFF;
    pthread_mutex_unlock(&lock);
    margay_check_record(UNWATCHED, "", (void *)say_off, 0, "i", error);
    pthread_mutex_lock(&lock);
}

static int is_traced(void)
{
    char line[128];
    long tracer = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "TracerPid: %ld", &tracer) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return tracer != 0;
}

static int has_our_handler(void)
{
    struct sigaction now;
    return sigaction(SIGTRAP, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == hit;
}

/* Opens the events of this thread, of the first one as many as there are registers. The lock is held. */
static int open_events(struct thread *thread)
{
    static const struct part none;
    int most = registers == 0 ? REGISTERS : registers, opened = 0;
    for (int i = 0; i < REGISTERS; i++) {
        thread->events[i] = -1;
    }
    for (; opened < most; opened++) {
        struct perf_event_attr a = attributes(opened, &none);
        thread->events[opened] = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        if (thread->events[opened] < 0) {
            break;
        }
    }
    return opened;
}

/* Whether this thread's accesses are looked at; makes it so. The lock is held. */
static int look_at_this_thread(void)
{
    if (state == OFF || was_tried) {
        return state == ON && own != NULL;
    }
    was_tried = 1;
    sigset_t blocked;
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0 || sigismember(&blocked, SIGTRAP)) {
        return 0;
    }
    if (state == UNKNOWN) {
        /* libgfortran has a handler that writes where the program is. It gets all traps that are not of the registers. */
        if (is_traced() || sigaction(SIGTRAP, NULL, &before) != 0 || pthread_key_create(&at_exit, close_events) != 0) {
            say_off(0);
            return 0;
        }
        struct sigaction new = {.sa_sigaction = hit, .sa_mask = before.sa_mask, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
        margay_watch_find_code();
        sigaction(SIGTRAP, &new, NULL);
    }
    struct thread *thread = threads;
    while (thread < threads + MOST_THREADS && thread->is_used) {
        thread++;
    }
    if (thread == threads + MOST_THREADS) {
        return 0;
    }
    int opened = open_events(thread), error = errno;
    if (opened == 0 || opened < registers) {
        for (int i = 0; i < opened; i++) {
            close(thread->events[i]);
        }
        if (state == UNKNOWN) {
            sigaction(SIGTRAP, &before, NULL);
            say_off(error);
        }
        return 0;
    }
    registers = opened;
    state = ON;
    thread->is_used = 1;
    own = thread;
    pthread_setspecific(at_exit, thread);
    for (int i = 0; i < registers; i++) {
        set(thread, i);
    }
    return 1;
}

static uint16_t *chain_of(uint16_t *chains, const void *handle)
{
    return &chains[((uintptr_t)handle * 0x9E3779B97F4A7C15u) >> 52];
}

static struct links *links_of(uint16_t at, size_t links)
{
    return (struct links *)((char *)&watches[at] + links);
}

/* Puts a watch at the begin of a chain, or takes it out; `links`: where it has those of the chain. */
static void chain(uint16_t *first, uint16_t at, size_t links)
{
    *links_of(at, links) = (struct links){*first, NONE};
    if (*first != NONE) {
        links_of(*first, links)->before = at;
    }
    *first = at;
}

static void unchain(uint16_t *first, uint16_t at, size_t links)
{
    struct links its = *links_of(at, links);
    *(its.before == NONE ? first : &links_of(its.before, links)->next) = its.next;
    if (its.next != NONE) {
        links_of(its.next, links)->before = its.before;
    }
}

/* Forgets a watch; whether a register holds a part of it. The lock is held. */
static int forget(uint16_t at)
{
    struct watch *of = &watches[at];
    *(of->newer == NONE ? &newest : &watches[of->newer].older) = of->older;
    *(of->older == NONE ? &oldest : &watches[of->older].newer) = of->newer;
    if (of->request != MPI_REQUEST_NULL) {
        unchain(chain_of(first_of_request, of->request), at, offsetof(struct watch, of_request));
    }
    if (of->win != MPI_WIN_NULL) {
        unchain(chain_of(first_of_win, of->win), at, offsetof(struct watch, of_win));
    }
    of->older = unused;
    unused = at;
    watches_used--;
    int is_held = 0;
    for (int i = 0; i < registers; i++) {
        is_held |= parts[i].number == of->number;
    }
    of->number = 0;
    return is_held;
}

/* Enters a watch as the newest one. The lock is held. */
static struct watch *enter(const struct watch *new)
{
    if (watches_opened == 0) {
        memset(first_of_request, 0xff, sizeof first_of_request);
        memset(first_of_win, 0xff, sizeof first_of_win);
    }
    if (watches_used == MOST_WATCHES) {
        forget(oldest);
    }
    uint16_t at = unused == NONE ? (uint16_t)watches_opened++ : unused;
    unused = unused == NONE ? NONE : watches[at].older;
    watches[at] = *new;
    watches[at].older = newest;
    watches[at].newer = NONE;
    *(newest == NONE ? &oldest : &watches[newest].newer) = at;
    newest = at;
    if (new->request != MPI_REQUEST_NULL) {
        chain(chain_of(first_of_request, new->request), at, offsetof(struct watch, of_request));
    }
    if (new->win != MPI_WIN_NULL) {
        chain(chain_of(first_of_win, new->win), at, offsetof(struct watch, of_win));
    }
    watches_used++;
    return &watches[at];
}

/* Nothing is looked at any more once the program has taken the signal: its handler may call ours, which it replaced, and
 * ours would call it again. The lock is held. */
static void stop(void)
{
    while (newest != NONE) {
        forget(newest);
    }
    choose();
    say_off(0);
}

/* Whether registers have taken their share of the time; a record says so once. The lock is held. */
static int must_spare(void)
{
    uint64_t now = now_ns();
    began_ns = began_ns == 0 ? now : began_ns;
    if (__atomic_load_n(&spent_ns, __ATOMIC_RELAXED) < FREE_NS + (now - began_ns) / SHARE) {
        return 0;
    }
    if (!is_sparing) {
        is_sparing = 1;
        pthread_mutex_unlock(&lock);
        margay_check_record(UNWATCHED, "", (void *)must_spare, 0, "i", SPARING);
        pthread_mutex_lock(&lock);
    }
    return 1;
}

void margay_watch_begin(enum margay_watch use, MPI_Request request, MPI_Win win, int rank, const void *buffer, size_t bytes,
                        const char *name, void *site)
{
    uintptr_t begin = (uintptr_t)buffer;
    if (bytes == 0 || begin == 0 || begin + bytes < begin || !margay_check_is_on()) {
        return;
    }
    pthread_mutex_lock(&lock);
    /* Of an operation that is left out nothing is kept; it would get a register when others end. */
    if ((look_at_this_thread() || state == ON) && (use == WATCH_WINDOW || !must_spare())) {
        struct watch new = {.use = use, .request = request, .win = win, .rank = rank, .number = next_number++,
                            .begin = begin, .end = begin + bytes, .name = name, .site = site};
        enter(&new);
        if (has_our_handler()) {
            choose();
        } else {
            stop();
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Ends those of a request, or those of a window with a rank: all ranks when that is -1. */
static void end(MPI_Request request, MPI_Win win, int rank, int is_freed)
{
    if (watches_used == 0 || state != ON || !margay_check_is_on()) {
        return;
    }
    pthread_mutex_lock(&lock);
    int is_held = 0, is_of_request = request != MPI_REQUEST_NULL;
    uint16_t next = is_of_request ? *chain_of(first_of_request, request) : *chain_of(first_of_win, win);
    while (next != NONE) {
        uint16_t at = next;
        const struct watch *of = &watches[at];
        next = is_of_request ? of->of_request.next : of->of_win.next;
        int is_its = is_of_request ? of->request == request
                                   : of->win == win && (of->use == WATCH_WINDOW ? is_freed : rank < 0 || of->rank == rank);
        if (is_its) {
            is_held |= forget(at);
        }
    }
    if (is_held) {
        choose();
    }
    pthread_mutex_unlock(&lock);
}

void margay_watch_end(MPI_Request request)
{
    if (request != MPI_REQUEST_NULL) {
        end(request, MPI_WIN_NULL, 0, 0);
    }
}

void margay_watch_synchronized(MPI_Win win, int rank)
{
    end(MPI_REQUEST_NULL, win, rank, 0);
}

void margay_watch_freed(MPI_Win win)
{
    end(MPI_REQUEST_NULL, win, -1, 1);
}

void margay_watch_say(void)
{
    if (notes_used == 0) {
        return;
    }
    struct note said[MOST_NOTES];
    pthread_mutex_lock(&lock);
    int n = notes_used;
    memcpy(said, notes, (size_t)n * sizeof *notes);
    notes_used = 0;
    for (uint16_t i = newest; i != NONE; i = watches[i].older) {
        if (watches[i].use == WATCH_WINDOW) {
            watches[i].is_off[0] = watches[i].is_off[1] = 0;
        }
    }
    choose();
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++) {
        const struct watch *of = &said[i].of;
        if (of->use == WATCH_WINDOW) {
            margay_check_record(TOUCHED, said[i].is_store ? "store" : "load", said[i].site, 0, "hll", of->win,
                                (int64_t)said[i].address, (int64_t)said[i].length);
        } else if (of->site == NULL) {
            margay_check_was_touched(of->request, NULL);
            margay_check_record(TOUCHED, of->use == WATCH_SENT ? "sent" : "received", said[i].site, 0, "H", 1, &of->request);
        } else {
            margay_check_was_touched(MPI_REQUEST_NULL, (void *)of->begin);
            margay_check_record(TOUCHED, of->use == WATCH_PUT ? "put" : "got", said[i].site, 0, "ht", of->site, of->name);
        }
    }
}

#else /* Other processors stop before the access, not behind it. */

void margay_watch_begin(enum margay_watch use, MPI_Request request, MPI_Win win, int rank, const void *buffer, size_t bytes,
                        const char *name, void *site)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int was_said;
    (void)use, (void)request, (void)win, (void)rank, (void)buffer, (void)name, (void)site;
    pthread_mutex_lock(&lock);
    int is_first = bytes > 0 && !was_said && margay_check_is_on();
    was_said |= is_first;
    pthread_mutex_unlock(&lock);
    if (is_first) {
        margay_check_record(UNWATCHED, "", (void *)margay_watch_begin, 0, "i", ENOSYS);
    }
}

void margay_watch_end(MPI_Request request)
{
    (void)request;
}

void margay_watch_synchronized(MPI_Win win, int rank)
{
    (void)win, (void)rank;
}

void margay_watch_freed(MPI_Win win)
{
    (void)win;
}

void margay_watch_say(void)
{
}

#endif
