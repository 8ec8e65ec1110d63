/* Messages between all pairs, a node with itself included: every call, selectors, force types, ids,
 * info, lengths up to a megabyte. */
#include "check.h"

static long me, nodes;

static void fill(char *bytes, long n, long seed) {
    for (long i = 0; i < n; i++) bytes[i] = (char)(seed * 31 + i * 7);
}

static int is_filled(const char *bytes, long n, long seed) {
    for (long i = 0; i < n; i++)
        if (bytes[i] != (char)(seed * 31 + i * 7)) return 0;
    return 1;
}

/* Every length goes through the ring once to the next node, blocking and not. */
static void lengths(void) {
    static const long sizes[] = {0, 1, 40, 41, 4096, 4097, 65536, 65537, 1000000};
    long right = (me + 1) % nodes, left = (me + nodes - 1) % nodes;
    char *out = malloc(1000000), *in = malloc(1000000);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        long n = sizes[i], type = 100 + i;
        fill(out, n, me + i);
        memset(in, 0x55, 1000000);
        long mid = irecv(type, in, 1000000);
        csend(type, out, n, right, 0);
        msgwait(mid);
        CHECK(infocount() == n && infonode() == left && infotype() == type && infoptype() == 0);
        CHECK(is_filled(in, n, left + i));
        CHECK(msginfo[0] == type && msginfo[1] == n && msginfo[2] == left && msginfo[3] == 0);
        /* Other types, since these come from both sides. */
        long got = csendrecv(type + 100, out, n, right, 0, type + 100, in, n);
        CHECK(got == n && is_filled(in, n, left + i));
        mid = isendrecv(type + 200, out, n, left, 0, type + 200, in, n);
        while (!msgdone(mid)) flick();
        CHECK(infocount() == n && infonode() == right && is_filled(in, n, right + i));
        mid = isend(type + 300, out, n, left, 0);
        crecv(type + 300, in, n);
        CHECK(is_filled(in, n, right + i));
        msgwait(mid);
    }
    free(out);
    free(in);
    gsync();
}

/* To the same node, so that what is there is known exactly. */
static void selectors(void) {
    char c;
    for (long type = 0; type < 40; type++) {
        c = (char)type;
        csend(type, &c, 1, me, 0);
    }
    csend(FORCE_TYPE + 5, "f", 1, me, 0);
    crecv(35, &c, 1);
    CHECK(c == 35 && infotype() == 35);
    /* Types 3 and 7 by a mask, as programs for 32 bits write it and as a number below zero. */
    crecv((long)(0x80000000u | 1u << 3 | 1u << 7), &c, 1);
    CHECK(c == 3);
    crecv((int)(0x80000000u | 1u << 3 | 1u << 7), &c, 1);
    CHECK(c == 7);
    /* Bit 30: all from 30 on, but no force type. */
    long above = (int)(0x80000000u | 1u << 30);
    for (long type = 30; type < 40; type++)
        if (type != 35) {
            CHECK(iprobe(above) == 1 && infotype() == type);
            crecv(above, &c, 1);
            CHECK(c == type);
        }
    CHECK(iprobe(above) == 0);
    /* Any: in the order of arrival. */
    for (long type = 0; type < 30; type++)
        if (type != 3 && type != 7) {
            cprobe(-1);
            CHECK(infotype() == type && infocount() == 1);
            crecv(-1, &c, 1);
            CHECK(c == type);
        }
    CHECK(iprobe(-1) == 0);
    CHECK(iprobe(FORCE_TYPE + 5) == 1);
    crecv(FORCE_TYPE + 5, &c, 1);
    CHECK(c == 'f' && infotype() == FORCE_TYPE + 5);

    /* A receive by a mask that is posted before and after one by a type. */
    long info[8] = {0};
    char a = 0, b = 0;
    long wide = irecvx(-1, &a, 1, me, 0, info);
    long narrow = irecv(9, &b, 1);
    csend(9, "1", 1, me, 0);
    csend(9, "2", 1, me, 0);
    msgwait(wide);
    msgwait(narrow);
    CHECK(a == '1' && b == '2' && info[0] == 9 && info[1] == 1 && info[2] == me && info[3] == 0);

    csend(4, "x", 1, me, 0);
    csend(5, "yy", 2, me, 0);
    flushmsg(4, -1, -1);
    CHECK(iprobe(4) == 0 && iprobe(5) == 1);
    flushmsg(-1, me, 0);
    CHECK(iprobe(-1) == 0);
    char *large = calloc(1, 300000);
    long mid = isend(6, large, 300000, me, 0);
    flushmsg(6, -1, -1);
    msgwait(mid);
    free(large);
    gsync();
}

static void from_certain_nodes(void) {
    if (me != 0) {
        csend(11, &me, sizeof me, 0, 0);
    } else {
        for (long node = nodes - 1; node > 0; node--) {
            long info[8], value = -1;
            cprobex(-1, node, -1, info);
            CHECK(info[0] == 11 && info[1] == sizeof value && info[2] == node && info[3] == 0);
            CHECK(iprobex(11, node, 0, info) == 1);
            CHECK(iprobex(12, node, 0, info) == 0);
            crecvx(11, &value, sizeof value, node, 0, info);
            CHECK(value == node && info[2] == node);
            CHECK(iprobex(-1, node, -1, info) == 0);
        }
    }
    gsync();
}

