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

/* Objects of a device: a protection domain, registered memory, a completion queue, a queue pair. Each lives no
 * longer than what it was made from. */
struct hm_pd;
struct hm_mr;
struct hm_cq;
struct hm_qp;

int hm_pd_alloc(const struct hm_device *device, struct hm_pd **out);
void hm_pd_free(struct hm_pd *pd);

/* Memory that the peer may write: IBV_ACCESS_LOCAL_WRITE and IBV_ACCESS_REMOTE_WRITE. */
int hm_mr_register(const struct hm_pd *pd, void *address, size_t length, struct hm_mr **out);
void hm_mr_deregister(struct hm_mr *mr);
/* What the peer names it by. */
uint32_t hm_mr_rkey(const struct hm_mr *mr);

int hm_cq_create(const struct hm_device *device, int depth, struct hm_cq **out);
void hm_cq_destroy(struct hm_cq *cq);

/* How a write ended. */
struct hm_completion {
	uint64_t id;
	uint32_t status;     /* enum ibv_wc_status; 0 is success */
	uint32_t vendor_err; /* the provider's own */
	const char *text;    /* what libibverbs says of the status; not to be freed */
};

/* Takes a completion: 1, 0 when there is none, -1 when the queue cannot be read. */
int hm_cq_poll(const struct hm_cq *cq, struct hm_completion *out);

/*
 * An RC queue pair with room for `depth` writes of one element each. *inline_bytes is how much a write may carry in
 * itself: what is wanted on the way in, what there is on the way out; a provider that has none refuses nothing.
 */
int hm_qp_create(const struct hm_pd *pd, const struct hm_cq *cq, uint32_t depth, uint32_t *inline_bytes,
		 struct hm_qp **out);
void hm_qp_destroy(struct hm_qp *qp);
uint32_t hm_qp_number(const struct hm_qp *qp);

/* The way to the peer. */
struct hm_path {
	uint8_t gid[16];        /* of the peer */
	uint32_t qp_number;     /* of the peer, 24 bits */
	uint32_t packet_number; /* the peer's first, 24 bits */
	uint32_t mtu;           /* bytes: 256, 512, 1024, 2048, 4096 */
	uint32_t flow_label;    /* 20 bits */
	uint8_t gid_index;      /* of this side */
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t port;
};

int hm_qp_to_init(const struct hm_qp *qp, uint8_t port);
int hm_qp_to_rtr(const struct hm_qp *qp, const struct hm_path *path);
/* timeout: 4.096 us times 2 to the power of this (IBTA 9.7.6.1.3); retries: 0 to 7. */
int hm_qp_to_rts(const struct hm_qp *qp, uint32_t packet_number, uint8_t timeout, uint8_t retries);
/* The flow label that the driver has for the queue pair. */
int hm_qp_flow_label(const struct hm_qp *qp, uint32_t *out);
/* Posts one signalled RDMA write. */
int hm_qp_write(struct hm_qp *qp, uint64_t id, const void *from, uint32_t length, const struct hm_mr *mr, uint64_t to,
		uint32_t rkey, int in_itself);

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
