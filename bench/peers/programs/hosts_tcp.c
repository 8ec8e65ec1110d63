/* The least that a message between hosts costs: half a round trip of 8 bytes and a head of 24 over TCP, between two
 * processes that poll, in microseconds. `hosts_tcp listen` answers; `hosts_tcp ADDRESS` asks and prints. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { BYTES = 32, REPETITIONS = 9, TIMES = 2000, PORT = 7777 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void move(int s, int sends) {
    char bytes[BYTES] = {0};
    for (int done = 0; done < BYTES;) {
        ssize_t n = sends ? send(s, bytes + done, BYTES - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                          : recv(s, bytes + done, BYTES - done, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) exit(0);
        if (n > 0) done += n;
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    if (argc < 2 || s < 0) return 1;
    if (strcmp(argv[1], "listen") == 0) {
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(s, (void *)&at, sizeof at) || listen(s, 1)) return 1;
        int other = accept(s, NULL, NULL);
        setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        for (;;) {
            move(other, 0);
            move(other, 1);
        }
    }
    inet_pton(AF_INET, argv[1], &at.sin_addr);
    for (int tries = 0; connect(s, (void *)&at, sizeof at); tries++) {
        if (tries == 200) return 1;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    double each[REPETITIONS];
    for (int i = 0; i < REPETITIONS; i++) {
        double began = now();
        for (int k = 0; k < TIMES; k++) {
            move(s, 1);
            move(s, 0);
        }
        each[i] = (now() - began) / TIMES / 2 * 1e6;
    }
    qsort(each, REPETITIONS, sizeof *each, by_value);
    printf("8-B %.3f us\n", each[REPETITIONS / 2]);
    return 0;
}