static void to_many(void) {
    long value = -1;
    if (me == 0) {
        value = 77;
        csend(20, &value, sizeof value, -1, 0);
        long mid = isend(21, &value, sizeof value, -1, 0);
        msgwait(mid);
        long *list = malloc(nodes * sizeof *list);
        for (long i = 0; i < nodes; i++) list[i] = i;
        gsendx(22, &value, sizeof value, list, nodes);
        free(list);
        crecv(22, &value, sizeof value);
        CHECK(iprobe(20) == 0 && iprobe(21) == 0);
    } else {
        for (long type = 20; type < 23; type++) {
            crecv(type, &value, sizeof value);
            CHECK(value == 77 && infonode() == 0);
        }
    }
    gsync();
}

static void ids(void) {
    char a[4], b[4], c[4];
    long first = irecv(30, a, 4), second = irecv(31, b, 4), third = irecv(32, c, 4);
    long all = msgmerge(msgmerge(-1, first), msgmerge(second, third));
    CHECK(msgmerge(all, -1) == all);
    csend(30, "aaa", 4, me, 0);
    csend(32, "ccc", 4, me, 0);
    CHECK(msgdone(all) == 0);
    csend(31, "bbb", 4, me, 0);
    while (!msgdone(all)) flick();
    CHECK(!strcmp(a, "aaa") && !strcmp(b, "bbb") && !strcmp(c, "ccc"));
    msgwait(-1);
    CHECK(msgdone(-1) == 1);

    /* Taken back: the message stays for the next receive. */
    memset(a, 0, 4);
    long mid = irecv(33, a, 4);
    msgcancel(mid);
    csend(33, "ddd", 4, me, 0);
    crecv(33, b, 4);
    CHECK(!strcmp(b, "ddd") && a[0] == 0);

    mid = irecv(34, a, 4);
    msgignore(mid);
    csend(34, "eee", 4, me, 0);
    while (iprobe(34)) flick();
    CHECK(!strcmp(a, "eee"));

    /* Thousands of ids, used again and again. */
    for (int round = 0; round < 3; round++) {
        static long mids[2000];
        static int values[2000];
        for (long i = 0; i < 2000; i++) mids[i] = irecv(1000 + i, &values[i], sizeof(int));
        for (int i = 1999; i >= 0; i--) csend(1000 + i, &i, sizeof i, me, 0);
        for (long i = 0; i < 2000; i++) {
            msgwait(mids[i]);
            CHECK(values[i] == i);
        }
    }
    gsync();
}

static void order(void) {
    enum { COUNT = 3000 };
    if (nodes < 2) return;
    if (me == 1) {
        for (int i = 0; i < COUNT; i++) csend(i % 3 == 0 ? 41 : 40, &i, sizeof i, 0, 0);
    } else if (me == 0) {
        int last = -1, value;
        for (int i = 0; i < COUNT; i++)
            if (i % 3 != 0) {
                crecv(40, &value, sizeof value);
                CHECK(value > last);
                last = value;
            }
        for (int i = 0; i < COUNT; i += 3) {
            crecv(41, &value, sizeof value);
            CHECK(value == i);
        }
    }
    gsync();
}

static void clocks_and_places(void) {
    CHECK(mynode() >= 0 && mynode() < numnodes() && myhost() == numnodes());
    CHECK(myptype() == 0 && mypid() == 0);
    long rows, cols, other_rows, other_cols, *list, n;
    mypart(&rows, &cols);
    CHECK(rows * cols == nodes);
    CHECK(nx_app_rect(&other_rows, &other_cols) == 0 && rows == other_rows && cols == other_cols);
    CHECK(nx_app_nodes(0, &list, &n) == 0 && n == nodes && list[n - 1] == n - 1);
    free(list);
    CHECK(1L << nodedim() >= nodes && (nodes == 1 || 1L << (nodedim() - 1) < nodes));
    for (long i = 0; i < 64; i++) CHECK(ginv(gray(i)) == i && __builtin_popcountl(gray(i) ^ gray(i + 1)) == 1);
    double before = dclock();
    unsigned long ms = mclock();
    esize_t ticks;
    hwclock(&ticks);
    CHECK(ticks.slow >= 0 && ticks.shigh >= 0);
    double by_ticks = (ticks.shigh * 4294967296.0 + ticks.slow) / HWHZ;
    CHECK(by_ticks >= before && by_ticks < before + 1);
    while (mclock() < ms + 3) flick();
    CHECK(dclock() > before);
    led(1);
    led(0);
    CHECK(nx_pri(-1, 5) == 0);
    CHECK(masktrap(1) == 0 && masktrap(0) == 1 && masktrap(0) == 0);
    /* Messages to another type wait until this process has it. */
    csend(50, "later", 6, me, 8);
    CHECK(iprobe(-1) == 0);
    setptype(8);
    char text[6];
    crecv(50, text, 6);
    CHECK(!strcmp(text, "later") && infoptype() == 0 && myptype() == 8);
    setptype(0);
}

int main(void) {
    me = mynode();
    nodes = numnodes();
    clocks_and_places();
    gsync();
    lengths();
    selectors();
    from_certain_nodes();
    to_many();
    ids();
    order();
    all_is_well();
}
