/* nx.h: the NX message-passing library, Margay. Printed by `cargo xtask header`; see docs/nx.md. */
#ifndef NX_H_INCLUDED
#define NX_H_INCLUDED

#ifdef __cplusplus
extern "C" {
#endif

/* A function with arguments of any type, for gopf. */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 202311L)
#define NX_OPERANDS void *, void *
#else
#define NX_OPERANDS
#endif

#define INVALID_PTYPE (-1) /* No process type. */
#define FORCE_TYPE 1073741824 /* The first force type: only calls that ask for exactly such a type receive its messages. */
#define NX_STD 0 /* Scheduling of a partition: each process by itself. */
#define NX_GANG 1 /* Scheduling of a partition: gangs. */
#define NX_SPS 2 /* Scheduling of a partition: the space alone is shared. */
#define M_UNIX 0 /* Mode of a file: each node has a pointer. */
#define M_LOG 1 /* Mode of a file: one pointer for all nodes, first come, first served. */
#define M_SYNC 2 /* Mode of a file: one pointer for all nodes, in their order. */
#define M_RECORD 3 /* Mode of a file: records of one length, in the order of nodes, without waiting. */
#define M_GLOBAL 4 /* Mode of a file: all nodes do the same, and the file is read or written once. */
#define M_ASYNC 5 /* Mode of a file: each node has a pointer, and accesses to the same bytes are not kept apart. */
#define SIZE_SET 0 /* From the beginning of a file. */
#define SIZE_CUR 1 /* From the pointer. */
#define SIZE_END 2 /* From the end of a file. */
#define HWHZ 10000000 /* Ticks of `hwclock` in a second. */
#define NX_ATTR_END (-1) /* End of the attributes. */
#define NX_ATTR_SZ 1 /* Number of nodes: an `int`. */
#define NX_ATTR_RECT 2 /* Rows and columns: two `int`. */
#define NX_ATTR_MAP 3 /* Nodes one by one: an `int` and an array of as many `long`s. */
#define NX_ATTR_ANCHOR 4 /* Where a rectangle begins: an `int`. */
#define NX_ATTR_SCHED 5 /* Kind of scheduling: an `int`. */
#define NX_ATTR_RELAXED 6 /* Whether fewer nodes will do: an `int`. */
#define NX_ATTR_EPL 7 /* Effective priority limit: an `int`. */
#define NX_ATTR_RQ 8 /* Rollin quantum: an `int`. */
#define NX_ATTR_MOD 9 /* Permissions: an `int`. */
#define NX_ATTR_SEL 10 /* Selector of nodes: a `char *`. */
#define NX_ATTR_PRI 11 /* Priority: an `int`. */
#define NX_ATTR_PKT 12 /* Bytes of a packet: an `int`. */
#define NX_ATTR_MBF 13 /* Bytes of message buffers: an `int`. */
#define NX_ATTR_MEX 14 /* Bytes exported: an `int`. */
#define NX_ATTR_MEA 15 /* Bytes exported to each other process: an `int`. */
#define NX_ATTR_NOC 16 /* Correspondents: an `int`. */
#define NX_ATTR_STH 17 /* Send threshold: an `int`. */
#define NX_ATTR_SCT 18 /* Send count: an `int`. */
#define NX_ATTR_GTH 19 /* Give threshold: an `int`. */
#define NX_ATTR_PLK 20 /* Lock the process into memory: an `int`. */
#define NX_ATTR_ACCT 21 /* Account: a `char *`. */
#define NX_ATTR_GUEST 22 /* For a guest: an `int`. */
#define EQBLEN 1001 /* Wrong length. */
#define EQFAULT 1002 /* The job or a process of it is broken. */
#define EQHND 1003 /* A handler cannot be served. */
#define EQMID 1004 /* No message has this id. */
#define EQMSGLONG 1005 /* The message is longer than the buffer. */
#define EQNODE 1006 /* There is no such node. */
#define EQNOMID 1007 /* No message ids are left. */
#define EQNOPROC 1008 /* No process is there. */
#define EQPARAM 1009 /* Wrong parameter. */
#define EQPID 1010 /* Wrong process type. */
#define EQTYPE 1011 /* Wrong message type. */
#define EQPARTITION 1012 /* The program cannot use, make or change that partition. */
#define EQPATH 1013 /* The program cannot be started. */
#define EQSTATE 1014 /* Not possible in this process. */

