/* Calls at ports as nobody should. Arguments: how the names of the sockets begin, and how many connections. Prints "made" after
   them, holds the last ones until standard input ends. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HELD = 200, KINDS = 13, HELLO = 0x4d470001 };

/* The next name in the kernel's list that begins so, counted round from the one after `turn`. */
static int find(const char *prefix, int turn, char *name, size_t room)
{
    char line[512], found[16][108];
    int n = 0;
    FILE *list = fopen("/proc/net/unix", "r");
    while (list && n < 16 && fgets(line, sizeof line, list)) {
        char *at = strchr(line, '@');
        if (at && !strncmp(at + 1, prefix, strlen(prefix))) {
            at[strcspn(at, "\n")] = 0;
            snprintf(found[n++], sizeof found[0], "%.100s", at + 1);
        }
    }
    if (list)
        fclose(list);
    if (n == 0)
        return 0;
    snprintf(name, room, "%s", found[turn % n]);
    return 1;
}

static int call(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return -1;
    memcpy(address.sun_path + 1, name, length);
    if (connect(s, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + length)) {
        close(s);
        return -1;
    }
    return s;
}

static void say(int s, const void *bytes, size_t length)
{
    /* Who has hung up already hears nothing. */
    (void)!send(s, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A connection of one kind; whether it is to be held. */
static int misbehave(int s, int kind)
{
    uint32_t words[32];
    memset(words, 0, sizeof words);
    words[1] = HELLO;
    switch (kind) {
    case 0: /* any bytes */
        for (int i = 0; i < 32; i++)
            words[i] = (uint32_t)random() * 2654435761u;
        say(s, words, 1 + (size_t)random() % sizeof words);
        return random() % 2;
    case 1: /* silence */
        return 1;
    case 2: /* gone at once */
        return 0;
    case 3: /* a HELLO that breaks off */
        words[0] = 28;
        say(s, words, 4 + (size_t)random() % 24);
        return random() % 2;
    case 4: /* a length that nobody has room for */
        words[0] = random() % 2 ? 0xffffffffu : 0x80000000u;
        say(s, words, sizeof words);
        return 1;
    case 5: /* 4 MiB of which little comes */
        words[0] = 4 << 20;
        say(s, words, sizeof words);
        return 1;
    case 6: /* a HELLO of a word, of two and without a whole address */
        words[0] = 4 * (1 + (uint32_t)random() % 6);
        words[2] = (uint32_t)random() % 3 - 1;
        say(s, words, 4 + words[0]);
        return 1;
    case 7: /* a root that is not in the list, or none */
        words[0] = 28;
        words[2] = random() % 2 ? 0xffffffffu : 1;
        say(s, words, 32);
        return 1;
    case 8: /* the process itself, with a descriptor that is no job's memory */
        words[0] = 28;
        words[3] = 5;
        words[6] = (uint32_t)getpid();
        words[7] = (uint32_t)random() % 4;
        say(s, words, 32);
        return random() % 2;
    case 9: /* a HELLO of 8 bytes that says nothing */
        words[0] = 8;
        say(s, words, 12);
        return 1;
    case 10: /* a HELLO, and no ear for the answer */
        words[0] = 28;
        say(s, words, 32);
        shutdown(s, random() % 2 ? SHUT_RD : SHUT_WR);
        return 1;
    case 11: /* a HELLO that comes byte by byte, with a piece for each later connection */
        words[0] = 28;
        say(s, words, 4);
        return 2;
    default: /* an empty message, then silence */
        say(s, words, 4);
        return 1;
    }
}

int main(int argc, char **argv)
{
    static int held[HELD];
    static const char hello[27] = {1, 0, 0x47, 0x4d};
    char name[108];
    int drip = -1, dripped = 0;
    int wanted = argc > 2 ? atoi(argv[2]) : 0, made = 0;
    srandom(1);
    memset(held, -1, sizeof held);
    while (made < wanted) {
        if (!find(argv[1], made, name, sizeof name)) {
            usleep(1000);
            continue;
        }
        for (int i = 0; i < 50 && made < wanted; i++) {
            int s = call(name);
            if (s < 0)
                break;
            int *place = &held[made % HELD];
            if (*place >= 0)
                close(*place);
            *place = s;
            int kind = misbehave(s, made++ % KINDS);
            if (kind == 0) {
                close(s);
                *place = -1;
            } else if (kind == 2 && drip < 0) {
                drip = (int)(place - held);
                dripped = 0;
            } else if (drip >= 0 && drip == (int)(place - held)) {
                drip = -1;
            }
            if (drip >= 0 && dripped < (int)sizeof hello)
                say(held[drip], hello + dripped++, 1);
        }
    }
    printf("made\n");
    fflush(stdout);
    while (read(0, name, sizeof name) > 0)
        ;
    return 0;
}
