/* What the kernel leaves to the file system: set-user-id and set-group-id go when somebody else writes, set-group-id when somebody who
 * is not in the group changes the access control list; names that are given while a directory is listed, an attribute of 64 KiB, and files that are opened by handles which are older
 * than the mount. Arguments: "make", "make-shared" or "open", a directory of the mount, a file for the handles. Run by root. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno));    \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

enum { FILES = 3, LONGEST = 64 << 10 };
struct kept {
    struct file_handle handle;
    unsigned char bytes[MAX_HANDLE_SZ];
};

/* As a user with a group and perhaps another one. */
static void as(uid_t user, gid_t group, gid_t other, void (*act)(const char *path), const char *path)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setgroups(other ? 1 : 0, &other) == 0 && setgid(group) == 0 && setuid(user) == 0);
        act(path);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static mode_t mode(const char *path)
{
    struct stat facts;
    CHECK(stat(path, &facts) == 0);
    return facts.st_mode & 07777;
}

static void put(const char *path)
{
    int file = open(path, O_WRONLY);
    CHECK(file >= 0 && pwrite(file, "x", 1, 0) == 1 && close(file) == 0);
}

static void take(const char *path)
{
    int file = open(path, O_WRONLY);
    CHECK(file >= 0 && fallocate(file, 0, 0, 100000) == 0 && close(file) == 0);
}

/* Renames all files of a directory while it lists them. */
static void rename_all(int count)
{
    char name[32], other[300];
    CHECK(mkdir("many", 0755) == 0 && chdir("many") == 0);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK(close(open(name, O_CREAT | O_WRONLY, 0644)) == 0);
    }
    DIR *listed = opendir(".");
    CHECK(listed);
    for (int round = 0; round < 2; round++) {
        int seen = 0;
        for (struct dirent *one; (one = readdir(listed));) {
            if (one->d_name[0] == '.') continue;
            snprintf(other, sizeof other, "%s+", one->d_name);
            CHECK(rename(one->d_name, other) == 0 && ++seen <= count);
        }
        CHECK(seen == count);
        rewinddir(listed);
    }
    closedir(listed);
    CHECK(chdir("..") == 0);
}

/* The list that says 0755. */
static void list(const char *path)
{
    static const unsigned char value[] = {2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255};
    CHECK(setxattr(path, "system.posix_acl_access", value, sizeof value, 0) == 0);
}

static void make(int is_shared)
{
    static char value[LONGEST], got[LONGEST];
    int file = open("file", O_CREAT | O_RDWR, 0644);
    CHECK(file >= 0 && write(file, "here", 4) == 4);
    CHECK(chown("file", 1, 2) == 0 && chmod("file", 06777) == 0 && mode("file") == 06777);
    put("file");
    CHECK(mode("file") == 06777);
    as(3, 3, 0, put, "file");
    CHECK(mode("file") == 0777);
    CHECK(chmod("file", 06776) == 0);
    as(3, 3, 0, take, "file");
    CHECK(mode("file") == 0776);
    CHECK(chmod("file", 02766) == 0);
    as(3, 2, 0, put, "file");
    CHECK(mode("file") == 02766);
    as(3, 3, 0, put, "file");
    CHECK(mode("file") == 0766);
    rename_all(3000);
    CHECK(chmod("file", 02777) == 0);
    as(1, 2, 0, list, "file");
    CHECK(mode("file") == 02755);
    /* The second groups of other hosts' processes are not known. */
    as(1, 3, 2, list, "file");
    CHECK(mode("file") == (is_shared ? 0755 : 02755));
    as(1, 3, 0, list, "file");
    CHECK(mode("file") == 0755);
    memset(value, 'v', sizeof value);
    CHECK(setxattr("file", "user.long", value, sizeof value, 0) == 0 && setxattr("file", "user.short", value, 10, 0) == 0);
    CHECK(getxattr("file", "user.long", got, sizeof got) == LONGEST && memcmp(value, got, sizeof got) == 0);
    CHECK(pwrite(file, "here", 4, 0) == 4 && close(file) == 0 && mkdir("folder", 0755) == 0);
    CHECK((file = open("folder/inner", O_CREAT | O_RDWR, 0644)) >= 0 && write(file, "here", 4) == 4 && close(file) == 0);
}

int main(int count, char **words)
{
    static const char *const names[FILES] = {"file", "folder", "folder/inner"};
    struct kept kept[FILES];
    CHECK(count == 4 && chdir(words[2]) == 0);
    int is_shared = strcmp(words[1], "make-shared") == 0, is_new = is_shared || strcmp(words[1], "make") == 0;
    FILE *handles = fopen(words[3], is_new ? "w" : "r");
    CHECK(handles);
    if (is_new) {
        make(is_shared);
        for (int i = 0; i < FILES; i++) {
            int mount;
            kept[i].handle.handle_bytes = MAX_HANDLE_SZ;
            CHECK(name_to_handle_at(AT_FDCWD, names[i], &kept[i].handle, &mount, 0) == 0);
        }
        CHECK(fwrite(kept, sizeof kept, 1, handles) == 1 && fclose(handles) == 0);
        return 0;
    }
    CHECK(fread(kept, sizeof kept, 1, handles) == 1);
    int top = open(".", O_RDONLY | O_DIRECTORY);
    for (int i = FILES - 1; i >= 0; i--) {
        struct stat there, opened;
        int file = open_by_handle_at(top, &kept[i].handle, O_RDONLY);
        CHECK(top >= 0 && file >= 0 && fstat(file, &opened) == 0 && stat(names[i], &there) == 0 && there.st_ino == opened.st_ino);
        char bytes[4];
        CHECK(S_ISDIR(opened.st_mode) || (read(file, bytes, 4) == 4 && memcmp(bytes, "here", 4) == 0));
        close(file);
    }
    /* What is gone is not opened any more. */
    CHECK(unlink("file") == 0);
    sync();
    CHECK(open_by_handle_at(top, &kept[0].handle, O_RDONLY) < 0 && errno == ESTALE);
    return 0;
}
