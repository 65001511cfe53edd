/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes, their texts, and the detail of the last error.
 *
 * Every function that can fail returns shmem_status_t: SHMEM_OK (0) or one negative code of the
 * table below. On failure its outputs are untouched and the calling thread's detail text says what
 * was asked, what was found and what to do about it.
 *
 * Threads: all functions here may be called from any thread at any time; the detail belongs to the
 * calling thread. None of them blocks or allocates.
 */
#ifndef SHMEM_STATUS_H
#define SHMEM_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SHMEM_API
#define SHMEM_API __attribute__((visibility("default")))
#endif

/* X(code, value, text, Python exception). Values are part of the ABI: append only. */
#define SHMEM_STATUS_TABLE(X)                                                                      \
    X(SHMEM_OK, 0, "success", "None")                                                              \
    X(SHMEM_ERR_INVALID, -1, "invalid argument", "ValueError")                                     \
    X(SHMEM_ERR_NOMEM, -2, "out of memory", "MemoryError")                                         \
    X(SHMEM_ERR_LIMIT, -3, "a limit of the library or of the system is reached", "ResourceError")  \
    X(SHMEM_ERR_OVERFLOW, -4, "a size or count overflows", "OverflowError")                        \
    X(SHMEM_ERR_TIMEOUT, -5, "the time given has passed", "TimeoutError")                          \
    X(SHMEM_ERR_BUSY, -6, "the object is held by another", "BlockingIOError")                      \
    X(SHMEM_ERR_STATE, -7, "the call is not allowed in this state", "RuntimeError")                \
    X(SHMEM_ERR_NOT_FOUND, -8, "no object of that name", "FileNotFoundError")                      \
    X(SHMEM_ERR_EXISTS, -9, "an object of that name exists", "FileExistsError")                    \
    X(SHMEM_ERR_ACCESS, -10, "access denied", "PermissionError")                                   \
    X(SHMEM_ERR_PEER_DEAD, -11, "a peer died", "PeerDeadError")                                    \
    X(SHMEM_ERR_OWNER_DIED, -12, "acquired, but the last owner died holding it", "OwnerDiedError") \
    X(SHMEM_ERR_POISONED, -13, "the object was left inconsistent by a dead owner",                 \
      "PoisonedError")                                                                             \
    X(SHMEM_ERR_DEADLOCK, -14, "the caller holds it already", "RuntimeError")                      \
    X(SHMEM_ERR_NOT_OWNER, -15, "the caller does not hold it", "RuntimeError")                     \
    X(SHMEM_ERR_MISMATCH, -16, "the peers called with different arguments", "MismatchError")       \
    X(SHMEM_ERR_VERSION, -17, "versions or layouts differ", "VersionError")                        \
    X(SHMEM_ERR_CORRUPT, -18, "shared memory holds impossible values", "CorruptError")             \
    X(SHMEM_ERR_DOUBLE_FREE, -19, "the block is free already", "ValueError")                       \
    X(SHMEM_ERR_FOREIGN_POINTER, -20, "the pointer is not from this pool", "ValueError")           \
    X(SHMEM_ERR_INTERIOR_POINTER, -21, "the pointer is not the start of a block", "ValueError")    \
    X(SHMEM_ERR_QUOTA, -22, "over quota", "QuotaError")                                            \
    X(SHMEM_ERR_NO_SERVER, -23, "no node server and none could be started", "ServerError")         \
    X(SHMEM_ERR_SERVER_LOST, -24, "the node server went away", "ServerError")                      \
    X(SHMEM_ERR_PROTOCOL, -25, "the other side broke the protocol", "ServerError")                 \
    X(SHMEM_ERR_ADDRESS_TAKEN, -26, "the address range is in use", "AddressError")                 \
    X(SHMEM_ERR_UNSUPPORTED, -27, "not supported on this machine or build", "UnsupportedError")    \
    X(SHMEM_ERR_SETTING, -28, "a SHMEM_* setting has a bad value", "SettingError")                 \
    X(SHMEM_ERR_SYSTEM, -29, "a system call failed", "OSError")                                    \
    X(SHMEM_ERR_INJECTED, -30, "a fault injected by a test", "RuntimeError")

typedef enum shmem_status {
#define SHMEM_STATUS_ENUM(code, value, text, python) code = value,
    SHMEM_STATUS_TABLE(SHMEM_STATUS_ENUM)
#undef SHMEM_STATUS_ENUM
} shmem_status_t;

/* The text of a code; "unknown status" for any other number. Static, never NULL. */
SHMEM_API const char *shmem_strerror(shmem_status_t status);

/* The name of a code, such as "SHMEM_ERR_TIMEOUT"; "unknown" for any other number. Static. */
SHMEM_API const char *shmem_status_name(shmem_status_t status);

/* What the last failing call of this thread recorded. */
typedef struct {
    shmem_status_t status; /* SHMEM_OK: nothing failed in this thread so far */
    int system_errno;      /* errno of the system call at fault, or 0 */
    const char *layer;     /* "os", "memory", ...; static */
    const char *text;      /* asked, found, what to do; valid until the thread's next failure */
} shmem_error_detail_t;

/* The detail of the calling thread. Never NULL; succeeding calls leave it as it was. */
SHMEM_API const shmem_error_detail_t *shmem_error_detail(void);

/* Severity of a log line. */
typedef enum shmem_log_level {
    SHMEM_LOG_ERROR = 1,
    SHMEM_LOG_WARN = 2,
    SHMEM_LOG_INFO = 3,
    SHMEM_LOG_DEBUG = 4
} shmem_log_level_t;

/* Receives one line without newline. May be called from any thread, also concurrently; must not
 * call the library. `text` is valid during the call. */
typedef void (*shmem_log_sink_t)(void *user, shmem_log_level_t level, const char *layer,
                                 const char *text);

/*
 * Send the library's log lines of `level` and more severe to `sink`; NULL switches logging off.
 * The sink is one per process. Without this call nothing is logged unless SHMEM_LOG names a level;
 * then lines go to standard error. Call it while no other thread is inside the library.
 */
SHMEM_API void shmem_log_set_sink(shmem_log_sink_t sink, void *user, shmem_log_level_t level);

#ifdef __cplusplus
}
#endif
#endif
