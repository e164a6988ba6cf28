/*
 * The door to libibverbs, for src/verbs.
 *
 * The library is loaded at run time, so the program starts without it; the layouts come from the
 * system's rdma-core headers at build time (44 and newer). Handles are opaque, no state is kept
 * outside them, nothing calls back, and no function prints. Functions return 0 or an errno.
 */
#ifndef HAIRPIN_MESH_VERBS_H
#define HAIRPIN_MESH_VERBS_H

#include <stddef.h>
#include <stdint.h>

/* libibverbs, loaded. */
struct hm_verbs;
/* An opened RDMA device. Lives no longer than the struct hm_verbs that it came from. */
struct hm_device;

/* What ibv_query_port tells of a port. */
struct hm_port {
	uint32_t active_mtu; /* bytes; 0 when the library gives a code that is not known here */
	uint32_t max_mtu;    /* bytes; likewise */
	uint8_t state;       /* enum ibv_port_state */
};

/* Loads libibverbs.so.1. On failure *out is NULL and `why` says what is missing. */
int hm_verbs_load(struct hm_verbs **out, char *why, size_t why_size);
void hm_verbs_unload(struct hm_verbs *verbs);

/* Opens the device called `name`; ENODEV when libibverbs does not list it. */
int hm_device_open(const struct hm_verbs *verbs, const char *name, struct hm_device **out);
void hm_device_close(struct hm_device *device);

int hm_device_query_port(const struct hm_device *device, uint8_t port, struct hm_port *out);

#endif
