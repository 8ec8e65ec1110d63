/* mpl.h: IBM's message-passing library MPL (EUI), Margay. Printed by `cargo xtask header`; see docs/mpl.md. */
#ifndef MPL_H_INCLUDED
#define MPL_H_INCLUDED

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values that mpc_task_query(n, 4, 3) returns. */
#define DONTCARE (-1)
#define ALLMSG (-2)
#define NULLTASK (-3)
#define ALLGRP 0

#define MPL_ARGUMENT 101 /* A length or a pointer that cannot be. */
#define MPL_TASK 102 /* There is no such task. */
#define MPL_TYPE 103 /* Not a message type. */
#define MPL_OVERFLOW 104 /* The message is longer than the buffer, and the program wants to know. */
#define MPL_MSGID 105 /* No message has this id. */
#define MPL_GROUP 106 /* There is no such group, or the task is not in it. */
#define MPL_FAULT 107 /* A task of the job is broken, or the tasks do not do the same. */

/* The program may declare the functions of mpc_combine, mpc_reduce and mpc_prefix in any way. */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 202311L)
#define MPL_OPERANDS void *, void *, void *, size_t *
#else
#define MPL_OPERANDS
#endif

/* Number of the last error. */
extern int mperrno;

/* Calls return 0 for success; on errors they return -1 and set mperrno. */
/* Waits until all tasks of the group have come. */
int mpc_sync(int gid);
/* The root's bytes to all. */
int mpc_bcast(void *buf, size_t msglen, int root, int gid);
/* A block of the root's to each. */
int mpc_scatter(const void *sbuf, void *rbuf, size_t blklen, int root, int gid);
/* Each task's block to the root. */
int mpc_gather(const void *sbuf, void *rbuf, size_t blklen, int root, int gid);
/* Each task's block to all. */
int mpc_concat(const void *sbuf, void *rbuf, size_t blklen, int gid);
/* A block from each task to each. */
int mpc_index(const void *sbuf, void *rbuf, size_t blklen, int gid);
/* Combines all tasks' bytes, for all. */
int mpc_combine(const void *sbuf, void *rbuf, size_t msglen, void (*function)(MPL_OPERANDS), int gid);
/* Combines all tasks' bytes, for the root. */
int mpc_reduce(const void *sbuf, void *rbuf, size_t msglen, int root, void (*function)(MPL_OPERANDS), int gid);
/* Combines the bytes of the tasks up to each one. */
int mpc_prefix(const void *sbuf, void *rbuf, size_t msglen, void (*function)(MPL_OPERANDS), int gid);
/* Each task's bytes to the one step ranks further on, round the end when flag is not 0. */
int mpc_shift(const void *sbuf, void *rbuf, size_t msglen, int step, int flag, int gid);
/* Makes a group of the tasks of a list; all of them call it. */
int mpc_group(int gsize, int *glist, int label, int *gid);
/* Divides a group into one for each label, ordered by key; gid gets -1 for the label dontcare. */
int mpc_partition(int parent_gid, int key, int label, int *gid);
/* The label of a group. */
int mpc_getlabel(int *label, int gid);
/* The tasks of a group in the order of their ranks. */
int mpc_getmembers(int *glist, int gid);
/* How many tasks a group has. */
int mpc_getsize(int *gsize, int gid);
/* The rank of a task in a group. */
int mpc_getrank(int *rank, int taskid, int gid);
/* The task with a rank in a group. */
int mpc_gettaskid(int rank, int *taskid, int gid);
/* Sends a message, and waits until its bytes may be changed. */
int mpc_bsend(const void *buf, size_t msglen, int dest, int type);
/* Waits for a message. */
int mpc_brecv(void *buf, size_t msglen, int *source, int *type, size_t *nbytes);
/* Begins to send; msgid gets an id. */
int mpc_send(const void *buf, size_t msglen, int dest, int type, int *msgid);
/* Posts a receive; msgid gets an id. Source and type are written when the message is complete. */
int mpc_recv(void *buf, size_t msglen, int *source, int *type, int *msgid);
/* Sends a message, and waits for one of the same type. */
int mpc_bsendrecv(const void *sbuf, size_t slen, int dest, int type, void *rbuf, size_t rlen, int *source, size_t *nbytes);
/* Sends blknum blocks of blklen bytes that begin offset bytes apart. */
int mpc_bvsend(void *buf, size_t blklen, size_t offset, size_t blknum, int dest, int type);
/* Receives into such blocks. */
int mpc_bvrecv(void *buf, size_t blklen, size_t offset, size_t blknum, int *source, int *type, size_t *nbytes);
/* Begins to send such blocks. */
int mpc_vsend(void *buf, size_t blklen, size_t offset, size_t blknum, int dest, int type, int *msgid);
/* Posts a receive into such blocks. */
int mpc_vrecv(void *buf, size_t blklen, size_t offset, size_t blknum, int *source, int *type, int *msgid);
/* Waits for the message with an id, for any (dontcare; msgid gets which) or for all (allmsg). */
int mpc_wait(int *msgid, size_t *nbytes);
/* Whether a message is there: nbytes gets its length, or -1. */
int mpc_probe(int *source, int *type, size_t *nbytes);
/* Copies blocks that begin offset bytes apart to one after the other. */
int mpc_pack(void *in, void *out, size_t blklen, size_t offset, size_t blknum);
/* Copies blocks that stand one after the other to beginnings offset bytes apart. */
int mpc_unpack(void *in, void *out, size_t blklen, size_t offset, size_t blknum);
/* Posts a receive; the routine is called with the id when the message is there, and has to wait for it. */
int mpc_rcvncall(void *buf, size_t msglen, int *source, int *type, int *msgid, void (*routine)(int *));
/* Holds routines back (1) or lets them run (0); oldval gets what it was. */
int mpc_lockrnc(int newval, int *oldval);
/* How many tasks there are, and which this one is. */
int mpc_environ(int *numtask, int *taskid);
/* Answers questions: 1 settings, 2 lowest and highest type, 3 dontcare, allmsg, nulltask and allgrp. */
int mpc_task_query(int *nbuf, int nelem, int qtype);
/* Changes a setting: 1 whether a message that is too long for its buffer is an error. */
int mpc_task_set(int *nbuf, int stype);
/* Ends the job. */
int mpc_stopall(int errcode);
/* Gives a light of this task's row in the Program Marker Array a colour (0 to 99), and the row a text. */
int mpc_marker(int light, int color, const char *string);
/* How many lights a row of the Program Marker Array has. */
int mpc_nlights(void);
/* Hands what was printed to the launcher: 1 standard output, 2 standard error. */
int mpc_flush(int option);
/* Whether (1 or 0) the job's standard input (0), output (1) or error (2) is a terminal. */
int mpc_isatty(int descriptor);
/* Whether (1 or 0) messages move while the program computes. */
int mpc_queryintr(void);
/* From now on messages move while the program computes. */
int mpc_enableintr(void);
/* From now on messages move inside calls only, but those with a routine. */
int mpc_disableintr(void);
/* How long the thread that moves messages spins for more, in microseconds. */
int mpc_queryintrdelay(void);
/* Sets how long it spins for more. */
int mpc_setintrdelay(int delay);
/* The bytes of a complete message, whose id is invalid afterwards; -1 when it is not complete, -2 for an invalid id. */
int mpc_status(int msgid);

