/* SPDX-License-Identifier: Apache-2.0 */
/* Processors in the order in which PEs are bound to them: those that share no core first. */
#ifndef RUN_BIND_H
#define RUN_BIND_H

/* The processors that the caller may use, in *cpus (the caller frees it). Returns their number; 0
 * if the system does not say. */
int run_bind_order(int **cpus);

/* Bind the calling process to one processor; 0 or -1 with errno. */
int run_bind_self(int cpu);

#endif
