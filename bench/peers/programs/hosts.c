/* What messages between hosts cost: `pair` for two ranks on two hosts, `many` for more. Prints one
 * line for each figure, the median of its repetitions: a name, a number and its unit. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPETITIONS = 9, MIB = 1 << 20 };

static int rank, size;
static char *out, *in;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void exchange(void) {
    if (rank == 0) {
        MPI_Send(out, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(in, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

/* Sixteen messages of 1 MiB, which are answered together. */
static void stream(void) {
    MPI_Request requests[16];
    for (int i = 0; i < 16; i++) {
        if (rank == 0)
            MPI_Isend(out + (size_t)i * MIB, MIB, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(in + (size_t)i * MIB, MIB, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(16, requests, MPI_STATUSES_IGNORE);
    exchange();
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void allreduce_short(void) {
    MPI_Allreduce(out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void allreduce_long(void) {
    MPI_Allreduce(out, in, MIB / sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(void) {
    MPI_Alltoall(out, 4096, MPI_BYTE, in, 4096, MPI_BYTE, MPI_COMM_WORLD);
}

/* Seconds that a call takes, of which `times` are made at once. */
static double seconds(void (*call)(void), int times) {
    double each[REPETITIONS];
    call();
    for (int i = 0; i < REPETITIONS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        for (int k = 0; k < times; k++) call();
        each[i] = (MPI_Wtime() - began) / times;
    }
    qsort(each, REPETITIONS, sizeof *each, by_value);
    return each[REPETITIONS / 2];
}

/* Memory of this process in KiB, in which what it shares counts as its part. */
static double memory(void) {
    char line[200];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %ld", &kib) == 1) break;
    if (file) fclose(file);
    return (double)kib;
}

static void say(const char *name, double value, const char *unit) {
    if (rank == 0) printf("%s %.3f %s\n", name, value, unit);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    out = calloc(16, MIB);
    in = calloc(16, MIB);
    double own = memory(), sum = 0;
    if (argc > 1 && strcmp(argv[1], "pair") == 0) {
        say("8-B", seconds(exchange, 2000) / 2 * 1e6, "us");
        say("1-MiB", 16.0 * MIB / seconds(stream, 10) / 1e6, "MB/s");
    } else {
        say("barrier", seconds(barrier, 50) * 1e6, "us");
        say("allreduce-8", seconds(allreduce_short, 50) * 1e6, "us");
        if (size <= 64) {
            say("allreduce-1M", seconds(allreduce_long, 5) * 1e6, "us");
            say("alltoall-4k", seconds(alltoall, 20) * 1e6, "us");
        }
        MPI_Reduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        say("memory", sum / size / 1024, "MiB");
    }
    MPI_Finalize();
    return 0;
}
