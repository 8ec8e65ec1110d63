/* Many requests at the same time: each thread writes and reads a piece of a file. Eight threads have the same piece, so that the requests are many
 * and the file is small. Arguments: the file, the first piece, threads, and bytes of a piece. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int file;
static size_t length;
static long first;
static pthread_barrier_t all;

static void *move(void *number)
{
    long piece = first + (long)number / 8;
    char value = (char)(piece % 255 + 1), *bytes = malloc(length);
    if (!bytes) return "no memory";
    memset(bytes, value, length);
    pthread_barrier_wait(&all);
    if (pwrite(file, bytes, length, piece * (off_t)length) != (ssize_t)length) return "not written";
    pthread_barrier_wait(&all);
    memset(bytes, 0, length);
    if (pread(file, bytes, length, piece * (off_t)length) != (ssize_t)length) return "not read";
    const char *why = NULL;
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != value) why = "wrong";
    free(bytes);
    return (void *)why;
}

int main(int count, char **words)
{
    if (count != 5) return 1;
    long threads = atol(words[3]);
    pthread_t known[256];
    file = open(words[1], O_RDWR | O_CREAT, 0644);
    first = atol(words[2]);
    length = (size_t)atol(words[4]);
    if (file < 0 || threads > 256) return 1;
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&known[i], NULL, move, (void *)i)) return 1;
    for (long i = 0; i < threads; i++) {
        void *why;
        pthread_join(known[i], &why);
        if (why) {
            printf("piece %ld: %s\n", first + i / 8, (char *)why);
            return 1;
        }
    }
    puts("ok");
    return 0;
}