/* A number of 64 bits: its low and its high half. */
typedef struct {
    long slow;
    long shigh;
} esize_t;

/* Type, length, node and process type of the last message; four words are unused. */
extern long msginfo[8];

/* What nx_part_attr says of a partition. */
typedef struct {
    long uid, gid, access; /* numbers of the system, and permissions as of files */
    long sched, rq, epl;   /* NX_STD, NX_GANG or NX_SPS; milliseconds; 0 to 10 */
    long nodes;
    long mesh_x, mesh_y;               /* columns and rows, 0 where it is no rectangle */
    long enclose_mesh_x, enclose_mesh_y; /* of the smallest rectangle around it */
} nx_part_info_t;

/* What nx_pspart says of an application. */
typedef struct {
    long pid, uid;    /* of its launcher */
    long priority;
    long active;      /* 1 where it has its turn */
    long elapsed;     /* milliseconds in all its turns */
    long nodes;
} nx_pspart_t;

typedef long *nx_nodes_t;

/* What nx_node_attr says of a node. */
typedef struct {
    long node;
    long cpu;           /* the system's number of it; -1 where it is a host */
    long row, column;   /* in the mesh; -1 where it is a host */
    long partitions;    /* that have it, as far as the caller may see them */
    long applications;  /* that have their turn on it */
    long failed;        /* 1 where its host is down */
} nx_node_info_t;

/* What cubeinfo says of a cube. */
typedef struct {
    long nodes, pid; /* how many; of its host's process */
    long attached;   /* 1: calls refer to it */
    long processes;  /* that are known to run in it */
} cubetable_t;

/* Each call has a variant with an underscore before its name. Where the call prints a message and ends the job, the variant
 * returns -1 and sets errno. */
