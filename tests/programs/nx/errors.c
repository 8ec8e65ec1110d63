/* Wrong arguments: the twins return -1 and set errno; with an argument, the plain call of that name ends the job. */
#include "check.h"

static long f(void *x, void *work) { (void)x, (void)work; return 0; }
static void p(long a) { (void)a; }
static void h(long a, long b, long c, long d) { (void)a, (void)b, (void)c, (void)d; }

#define FAILS(call, number)                                                                       \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == -1);                                                                      \
        CHECK(errno == (number));                                                                 \
    } while (0)

/* Makes the call of that name with wrong arguments. */
#define PLAIN(call)                                                                               \
    do {                                                                                          \
        if (!strncmp(#call, what, strlen(what)) && #call[strlen(what)] == '(') call;              \
    } while (0)

static void plain(const char *what) {
    char x[8] = "1234567";
    long info[8], n;
    PLAIN(csend(-5, x, 8, 0, 0));
    PLAIN(isend(1, x, 8, 77, 0));
    PLAIN(csendrecv(1, x, 8, 77, 0, 1, x, 8));
    PLAIN(isendrecv(-1, x, 8, 0, 0, 1, x, 8));
    PLAIN(crecv((int)0x80000000, x, 8));
    PLAIN(crecvx(1, x, 8, 99, 0, info));
    PLAIN(irecv(1, NULL, 8));
    PLAIN(irecvx(1, x, 8, -3, 0, info));
    PLAIN(cprobe(1L << 33));
    PLAIN(cprobex(1, -7, 0, info));
    PLAIN(iprobe((int)0x80000000));
    PLAIN(iprobex(1, 0, 0, NULL));
    PLAIN(msgwait(12345));
    PLAIN(msgdone(-2));
    PLAIN(msgignore(0));
    PLAIN(msgcancel(1L << 40));
    PLAIN(msgmerge(3, 4));
    PLAIN(flushmsg(1, 99, 0));
    PLAIN(gsendx(1, x, 8, (long[]){0, 99}, 2));
    PLAIN(hsend(1, x, 8, 0, 0, NULL));
    PLAIN(hsendx(1, x, 8, 99, 0, p, 0));
    PLAIN(hrecv(1, x, -1, h));
    PLAIN(hrecvx(1, x, 8, 99, 0, NULL, 0));
    PLAIN(hsendrecv(1, x, 8, 99, 0, 1, x, 8, h));
    PLAIN(masktrap(2));
    PLAIN(gopf(x, 8, x, NULL));
    PLAIN(gdsum(NULL, 2, NULL));
    PLAIN(gisum(NULL, 2, NULL));
    PLAIN(gssum((void *)x, -2, NULL));
    PLAIN(gcolx(x, NULL, x));
    PLAIN(setptype(-1));
    PLAIN(ginv(-1));
    PLAIN(led(2));
    PLAIN(nx_pri(99, 1));
    PLAIN(nx_app_nodes(5, NULL, NULL));
    PLAIN(killproc(77, 0));
    PLAIN(nx_mkpart("no.mine", 2, NX_STD));
    PLAIN(nx_mkpart_rect("no.mine", 1, 2, NX_STD));
    PLAIN(nx_mkpart_map("no.mine", 1, &n, NX_STD));
    PLAIN(nx_mkpart_attr("no.mine", NX_ATTR_SZ, 2, NX_ATTR_END));
    PLAIN(nx_rmpart("no.mine", 0, 0));
    PLAIN(nx_chpart_epl("no.mine", 3));
    PLAIN(nx_chpart_mod("no.mine", 0755));
    PLAIN(nx_chpart_name("no.mine", "yours"));
    PLAIN(nx_chpart_owner("no.mine", 0, 0));
    PLAIN(nx_chpart_rq("no.mine", 0));
    PLAIN(nx_chpart_sched(NULL, 0));
    PLAIN(nx_pspart("no.mine", NULL, NULL));
    PLAIN(nx_waitall());
    PLAIN(nx_load(NULL, -1, 0, NULL, "a.out"));
    PLAIN(load("a.out", 0, 0));
    PLAIN(cop(NULL, NULL, &n));
    PLAIN(hwclock(NULL));
    PLAIN(nx_initve("mine", 2, NULL, NULL, NULL));
    PLAIN(nx_initve_rect("mine", -1, 2, 2, NULL, NULL, NULL));
    PLAIN(gcol(x, 8, x, 4, &n));
}

int main(int argc, char **argv) {
    char x[8] = "1234567";
    long info[8], n;
    if (argc > 1) {
        const char *what = argv[1];
        if (!strcmp(what, "too long")) csend(1, x, 8, mynode(), 0), crecv(1, x, 4);
        if (!strcmp(what, "too long for a handler")) {
            hrecv(1, x, 4, h);
            csend(1, x, 8, mynode(), 0);
            for (;;) flick();
        }
        if (!strcmp(what, "exit")) {
            long all[2] = {mynode(), 0};
            if (mynode() == 1) {
                csend(5, all, sizeof all, -1, 0);
                exit(3);
            }
            crecv(5, all, sizeof all);
            puts(all[0] == 1 ? "received" : "another message");
            exit(0);
        }
        gsync();
        if (!strcmp(what, "kill one") && mynode() == 0) killproc(1, 0);
        if (!strcmp(what, "kill all")) killcube(-1, -1);
        gsync();
        plain(what);
        return 0;
    }
    FAILS(_csend(-5, x, 8, 0, 0), EQTYPE);
    FAILS(_csend(1L << 31, x, 8, 0, 0), EQTYPE);
    FAILS(_csend(1, x, -1, 0, 0), EQBLEN);
    FAILS(_csend(1, NULL, 1, 0, 0), EQPARAM);
    FAILS(_csend(1, x, 8, numnodes(), 0), EQNODE);
    FAILS(_csend(1, x, 8, -2, 0), EQNODE);
    FAILS(_csend(1, x, 8, 0, -1), EQPID);
    FAILS(_csend(1, x, 8, -1, 40000), EQPID);
    FAILS(_isend(1, x, 8, 77, 0), EQNODE);
    FAILS(_csendrecv(1, x, 8, 77, 0, 1, x, 8), EQNODE);
    FAILS(_isendrecv(-1, x, 8, 0, 0, 1, x, 8), EQTYPE);
    FAILS(_crecv((int)0x80000000, x, 8), EQTYPE);
    FAILS(_crecv(1L << 40, x, 8), EQTYPE);
    FAILS(_crecv(1, x, -8), EQBLEN);
    FAILS(_crecvx(1, x, 8, 99, 0, info), EQNODE);
    FAILS(_crecvx(1, x, 8, 0, 99999, info), EQPID);
    FAILS(_crecvx(1, x, 8, 0, 0, NULL), EQPARAM);
    FAILS(_irecv(1, NULL, 8), EQPARAM);
    FAILS(_irecvx(1, x, 8, -3, 0, info), EQNODE);
    FAILS(_cprobe(1L << 33), EQTYPE);
    FAILS(_cprobex(1, -7, 0, info), EQNODE);
    FAILS(_iprobe((int)0x80000000), EQTYPE);
    FAILS(_iprobex(1, 0, 0, NULL), EQPARAM);
    FAILS(_msgwait(12345), EQMID);
    FAILS(_msgdone(-2), EQMID);
    FAILS(_msgignore(0), EQMID);
    FAILS(_msgcancel(1L << 40), EQMID);
    FAILS(_msgmerge(3, 4), EQMID);
    FAILS(_flushmsg(1, 99, 0), EQNODE);
    FAILS(_gsendx(1, x, 8, (long[]){0, 99}, 2), EQNODE);
    FAILS(_gsendx(1, x, 8, NULL, 2), EQPARAM);
    FAILS(_hsend(1, x, 8, 0, 0, NULL), EQPARAM);
    FAILS(_hsendx(1, x, 8, 99, 0, p, 0), EQNODE);
    FAILS(_hrecv(1, x, -1, h), EQBLEN);
    FAILS(_hrecvx(1, x, 8, 99, 0, NULL, 0), EQNODE);
    FAILS(_hsendrecv(1, x, 8, 99, 0, 1, x, 8, h), EQNODE);
    FAILS(_masktrap(2), EQPARAM);
    FAILS(_gopf(x, 8, x, NULL), EQPARAM);
    FAILS(_gopf(x, -8, x, f), EQBLEN);
    FAILS(_gdsum(NULL, 2, NULL), EQPARAM);
    FAILS(_gisum(NULL, 2, NULL), EQPARAM);
    FAILS(_gssum((void *)x, -2, NULL), EQBLEN);
    FAILS(_gcolx(x, NULL, x), EQPARAM);
    FAILS(_setptype(-1), EQPID);
    FAILS(_ginv(-1), EQPARAM);
    FAILS(_led(2), EQPARAM);
    FAILS(_nx_pri(99, 1), EQNODE);
    FAILS(_nx_app_nodes(5, NULL, NULL), EQPARAM);
    FAILS(_killproc(77, 0), EQNODE);
    FAILS(_killproc(0, 5), EQNOPROC);
    FAILS(_nx_mkpart("no.mine", 2, NX_STD), EQPARTITION);
    FAILS(_nx_mkpart_rect("no.mine", 1, 2, NX_STD), EQPARTITION);
    FAILS(_nx_mkpart_map("no.mine", 1, &n, NX_STD), EQPARTITION);
    FAILS(_nx_mkpart_attr("no.mine", NX_ATTR_SZ, 2, NX_ATTR_END), EQPARTITION);
    FAILS(_nx_rmpart("no.mine", 0, 0), EQPARTITION);
    FAILS(_nx_chpart_epl("no.mine", 3), EQPARTITION);
    FAILS(_nx_chpart_mod("no.mine", 0755), EQPARTITION);
    FAILS(_nx_chpart_name("no.mine", "yours"), EQPARTITION);
    FAILS(_nx_chpart_owner("no.mine", 0, 0), EQPARTITION);
    FAILS(_nx_chpart_rq("no.mine", 1), EQPARTITION);
    FAILS(_nx_chpart_sched(NULL, 0), EQPARAM);
    FAILS(_nx_pspart("no.mine", NULL, NULL), EQPARTITION);
    FAILS(_nx_waitall(), EQSTATE);
    FAILS(_nx_load(NULL, -1, 0, NULL, "a.out"), EQSTATE);
    FAILS(_load("a.out", 0, 0), EQSTATE);
    FAILS(_nx_initve("mine", 2, NULL, NULL, NULL), EQPARTITION);
    FAILS(_cop(NULL, NULL, &n), EQPARAM);
    FAILS(_hwclock(NULL), EQPARAM);

    /* A message that is too long is an error of the call that would have completed it, and is gone. */
    csend(1, x, 8, mynode(), 0);
    FAILS(_crecv(1, x, 4), EQMSGLONG);
    csend(1, x, 8, mynode(), 0);
    long mid = irecv(1, x, 4);
    FAILS(_msgwait(mid), EQMSGLONG);
    CHECK(iprobe(-1) == 0);
    long all;
    FAILS(_gcol(x, 8, x, 4, &all), EQMSGLONG);
    errno = EQMSGLONG;
    nx_perror("the last word");
    all_is_well();
}
