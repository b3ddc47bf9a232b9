/* While the file WEIR_READ_ONLY_FILE (a native 64-bit integer) is not 0, the file system of the folder `data` beside it
   is read-only for a process that has this library preloaded: what writes to its files fails with EROFS. Files that are
   open already are no exception, as when a kernel makes a faulty disk read-only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile int64_t none = 0, *is_read_only = &none;
static dev_t disk;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("WEIR_READ_ONLY_FILE");
  char copy[PATH_MAX], data[PATH_MAX];
  struct stat about;
  if (!path) return;
  snprintf(copy, sizeof copy, "%s", path);
  if (snprintf(data, sizeof data, "%s/data", dirname(copy)) >= (int)sizeof data || stat(data, &about) != 0) return;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  disk = about.st_dev;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) is_read_only = mapped;
  close(file);
}

static int refuses_file(int file) {
  struct stat about;
  return *is_read_only && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_dev == disk;
}

/* Whether the file, or the folder that it would be in, is on the disk. */
static int refuses_path(const char *path) {
  char copy[PATH_MAX];
  struct stat about;
  if (!*is_read_only || !path) return 0;
  if (stat(path, &about) == 0) return S_ISREG(about.st_mode) && about.st_dev == disk;
  snprintf(copy, sizeof copy, "%s", path);
  return stat(dirname(copy), &about) == 0 && about.st_dev == disk;
}

#define CHECKED(result, name, refuses, parameters, ...)              \
  result name parameters {                                           \
    static result(*real) parameters;                                 \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name); \
    if (refuses) {                                                   \
      errno = EROFS;                                                 \
      return -1;                                                     \
    }                                                                \
    return real(__VA_ARGS__);                                        \
  }

CHECKED(ssize_t, write, refuses_file(file), (int file, const void *data, size_t bytes), file, data, bytes)
CHECKED(ssize_t, writev, refuses_file(file), (int file, const struct iovec *parts, int count), file, parts, count)
CHECKED(ssize_t, pwrite, refuses_file(file), (int file, const void *data, size_t bytes, off_t at), file, data, bytes, at)
CHECKED(ssize_t, pwrite64, refuses_file(file), (int file, const void *data, size_t bytes, off64_t at), file, data, bytes,
        at)
CHECKED(int, ftruncate, refuses_file(file), (int file, off_t bytes), file, bytes)
CHECKED(int, ftruncate64, refuses_file(file), (int file, off64_t bytes), file, bytes)
CHECKED(int, unlink, refuses_path(path), (const char *path), path)
CHECKED(int, rename, refuses_path(from) || refuses_path(to), (const char *from, const char *to), from, to)

#define OPENED(name, parameters, ...)                                              \
  int name parameters {                                                            \
    static int(*real) parameters;                                                  \
    if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);                  \
    mode_t mode = 0;                                                               \
    if (flags & (O_CREAT | O_TMPFILE)) {                                           \
      va_list rest;                                                                \
      va_start(rest, flags);                                                       \
      mode = va_arg(rest, mode_t);                                                 \
      va_end(rest);                                                                \
    }                                                                              \
    if ((flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && refuses_path(path)) { \
      errno = EROFS;                                                               \
      return -1;                                                                   \
    }                                                                              \
    return real(__VA_ARGS__, mode);                                                \
  }

OPENED(open, (const char *path, int flags, ...), path, flags)
OPENED(open64, (const char *path, int flags, ...), path, flags)
OPENED(openat, (int folder, const char *path, int flags, ...), folder, path, flags)
OPENED(openat64, (int folder, const char *path, int flags, ...), folder, path, flags)
