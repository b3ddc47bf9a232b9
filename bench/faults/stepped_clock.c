/* The time of day, off by as many seconds as stand in the file WEIR_CLOCK_FILE (a native 64-bit integer), for a
   process that has this library preloaded. Monotonic clocks are not touched, nor are waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none = 0, *offset_seconds = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

/* Follow the clock of this file from now on: a process that was forked into another host calls it. */
void follow_clock(const char *path) {
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) offset_seconds = mapped;
  close(file);
}

__attribute__((constructor)) static void begin(void) {
  real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  follow_clock(getenv("WEIR_CLOCK_FILE"));
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real_clock_gettime(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset_seconds;
  return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec precise;
  int failed = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *kept) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (kept) *kept = now.tv_sec;
  return now.tv_sec;
}
