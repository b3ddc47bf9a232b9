/* Each write into a regular file takes as many milliseconds longer as stand in the file WEIR_DISK_FILE (a native
   64-bit integer), and each fsync ten times as many, for a process that has this library preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none = 0, *delay_ms = &none;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("WEIR_DISK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) delay_ms = mapped;
  close(file);
}

static void wait_for_disk(int file, int64_t times) {
  int64_t wait_ms = *delay_ms * times;
  struct stat about;
  if (wait_ms <= 0 || fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return;
  struct timespec pause = {wait_ms / 1000, (wait_ms % 1000) * 1000000};
  nanosleep(&pause, NULL);
}

#define SLOW(result, name, times, parameters, ...)                     \
  result name parameters {                                             \
    static result(*real) parameters;                                   \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name);   \
    wait_for_disk(file, times);                                        \
    return real(__VA_ARGS__);                                          \
  }

SLOW(ssize_t, write, 1, (int file, const void *data, size_t bytes), file, data, bytes)
SLOW(ssize_t, writev, 1, (int file, const struct iovec *parts, int count), file, parts, count)
SLOW(ssize_t, pwrite, 1, (int file, const void *data, size_t bytes, off_t at), file, data, bytes, at)
SLOW(ssize_t, pwrite64, 1, (int file, const void *data, size_t bytes, off64_t at), file, data, bytes, at)
SLOW(int, fsync, 10, (int file), file)
SLOW(int, fdatasync, 10, (int file), file)
