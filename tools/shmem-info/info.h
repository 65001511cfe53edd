/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmem-info: facts are gathered into one JSON object, which is printed as it is (--json) or as
 * text. Gathering never fails for want of a fact: what the system does not say is null.
 */
#ifndef INFO_H
#define INFO_H

#include <jansson.h>

/* Each returns a new object (or array), NULL only when out of memory or as noted. */
json_t *info_versions(void);
json_t *info_limits(void); /* memlock, files, processes, control group */
json_t *info_huge_pages(void);
json_t *info_kernel(void);   /* release, membarrier, futex, pidfd, seccomp */
json_t *info_topology(void); /* an object with "error" when it cannot be detected */
/* The same, measured now, and where that was saved: "saved" is a path or absent, "not_saved" the
 * reason. */
json_t *info_measured_topology(void);
json_t *info_servers(void);
/* *bad counts the settings with a bad value. */
json_t *info_settings(int *bad);
/* Variables SHMEM_* of the environment that are no setting: most likely misspelt. */
json_t *info_unknown_settings(void);
/* What is slow or missing here and how to mend it: array of {"what", "do"}. */
json_t *info_advice(const json_t *all);

/* Print the whole as text, or what was measured. */
void info_print(const json_t *all);
void info_print_measured(const json_t *topology);

/* The content of docs/settings.md. 0 or -1. */
int info_settings_doc(void);

#endif
