/* Loads and stores of the program itself that conflict with what MPI does, one for each name, each with a right twin
 * whose name ends in `_right`. Marks name lines. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size, is_right;
static volatile int sink;

#define WHEN(wrong) if (!is_right) { wrong; }

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A receive whose message comes only after the program has used its memory. */
static void receive_into(void *buffer, int bytes, MPI_Request *request)
{
    MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, request); /* LINE received into */
}

static void received_is(const char *what)
{
    static union {
        char bytes[4096];
        int numbers[1024];
    } memory, copy;
    MPI_Request request;
    if (rank == 0) {
        barrier();
        MPI_Send(memory.bytes, sizeof memory, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        return;
    }
    if (rank == 1) {
        receive_into(memory.bytes, sizeof memory, &request);
        if (strcmp(what, "loaded") == 0) {
            WHEN(sink = memory.numbers[0]) /* LINE loaded */
        } else if (strcmp(what, "stored") == 0) {
            WHEN(memory.numbers[0] = 1) /* LINE stored */
        } else if (strcmp(what, "end") == 0) {
            WHEN(sink = memory.numbers[1023]) /* LINE end */
        } else if (strcmp(what, "copied") == 0) {
            size_t bytes = sizeof memory - (size_t)sink;
            WHEN(memcpy(copy.bytes, memory.bytes, bytes)) /* LINE copied */
        }
        /* Neighbours of the memory are the program's. */
        sink = copy.numbers[0];
    }
    barrier();
    if (rank == 1) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sink = memory.numbers[0];
        memory.numbers[1023] = 1;
        memcpy(copy.bytes, memory.bytes, sizeof memory);
    }
}

static void loaded(void)
{
    received_is("loaded");
}

static void stored(void)
{
    received_is("stored");
}

static void end(void)
{
    received_is("end");
}

static void copied(void)
{
    received_is("copied");
}