/* Runs routine(params) on another thread, and sets done to 1 when it has returned. It may not pass messages. */
void cop(void (*routine)(void *), void *params, long done[]);
long _cop(void (*routine)(void *), void *params, long done[]);
/* Waits until all nodes have come. */
void gsync(void);
long _gsync(void);
/* The bytes of all nodes one after the other, in the order of nodes; ncnt gets how many they are. */
void gcol(const void *x, long xlen, void *y, long ylen, long ncnt[]);
long _gcol(const void *x, long xlen, void *y, long ylen, long ncnt[]);
/* The same with lengths that every node knows. */
void gcolx(const void *x, long xlens[], void *y);
long _gcolx(const void *x, long xlens[], void *y);
/* Combines x of all nodes with a function, which combines its first argument with its second. */
void gopf(void *x, long xlen, void *work, long (*function)(NX_OPERANDS));
long _gopf(void *x, long xlen, void *work, long (*function)(NX_OPERANDS));
/* Sums of doubles, in place, on all nodes. */
void gdsum(void *x, long n, void *work);
long _gdsum(void *x, long n, void *work);
/* Products of doubles, in place, on all nodes. */
void gdprod(void *x, long n, void *work);
long _gdprod(void *x, long n, void *work);
/* Maxima of doubles, in place, on all nodes. */
void gdhigh(void *x, long n, void *work);
long _gdhigh(void *x, long n, void *work);
/* Minima of doubles, in place, on all nodes. */
void gdlow(void *x, long n, void *work);
long _gdlow(void *x, long n, void *work);
/* Sums of floats, in place, on all nodes. */
void gssum(void *x, long n, void *work);
long _gssum(void *x, long n, void *work);
/* Products of floats, in place, on all nodes. */
void gsprod(void *x, long n, void *work);
long _gsprod(void *x, long n, void *work);
/* Maxima of floats, in place, on all nodes. */
void gshigh(void *x, long n, void *work);
long _gshigh(void *x, long n, void *work);
/* Minima of floats, in place, on all nodes. */
void gslow(void *x, long n, void *work);
long _gslow(void *x, long n, void *work);
/* Sums of integers, in place, on all nodes. */
void gisum(long x[], long n, void *work);
long _gisum(long x[], long n, void *work);
/* Products of integers, in place, on all nodes. */
void giprod(long x[], long n, void *work);
long _giprod(long x[], long n, void *work);
/* Maxima of integers, in place, on all nodes. */
void gihigh(long x[], long n, void *work);
long _gihigh(long x[], long n, void *work);
/* Minima of integers, in place, on all nodes. */
void gilow(long x[], long n, void *work);
long _gilow(long x[], long n, void *work);
/* Bits that are set on all nodes. */
void giand(long x[], long n, void *work);
long _giand(long x[], long n, void *work);
/* Bits that are set on any node. */
void gior(long x[], long n, void *work);
long _gior(long x[], long n, void *work);
/* Bits that are set on an odd number of nodes. */
void gixor(long x[], long n, void *work);
long _gixor(long x[], long n, void *work);
/* Logical values that are true on all nodes. */
void gland(long x[], long n, void *work);
long _gland(long x[], long n, void *work);
/* Logical values that are true on any node. */
void glor(long x[], long n, void *work);
long _glor(long x[], long n, void *work);
/* Logical values that are true on an odd number of nodes. */
void glxor(long x[], long n, void *work);
long _glxor(long x[], long n, void *work);
/* Begins to send; the handler is called when the bytes may be changed. */
void hsend(long type, const void *buf, long count, long node, long ptype, void (*handler)(long, long, long, long));
long _hsend(long type, const void *buf, long count, long node, long ptype, void (*handler)(long, long, long, long));
/* The same with a handler that gets a parameter. */
void hsendx(long type, const void *buf, long count, long node, long ptype, void (*xhandler)(long), long hparam);
long _hsendx(long type, const void *buf, long count, long node, long ptype, void (*xhandler)(long), long hparam);
/* Posts a receive; the handler is called when a message is there. Without a handler the call withdraws the receives with handlers that were posted with the same selectors. */
void hrecv(long typesel, void *buf, long count, void (*handler)(long, long, long, long));
long _hrecv(long typesel, void *buf, long count, void (*handler)(long, long, long, long));
/* The same for certain nodes and process types, with a handler that gets a parameter. */
void hrecvx(long typesel, void *buf, long count, long nodesel, long ptypesel, void (*xhandler)(long), long hparam);
long _hrecvx(long typesel, void *buf, long count, long nodesel, long ptypesel, void (*xhandler)(long), long hparam);
/* Begins to send, and posts a receive; the handler is called when both are complete. */
void hsendrecv(long type, const void *sbuf, long scount, long node, long ptype, long typesel, void *rbuf, long rcount, void (*handler)(long, long, long, long));
long _hsendrecv(long type, const void *sbuf, long scount, long node, long ptype, long typesel, void *rbuf, long rcount, void (*handler)(long, long, long, long));
/* Holds handlers back (1) or lets them run (0); what it was before. */
long masktrap(long state);
long _masktrap(long state);
/* The type of the last message that was received or probed for. */
long infotype(void);
long _infotype(void);
/* Its length in bytes. */
long infocount(void);
long _infocount(void);
/* The node that it came from. */
long infonode(void);
long _infonode(void);
/* The type of the process that it came from. */
long infoptype(void);
long _infoptype(void);
/* The old name of infoptype. */
long infopid(void);
long _infopid(void);
/* Sends a message, and waits until its bytes may be changed. */
void csend(long type, const void *buf, long count, long node, long ptype);
long _csend(long type, const void *buf, long count, long node, long ptype);
/* Waits for a message. */
void crecv(long typesel, void *buf, long count);
long _crecv(long typesel, void *buf, long count);
/* Waits for a message of certain nodes and process types. */
void crecvx(long typesel, void *buf, long count, long nodesel, long ptypesel, long info[]);
long _crecvx(long typesel, void *buf, long count, long nodesel, long ptypesel, long info[]);
/* Sends a message and waits for another one; its length. */
long csendrecv(long type, const void *sbuf, long scount, long node, long ptype, long typesel, void *rbuf, long rcount);
long _csendrecv(long type, const void *sbuf, long scount, long node, long ptype, long typesel, void *rbuf, long rcount);
/* Begins to send; an id. */
long isend(long type, const void *buf, long count, long node, long ptype);
long _isend(long type, const void *buf, long count, long node, long ptype);
/* Posts a receive; an id. */
long irecv(long typesel, void *buf, long count);
long _irecv(long typesel, void *buf, long count);
/* Posts a receive for messages of certain nodes and process types; an id. */
long irecvx(long typesel, void *buf, long count, long nodesel, long ptypesel, long info[]);
long _irecvx(long typesel, void *buf, long count, long nodesel, long ptypesel, long info[]);
/* Begins to send, and posts a receive; an id for both. */
long isendrecv(long type, const void *sbuf, long scount, long node, long ptype, long typesel, void *rbuf, long rcount);
long _isendrecv(long type, const void *sbuf, long scount, long node, long ptype, long typesel, void *rbuf, long rcount);
/* Sends a message to each node of a list. */
void gsendx(long type, const void *buf, long count, long nodes[], long nnodes);
long _gsendx(long type, const void *buf, long count, long nodes[], long nnodes);
/* Waits until a message is there. */
void cprobe(long typesel);
long _cprobe(long typesel);
/* Waits until a message of certain nodes and process types is there. */
void cprobex(long typesel, long nodesel, long ptypesel, long info[]);
long _cprobex(long typesel, long nodesel, long ptypesel, long info[]);
/* Whether a message is there. */
long iprobe(long typesel);
long _iprobe(long typesel);
/* Whether a message of certain nodes and process types is there. */
long iprobex(long typesel, long nodesel, long ptypesel, long info[]);
long _iprobex(long typesel, long nodesel, long ptypesel, long info[]);
/* Waits until the message with this id is complete. */
void msgwait(long mid);
long _msgwait(long mid);
/* Whether the message with this id is complete; if so, the id is gone. */
long msgdone(long mid);
long _msgdone(long mid);
/* Nobody will ask for this id any more. */
void msgignore(long mid);
long _msgignore(long mid);
/* Takes a message back, as far as that is possible. */
void msgcancel(long mid);
long _msgcancel(long mid);
/* One id for what two stand for; -1 stands for nothing. */
long msgmerge(long mid1, long mid2);
long _msgmerge(long mid1, long mid2);
/* Drops messages that are there. */
void flushmsg(long typesel, long nodesel, long ptypesel);
long _flushmsg(long typesel, long nodesel, long ptypesel);
/* Makes a partition of this many nodes, -1: all of its parent; how many it has. */
long nx_mkpart(const char *name, long size, long sched);
long _nx_mkpart(const char *name, long size, long sched);
/* Makes a partition of rows and columns; how many nodes it has. */
long nx_mkpart_rect(const char *name, long rows, long cols, long sched);
long _nx_mkpart_rect(const char *name, long rows, long cols, long sched);
/* Makes a partition of the nodes of a list, by their numbers in its parent; how many it has. */
long nx_mkpart_map(const char *name, long n, long nodes[], long sched);
long _nx_mkpart_map(const char *name, long n, long nodes[], long sched);
/* Removes a partition: with force also while applications run in it, recursively with those below it. */
long nx_rmpart(const char *name, long force, long recursive);
long _nx_rmpart(const char *name, long force, long recursive);
/* Changes a partition's effective priority limit. */
long nx_chpart_epl(const char *name, long priority);
long _nx_chpart_epl(const char *name, long priority);
/* Changes a partition's permissions. */
long nx_chpart_mod(const char *name, long mode);
long _nx_chpart_mod(const char *name, long mode);
/* Changes a partition's name. */
long nx_chpart_name(const char *name, const char *newname);
long _nx_chpart_name(const char *name, const char *newname);
/* Changes a partition's owner and group; -1 leaves what is. */
long nx_chpart_owner(const char *name, long owner, long group);
long _nx_chpart_owner(const char *name, long owner, long group);
/* Changes a partition's roll-in quantum, in milliseconds. */
long nx_chpart_rq(const char *name, long rollin);
long _nx_chpart_rq(const char *name, long rollin);
/* Changes a partition's scheduling. */
long nx_chpart_sched(const char *name, long sched);
long _nx_chpart_sched(const char *name, long sched);
/* A partition's attributes. */
long nx_part_attr(const char *name, nx_part_info_t *info);
long _nx_part_attr(const char *name, nx_part_info_t *info);
/* Numbers of a partition's nodes in the machine, in an array that the program frees. */
long nx_part_nodes(const char *name, long **nodes, long n[]);
long _nx_part_nodes(const char *name, long **nodes, long n[]);
/* Applications in a partition and below it, in an array that the program frees. */
long nx_pspart(const char *name, nx_pspart_t **list, long n[]);
long _nx_pspart(const char *name, nx_pspart_t **list, long n[]);
/* Nodes of the machine on which no application takes turns, in an array that the program frees. */
long nx_empty_nodes(long **nodes, long n[]);
long _nx_empty_nodes(long **nodes, long n[]);
/* Nodes whose host is down, of partitions of several hosts, in an array that the program frees. */
long nx_failed_nodes(long **nodes, long n[]);
long _nx_failed_nodes(long **nodes, long n[]);
/* What is known of a node of the machine. */
long nx_node_attr(long node, nx_node_info_t *info);
long _nx_node_attr(long node, nx_node_info_t *info);
/* The number of this node; of the controlling process that of the host. */
long mynode(void);
long _mynode(void);
/* How many nodes the application has. */
long numnodes(void);
long _numnodes(void);
/* The number of the host, one more than that of the last node. Only a controlling process runs there. */
long myhost(void);
long _myhost(void);
/* The type of this process. */
long myptype(void);
long _myptype(void);
/* The old name of myptype. */
long mypid(void);
long _mypid(void);
/* Changes the type of this process. */
void setptype(long ptype);
long _setptype(long ptype);
/* The name of setptype on the iPSC. */
void setpid(long pid);
long _setpid(long pid);
/* The node of the machine on which this process runs: the first core that it may use. */
long myphysnode(void);
long _myphysnode(void);
/* Makes this process control an application of this many nodes; how many it has. */
long nx_initve(const char *part, long size, const char *account, int *argc, char *argv[]);
long _nx_initve(const char *part, long size, const char *account, int *argc, char *argv[]);
/* The same for rows and columns of nodes. */
long nx_initve_rect(const char *part, long anchor, long rows, long cols, const char *account, int *argc, char *argv[]);
long _nx_initve_rect(const char *part, long anchor, long rows, long cols, const char *account, int *argc, char *argv[]);
/* Makes a copy of the controlling process on each of the nodes; how many there are, and 0 in a copy. */
long nx_nfork(long nodes[], long n, long ptype, long pids[]);
long _nx_nfork(long nodes[], long n, long ptype, long pids[]);
/* Starts a program on each of the nodes; how many there are. */
long nx_load(long nodes[], long n, long ptype, long pids[], const char *path);
long _nx_load(long nodes[], long n, long ptype, long pids[], const char *path);
/* The same with arguments and environment. */
long nx_loadve(long nodes[], long n, long ptype, long pids[], const char *path, char *argv[], char *envp[]);
long _nx_loadve(long nodes[], long n, long ptype, long pids[], const char *path, char *argv[], char *envp[]);
/* Starts a program on a node, -1: on all. */
void load(const char *file, long node, long pid);
long _load(const char *file, long node, long pid);
/* Waits until all processes that this one has started have ended. */
long nx_waitall(void);
long _nx_waitall(void);
/* Waits until the processes of a type on a node have ended, which load has started; -1: all. */
void waitall(long node, long pid);
long _waitall(long node, long pid);
/* Waits until all processes of the cube have ended. */
void waitcube(void);
long _waitcube(void);
/* The priority of the application in its partition, whichever node is named. */
long nx_pri(long node, long priority);
long _nx_pri(long node, long priority);
/* Rows and columns of the application. */
long nx_app_rect(long rows[], long cols[]);
long _nx_app_rect(long rows[], long cols[]);
/* Numbers of the application's nodes, in an array that the program frees; pid 0: the caller's. */
long nx_app_nodes(long pid, long **nodes, long n[]);
long _nx_app_nodes(long pid, long **nodes, long n[]);
/* Rows and columns of the application. */
void mypart(long rows[], long cols[]);
long _mypart(long rows[], long cols[]);
/* The dimension of the smallest hypercube that has this many nodes. */
long nodedim(void);
long _nodedim(void);
/* The n-th number of the Gray code. */
long gray(long n);
long _gray(long n);
/* Which number of the Gray code this is. */
long ginv(long code);
long _ginv(long code);
/* Ends the processes of a type on a node, -1: all. */
void killcube(long node, long pid);
long _killcube(long node, long pid);
/* Ends the process of a type on a node, -1: all. */
void killproc(long node, long pid);
long _killproc(long node, long pid);
/* As nx_initve on the iPSC: the type of a cube is its number of nodes (8) or its dimension (d3). */
void getcube(const char *name, const char *kind, const char *host, long keep);
long _getcube(const char *name, const char *kind, const char *host, long keep);
/* Has calls refer to a cube, which they do already: a process has one, and no other process's. */
void attachcube(const char *name);
long _attachcube(const char *name);
/* What is known of up to this many cubes of this process; how many there are: one or none. */
long cubeinfo(cubetable_t *table, long n, long global);
long _cubeinfo(cubetable_t *table, long n, long global);
/* Ends what getcube has made, with all of its processes. */
void relcube(const char *name);
long _relcube(const char *name);
/* Seconds of a clock that all nodes read. */
double dclock(void);
double _dclock(void);
/* Milliseconds of a clock that all nodes read. */
unsigned long mclock(void);
long _mclock(void);
/* Ticks of a clock with 10,000,000 in a second, the low and the high half. */
void hwclock(esize_t *time);
long _hwclock(esize_t *time);
/* Lets another process have the core. */
void flick(void);
long _flick(void);
/* The light of the node: this machine has none. */
void led(long state);
long _led(long state);
/* Tells the error of the last call of a twin, after a word of the program's. */
void nx_perror(const char *word);
long _nx_perror(const char *word);
long nx_initve_attr(const char *part, int *argc, char *argv[], ...);
long _nx_initve_attr(const char *part, int *argc, char *argv[], ...);
long nx_mkpart_attr(const char *name, ...);
long _nx_mkpart_attr(const char *name, ...);


