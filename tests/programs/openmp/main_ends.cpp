/* main ends by pthread_exit, or by returning, after regions: with "exit" the process ends when the last thread of the program
 * does, and what members keep in keys and thread_local objects is destroyed, as with threads. */
#include <atomic>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(3);
}

struct Local {
    int value = 0;
    ~Local() { say("object\n"); }
};
static thread_local Local local;
static pthread_key_t key;
static void destroy(void *) { say("key\n"); }

static int region(int members) {
    int sum = 0;
#pragma omp parallel num_threads(members) reduction(+ : sum)
    {
        local.value += 1;
        pthread_setspecific(key, &key);
#pragma omp barrier
        sum += local.value;
    }
    return sum;
}

static std::atomic<int> main_has_ended;

static void *later(void *) {
    while (!main_has_ended) usleep(1000);
    usleep(20000);
    say(region(3) == 3 ? "region\n" : "WRONG\n");
    return nullptr;
}

int main(int argc, char **argv) {
    pthread_key_create(&key, destroy);
    pthread_t thread;
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "thread") == 0) pthread_create(&thread, nullptr, later, nullptr);
    if (strcmp(how, "thread") != 0 && region(4) != 4) return 2;
    main_has_ended = 1;
    if (*how) pthread_exit(nullptr);
    return 0;
}
