/*
 * The door to libibverbs and libmlx5, for src/verbs.
 *
 * The libraries are loaded at run time, so the program starts without them; the layouts come from the
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

/*
 * The descriptor that becomes readable with an asynchronous event of the device, made non-blocking; -1 with
 * errno when that fails. It is the device's: not to be closed. To be asked for after the first call of libmlx5.
 */
int hm_device_events(const struct hm_device *device);
/* Takes the next event and acknowledges it. EAGAIN when there is none. */
int hm_device_next_event(const struct hm_device *device, uint32_t *type /* enum ibv_event_type */);

/* libmlx5, loaded. */
struct hm_mlx5;
/* A steering rule in a device. Lives no longer than the struct hm_device that it is in. */
struct hm_rule;

/* Size of a match, bytes: fte_match_param up to and with misc_parameters_4 (linux/mlx5/mlx5_ifc.h). */
#define HM_MATCH_SIZE 0x180
/* Size of a modify-header command, bytes (set_action_in, linux/mlx5/mlx5_ifc.h). */
#define HM_COMMAND_SIZE 8

/* Loads libmlx5.so.1. On failure *out is NULL and `why` says what is missing. */
int hm_mlx5_load(struct hm_mlx5 **out, char *why, size_t why_size);
void hm_mlx5_unload(struct hm_mlx5 *mlx5);

/* Whether mlx5 drives the device: 1 or 0. */
int hm_mlx5_drives(const struct hm_mlx5 *mlx5, const struct hm_device *device);

/*
 * Puts one rule into the device's RDMA-TX table: what matches `value` under `mask` (outer headers) is changed by
 * one modify-header command. On failure nothing of it stays, and *call says which call was refused.
 */
enum hm_call { HM_CREATE_MATCHER = 1, HM_CREATE_ACTION = 2, HM_CREATE_FLOW = 3 };
int hm_rule_attach(const struct hm_mlx5 *mlx5, const struct hm_device *device, const uint8_t mask[HM_MATCH_SIZE],
		   const uint8_t value[HM_MATCH_SIZE], const uint8_t command[HM_COMMAND_SIZE], struct hm_rule **out,
		   uint32_t *call);
/* Takes it out again. The first error; what could not be taken out ends with the device. */
int hm_rule_detach(struct hm_rule *rule);

/*
 * Drops the pages of program and libraries that are as their files have them; what is still needed comes back by
 * itself. For a process that from now on does next to nothing.
 */
void hm_forget_program(void);

#endif
