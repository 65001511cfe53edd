/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is this build instrumented? GCC says so by macros, Clang by features. Both are 0 or 1:
 * SHMEMI_TSAN (ThreadSanitizer), SHMEMI_ASAN (AddressSanitizer).
 */
#ifndef SHMEMI_BASE_SANITIZER_H
#define SHMEMI_BASE_SANITIZER_H

#if defined(__SANITIZE_THREAD__)
#define SHMEMI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHMEMI_TSAN 1
#endif
#endif
#ifndef SHMEMI_TSAN
#define SHMEMI_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SHMEMI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHMEMI_ASAN 1
#endif
#endif
#ifndef SHMEMI_ASAN
#define SHMEMI_ASAN 0
#endif

#endif
