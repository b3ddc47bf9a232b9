/* Data that is sent from or to a port of this host vanishes, for a process that has this library preloaded: the file
   WEIR_LINKS_FILE (a native 64-bit integer) holds the port, plus 65536 if data to it is lost, and 131072 if data from it
   is lost; or 0. Connections are still made. One that has lost data delivers nothing more, and ends with an error at its
   next use after the fault, as TCP ends a connection that had no answer for long. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FILES 65536
enum { TO_PORT = 1, FROM_PORT = 2 };
static volatile int64_t none = 0, *links = &none;
static volatile char has_lost_data[MAX_FILES];

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("WEIR_LINKS_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) links = mapped;
  close(file);
}

/* The port of a connection's end; -1 if the file is no connection. */
static int get_port(int file, int is_peer) {
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  int failed = is_peer ? getpeername(file, (struct sockaddr *)&address, &size)
                       : getsockname(file, (struct sockaddr *)&address, &size);
  return failed || address.sin_family != AF_INET ? -1 : ntohs(address.sin_port);
}

/* Whether a connection has lost data. Its number may belong to another file now. */
static int has_lost(int file) {
  if (file < 0 || file >= MAX_FILES || !has_lost_data[file]) return 0;
  if (get_port(file, 0) < 0) has_lost_data[file] = 0;
  return has_lost_data[file];
}

/* Whether what is sent now is lost. */
static int is_cut(int file) {
  int64_t now = *links;
  if (now == 0 || file < 0 || file >= MAX_FILES) return 0;
  if (has_lost(file)) return 1;
  int port = now & 0xffff, ways = now >> 16;
  if (((ways & TO_PORT) && get_port(file, 1) == port) || ((ways & FROM_PORT) && get_port(file, 0) == port))
    has_lost_data[file] = 1;
  return has_lost_data[file];
}

/* Whether a connection has lost data in a fault that is over. */
static int is_broken(int file) {
  if (*links != 0 || !has_lost(file)) return 0;
  shutdown(file, SHUT_RDWR);
  return 1;
}

static ssize_t count_bytes(const struct iovec *parts, int count) {
  ssize_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
  return bytes;
}

#define SENT(name, bytes, parameters, ...)                            \
  ssize_t name parameters {                                           \
    static ssize_t(*real) parameters;                                 \
    if (!real) real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name); \
    if (is_broken(file)) {                                            \
      errno = ECONNRESET;                                             \
      return -1;                                                      \
    }                                                                 \
    return is_cut(file) ? (ssize_t)(bytes) : real(__VA_ARGS__);       \
  }

SENT(write, size, (int file, const void *data, size_t size), file, data, size)
SENT(send, size, (int file, const void *data, size_t size, int flags), file, data, size, flags)
SENT(sendto, size,
     (int file, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t to_size), file, data, size,
     flags, to, to_size)
SENT(writev, count_bytes(parts, count), (int file, const struct iovec *parts, int count), file, parts, count)
SENT(sendmsg, count_bytes(message->msg_iov, message->msg_iovlen), (int file, const struct msghdr *message, int flags),
     file, message, flags)

/* A new connection has lost nothing. */
#define OPENED(name, parameters, ...)                                 \
  int name parameters {                                               \
    static int(*real) parameters;                                     \
    if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);     \
    int opened = real(__VA_ARGS__);                                   \
    if (opened >= 0 && opened < MAX_FILES) has_lost_data[opened] = 0; \
    return opened;                                                    \
  }

OPENED(socket, (int domain, int type, int protocol), domain, type, protocol)
OPENED(accept, (int file, struct sockaddr *from, socklen_t *size), file, from, size)
OPENED(accept4, (int file, struct sockaddr *from, socklen_t *size, int flags), file, from, size, flags)