static void sent(void)
{
    static int number = 1;
    MPI_Request request;
    if (rank == 0) {
        MPI_Isend(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request); /* LINE sent call */
        sink = number;
        WHEN(number = 1) /* LINE sent */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        number = 2;
    } else if (rank == 1) {
        MPI_Recv(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void persistent(void)
{
    static int number;
    MPI_Request request;
    if (rank == 0) {
        for (int i = 0; i < 2; i++) {
            barrier();
            MPI_Send(&i, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        }
        return;
    }
    if (rank == 1) {
        MPI_Recv_init(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &request); /* LINE persistent call */
    }
    for (int i = 0; i < 2; i++) {
        if (rank == 1) {
            number = -1;
            MPI_Start(&request);
            WHEN(sink = number) /* LINE persistent */
        }
        barrier();
        if (rank == 1) {
            int flag = 0;
            while (!flag) {
                MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
            }
            sink = number;
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
    if (rank == 1) {
        MPI_Request_free(&request);
    }
}

static void combine(void *in, void *into, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((int *)into)[i] += ((int *)in)[i];
    }
}

static void collective(void)
{
    static int mine = 1, all[64];
    MPI_Request request, other;
    MPI_Op op;
    MPI_Iallgather(&mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, &request); /* LINE collective call */
    WHEN(sink = all[0]) /* LINE collective */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    sink = all[0];
    /* A function of the program works on the memory of its operation. */
    MPI_Op_create(combine, 1, &op);
    MPI_Iallreduce(&mine, all, 1, MPI_INT, op, MPI_COMM_WORLD, &other);
    MPI_Wait(&other, MPI_STATUS_IGNORE);
    MPI_Op_free(&op);
    if (rank != 0) {
        /* What others receive is the root's. */
        MPI_Igather(&mine, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        all[0] = 1;
    } else {
        MPI_Igather(&mine, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int window_memory[4];
static MPI_Win win;

static void open_window(void)
{
    MPI_Win_create(window_memory, sizeof window_memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
}

static void got(void)
{
    static int number;
    open_window();
    MPI_Win_fence(0, win);
    if (rank == 0) {
        MPI_Get(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win); /* LINE got call */
        WHEN(sink = number) /* LINE got */
    }
    MPI_Win_fence(0, win);
    sink = number;
    if (rank == 0) {
        MPI_Request request;
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
        MPI_Rget(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sink = number;
        MPI_Get(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
        MPI_Win_flush_local(1, win);
        sink = number;
        MPI_Win_unlock(1, win);
    }
    MPI_Win_free(&win);
}

static void put(void)
{
    static int number = 5;
    open_window();
    MPI_Win_lock_all(0, win);
    if (rank == 0) {
        MPI_Put(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win); /* LINE put call */
        sink = number;
        WHEN(number = 5) /* LINE put */
        MPI_Win_flush(1, win);
        number = 6;
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

static void fenced(void)
{
    static int number = 7;
    open_window();
    /* Before others may access it. */
    window_memory[0] = 1;
    MPI_Win_fence(0, win);
    if (rank == 0) {
        MPI_Put(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win); /* LINE fenced call */
    }
    if (rank == 1) {
        WHEN(window_memory[0] = 3) /* LINE fenced */
        /* Other bytes of it. */
        window_memory[1] = 3;
        window_memory[3] = 3;
        sink = window_memory[3];
    }
    MPI_Win_fence(0, win);
    sink = window_memory[0];
    window_memory[0] = 2;
    MPI_Win_fence(0, win);
    if (rank == 0) {
        MPI_Get(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
    }
    sink = window_memory[0];
    MPI_Win_fence(0, win);
    if (rank == 1) {
        /* Ordered by a message, within an epoch. */
        window_memory[0] = 4;
        MPI_Send(NULL, 0, MPI_INT, 0, 9, MPI_COMM_WORLD);
    } else if (rank == 0) {
        MPI_Recv(NULL, 0, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Get(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
    }
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

static void locked(void)
{
    static int number = 7;
    open_window();
    window_memory[0] = 1;
    barrier();
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Put(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win); /* LINE locked call */
        MPI_Win_unlock(1, win);
    } else if (rank == 1) {
        WHEN(window_memory[0] = 3) /* LINE locked */
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        window_memory[0]++;
        MPI_Win_unlock(1, win);
    }
    barrier();
    window_memory[0] = 5;
    MPI_Win_free(&win);
}

/* Waits for values in a window's memory: right, with MPI_Win_sync. There is no wrong one. */
static void waits(void)
{
    static int number = 1;
    open_window();
    MPI_Win_lock_all(0, win);
    if (rank == 0) {
        MPI_Put(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
        MPI_Win_flush(1, win);
    } else if (rank == 1) {
        volatile int *flag = window_memory;
        do {
            MPI_Win_sync(win);
        } while (*flag == 0);
        *flag = 0;
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

/* A thread of the program, which calls MPI itself, is looked at, too. */
static int by_thread;
static MPI_Request of_thread;

static void *works(void *unused)
{
    MPI_Irecv(&by_thread, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &of_thread); /* LINE thread call */
    WHEN(sink = by_thread) /* LINE thread */
    return unused;
}

static void thread(void)
{
    if (rank == 1) {
        for (int i = 0; i < 8; i++) {
            pthread_t other;
            pthread_create(&other, NULL, works, NULL);
            pthread_join(other, NULL);
            MPI_Send(NULL, 0, MPI_INT, 0, 5, MPI_COMM_WORLD);
            MPI_Wait(&of_thread, MPI_STATUS_IGNORE);
            sink = by_thread;
        }
    } else if (rank == 0) {
        for (int i = 0; i < 8; i++) {
            MPI_Recv(NULL, 0, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&i, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
        }
    }
}

/* Functions of the C library that may read behind their strings; more requests than registers; receives from nobody. */
static void beside(void)
{
    enum { MANY = 500 };
    static struct {
        char before[16];
        int number;
        char behind[44];
    } of;
    static int in[MANY], out[MANY];
    static MPI_Request requests[2 * MANY];
    int other = (rank + 1) % size, from = (rank + size - 1) % size, flag = 0, nothing = 0;
    strcpy(of.before, "before");
    strcpy(of.behind, "behind the number");
    MPI_Irecv(&of.number, 1, MPI_INT, from, 7, MPI_COMM_WORLD, &requests[0]);
    sink = (int)(strlen(of.before) + strlen(of.behind)) + strcmp(of.before, of.behind) + (strchr(of.before, 'z') != NULL);
    MPI_Send(&rank, 1, MPI_INT, other, 7, MPI_COMM_WORLD);
    while (!flag) {
        MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
    }
    sink = of.number;
    MPI_Irecv(&nothing, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[0]);
    nothing = 1;
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    for (int i = 0; i < MANY; i++) {
        MPI_Irecv(&in[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < MANY; i++) {
        out[i] = i;
        MPI_Isend(&out[i], 1, MPI_INT, other, i, MPI_COMM_WORLD, &requests[MANY + i]);
    }
    for (int left = 2 * MANY; left > 0; left--) {
        int index;
        MPI_Waitany(2 * MANY, requests, &index, MPI_STATUS_IGNORE);
        (index < MANY ? in : out)[index % MANY] = -1;
    }
}

/* Programs with a use of their own for the signal. */
static volatile sig_atomic_t trapped;

static void traps(int number)
{
    (void)number;
    trapped++;
}

static void own_signal(void)
{
    static int number;
    MPI_Request request;
    signal(SIGTRAP, traps);
    if (rank == 1) {
        MPI_Irecv(&number, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &request);
        number = 1;
    }
    barrier();
    if (rank == 0) {
        MPI_Send(&number, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        int before = trapped;
        raise(SIGTRAP);
        printf("trapped %d times, then %d\n", before, (int)trapped);
    }
}

/* The handler comes when a buffer is watched already. */
static void late_signal(void)
{
    static int numbers[2];
    MPI_Request requests[2];
    if (rank == 1) {
        MPI_Irecv(&numbers[0], 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &requests[0]);
        signal(SIGTRAP, traps);
        MPI_Irecv(&numbers[1], 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &requests[1]);
        numbers[1] = 0;
    }
    barrier();
    if (rank == 0) {
        MPI_Send(numbers, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
        MPI_Send(numbers, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        int before = trapped;
        raise(SIGTRAP);
        printf("trapped %d times, then %d\n", before, (int)trapped);
    }
}

static void crash(void)
{
    static int number;
    MPI_Request request;
    if (rank == 1) {
        MPI_Irecv(&number, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &request);
        raise(SIGTRAP);
    }
    barrier();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*does)(void);
    } all[] = {{"loaded", loaded}, {"stored", stored},         {"end", end},       {"copied", copied},
               {"sent", sent},     {"persistent", persistent}, {"got", got},       {"collective", collective},
               {"put", put},       {"fenced", fenced},         {"locked", locked}, {"waits", waits},
               {"thread", thread}, {"beside", beside},         {"signal", own_signal},
               {"signal_late", late_signal}, {"crash", crash}};
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *name = argc > 1 ? argv[1] : "";
    size_t length = strlen(name);
    is_right = length > 6 && strcmp(name + length - 6, "_right") == 0;
    length -= is_right ? 6 : 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strlen(all[i].name) == length && strncmp(name, all[i].name, length) == 0) {
            all[i].does();
        }
    }
    MPI_Finalize();
    return 0;
}