/* Where int and size_t had the same size, programs passed the address of an int for the length of a message. They still may. */
#ifdef __cplusplus
} /* extern "C" */
static inline size_t *mpl_length(int *place) { return (size_t *)((size_t)place | 1); }
inline int mpc_brecv(void *buf, size_t msglen, int *source, int *type, int *nbytes) {
    return mpc_brecv(buf, msglen, source, type, mpl_length(nbytes));
}
inline int mpc_bvrecv(void *buf, size_t blklen, size_t offset, size_t blknum, int *source, int *type, int *nbytes) {
    return mpc_bvrecv(buf, blklen, offset, blknum, source, type, mpl_length(nbytes));
}
inline int mpc_bsendrecv(const void *sbuf, size_t slen, int dest, int type, void *rbuf, size_t rlen, int *source, int *nbytes) {
    return mpc_bsendrecv(sbuf, slen, dest, type, rbuf, rlen, source, mpl_length(nbytes));
}
inline int mpc_wait(int *msgid, int *nbytes) { return mpc_wait(msgid, mpl_length(nbytes)); }
inline int mpc_probe(int *source, int *type, int *nbytes) { return mpc_probe(source, type, mpl_length(nbytes)); }
extern "C" {
#elif defined(__GNUC__)
#define MPL_LENGTH(place) \
    ((size_t *)((size_t)(place) | (__extension__ _Generic((place), int *: 1, unsigned *: 1, default: 0))))
#define mpc_brecv(buf, msglen, source, type, nbytes) mpc_brecv(buf, msglen, source, type, MPL_LENGTH(nbytes))
#define mpc_bvrecv(buf, blklen, offset, blknum, source, type, nbytes) \
    mpc_bvrecv(buf, blklen, offset, blknum, source, type, MPL_LENGTH(nbytes))
#define mpc_bsendrecv(sbuf, slen, dest, type, rbuf, rlen, source, nbytes) \
    mpc_bsendrecv(sbuf, slen, dest, type, rbuf, rlen, source, MPL_LENGTH(nbytes))
#define mpc_wait(msgid, nbytes) mpc_wait(msgid, MPL_LENGTH(nbytes))
#define mpc_probe(source, type, nbytes) mpc_probe(source, type, MPL_LENGTH(nbytes))
#endif

/* The predefined functions: bytes, int, long, float and double. */
#define MPL_FUNCTION(name) void name(void *in1, void *in2, void *out, size_t *len);
#define MPL_FUNCTIONS(type) \
    MPL_FUNCTION(type##_vadd) MPL_FUNCTION(type##_vmul) MPL_FUNCTION(type##_vmax) MPL_FUNCTION(type##_vmin)
#define MPL_BITS(type) MPL_FUNCTION(type##_vand) MPL_FUNCTION(type##_vor) MPL_FUNCTION(type##_vxor)
MPL_FUNCTIONS(b) MPL_FUNCTIONS(i) MPL_FUNCTIONS(l) MPL_FUNCTIONS(s) MPL_FUNCTIONS(d)
MPL_BITS(b) MPL_BITS(i) MPL_BITS(l)
#undef MPL_FUNCTION
#undef MPL_FUNCTIONS
#undef MPL_BITS

#ifdef __cplusplus
}
#endif

#endif
