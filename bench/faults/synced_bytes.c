/* Records how many bytes of each file were synced: a native 64-bit integer in the file {inode} of the folder
   WEIR_SYNCED_FOLDER. A simulated power loss then cuts each file to what it may have kept. A sync takes
   WEIR_SYNC_MICROSECONDS, and leaves the real disk alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int folder = -1;
static int64_t sync_microseconds = 0;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("WEIR_SYNCED_FOLDER"), *takes = getenv("WEIR_SYNC_MICROSECONDS");
  if (path) folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (takes) sync_microseconds = atoll(takes);
}

/* Calls the kernel's openat, since this library replaces open. */
static int open_record(ino_t inode) {
  char name[32];
  snprintf(name, sizeof name, "%llu", (unsigned long long)inode);
  return openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static void record(ino_t inode, int64_t bytes, int only_less) {
  int file = open_record(inode);
  int64_t known = 0;
  if (file < 0) return;
  if (!only_less || (pread(file, &known, sizeof known, 0) == sizeof known && bytes < known)) {
    if (pwrite(file, &bytes, sizeof bytes, 0) != sizeof bytes) abort();
  }
  close(file);
}

static int sync_file(int file) {
  struct stat about;
  if (folder < 0 || fstat(file, &about) != 0) return -1;
  if (!S_ISREG(about.st_mode)) return 0;
  /* What is written during the sync may not be part of it. */
  struct timespec pause = {sync_microseconds / 1000000, sync_microseconds % 1000000 * 1000};
  nanosleep(&pause, NULL);
  record(about.st_ino, about.st_size, 0);
  return 0;
}

int fsync(int file) { return sync_file(file); }
int fdatasync(int file) { return sync_file(file); }

static int opened(int file) {
  struct stat about;
  /* An inode may be used again: a new file has nothing on the disk. */
  if (file >= 0 && folder >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0)
    record(about.st_ino, 0, 0);
  return file;
}

#define OPEN(name)                                                                       \
  int name(const char *path, int flags, ...) {                                           \
    static int (*real)(const char *, int, ...);                                          \
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name);          \
    va_list more;                                                                        \
    va_start(more, flags);                                                               \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;              \
    va_end(more);                                                                        \
    int file = real(path, flags, mode);                                                  \
    return flags & (O_WRONLY | O_RDWR) ? opened(file) : file;                            \
  }

#define TRUNCATE(name, target, look)                                                     \
  int name(target, off_t bytes) {                                                        \
    static int (*real)(target, off_t);                                                   \
    struct stat about;                                                                   \
    if (!real) real = (int (*)(target, off_t))dlsym(RTLD_NEXT, #name);                   \
    int failed = real(what, bytes);                                                      \
    if (!failed && folder >= 0 && look(what, &about) == 0) record(about.st_ino, bytes, 1); \
    return failed;                                                                       \
  }

OPEN(open)
OPEN(open64)
TRUNCATE(truncate, const char *what, stat)
TRUNCATE(truncate64, const char *what, stat)
TRUNCATE(ftruncate, int what, fstat)
TRUNCATE(ftruncate64, int what, fstat)