/* Files. Those that read and write return how many bytes, and where a pointer or a size is a number of 64 bits, they take and
 * return an esize_t. */
struct iovec;
int gopen(const char *path, int oflag, int iomode, ...);
int _gopen(const char *path, int oflag, int iomode, ...);
long setiomode(int fd, long iomode);
long _setiomode(int fd, long iomode);
long iomode(int fd);
long _iomode(int fd);
long cread(int fd, void *buf, unsigned n);
long _cread(int fd, void *buf, unsigned n);
long cwrite(int fd, const void *buf, unsigned n);
long _cwrite(int fd, const void *buf, unsigned n);
long creadv(int fd, const struct iovec *parts, int n);
long _creadv(int fd, const struct iovec *parts, int n);
long cwritev(int fd, const struct iovec *parts, int n);
long _cwritev(int fd, const struct iovec *parts, int n);
long readoff(int fd, esize_t offset, void *buf, unsigned n);
long _readoff(int fd, esize_t offset, void *buf, unsigned n);
long writeoff(int fd, esize_t offset, const void *buf, unsigned n);
long _writeoff(int fd, esize_t offset, const void *buf, unsigned n);
long iread(int fd, void *buf, unsigned n);
long _iread(int fd, void *buf, unsigned n);
long iwrite(int fd, const void *buf, unsigned n);
long _iwrite(int fd, const void *buf, unsigned n);
long ireadv(int fd, const struct iovec *parts, int n);
long _ireadv(int fd, const struct iovec *parts, int n);
long iwritev(int fd, const struct iovec *parts, int n);
long _iwritev(int fd, const struct iovec *parts, int n);
long ireadoff(int fd, esize_t offset, void *buf, unsigned n);
long _ireadoff(int fd, esize_t offset, void *buf, unsigned n);
long iwriteoff(int fd, esize_t offset, const void *buf, unsigned n);
long _iwriteoff(int fd, esize_t offset, const void *buf, unsigned n);
long iodone(long id);
long _iodone(long id);
long iowait(long id);
long _iowait(long id);
long iseof(int fd);
long _iseof(int fd);
long lsize(int fd, long offset, int whence);
long _lsize(int fd, long offset, int whence);
esize_t esize(int fd, esize_t offset, int whence);
esize_t _esize(int fd, esize_t offset, int whence);
esize_t eseek(int fd, esize_t offset, int whence);
esize_t _eseek(int fd, esize_t offset, int whence);
long restrictvol(int fd, long n, long volumes[]);
long _restrictvol(int fd, long n, long volumes[]);
esize_t eadd(esize_t a, esize_t b);
esize_t eadd1(esize_t a, long b);
esize_t esub(esize_t a, esize_t b);
esize_t esub1(esize_t a, long b);
esize_t emul(esize_t a, long b);
long ediv(esize_t a, long b);
long emod(esize_t a, long b);
/* Below zero, zero or above. */
long ecmp(esize_t a, esize_t b);
/* In decimal; the text has room for 21 characters. */
void etos(esize_t a, char *text);
esize_t stoe(const char *text);

#ifdef __cplusplus
}
#elif defined(__GNUC__)
/* On the machines of NX int and long had 32 bits. A program that passes an array of int where long is meant would be read and
 * written beyond its end, so it is refused, as C++ and later compilers do. */
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#endif

#endif
