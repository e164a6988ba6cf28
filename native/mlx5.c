/* See verbs.h. */
#define _GNU_SOURCE /* dlvsym */
#include "verbs.h"
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>

/* A macro from rdma-core 60.2 on, which wants the library linked. */
#undef mlx5dv_create_flow

/*
 * The layouts and numbers that libmlx5 was asked with when this was written (rdma-core 44 to 65). Headers that
 * say otherwise must stop the build, not the NIC.
 */
_Static_assert(sizeof(struct mlx5dv_flow_match_parameters) == sizeof(size_t), "");
_Static_assert(offsetof(struct mlx5dv_flow_match_parameters, match_sz) == 0, "");
_Static_assert(offsetof(struct mlx5dv_flow_match_parameters, match_buf) == sizeof(size_t), "");
#if __SIZEOF_POINTER__ == 8
_Static_assert(sizeof(struct mlx5dv_flow_matcher_attr) == 40, "");
_Static_assert(offsetof(struct mlx5dv_flow_matcher_attr, type) == 0, "");
_Static_assert(offsetof(struct mlx5dv_flow_matcher_attr, flags) == 4, "");
_Static_assert(offsetof(struct mlx5dv_flow_matcher_attr, priority) == 8, "");
_Static_assert(offsetof(struct mlx5dv_flow_matcher_attr, match_criteria_enable) == 10, "");
_Static_assert(offsetof(struct mlx5dv_flow_matcher_attr, match_mask) == 16, "");
_Static_assert(offsetof(struct mlx5dv_flow_matcher_attr, comp_mask) == 24, "");
_Static_assert(offsetof(struct mlx5dv_flow_matcher_attr, ft_type) == 32, "");
#endif
_Static_assert(IBV_FLOW_ATTR_NORMAL == 0, "");
_Static_assert(MLX5DV_FLOW_MATCHER_MASK_FT_TYPE == 1, "");
_Static_assert(MLX5DV_FLOW_TABLE_TYPE_RDMA_TX == 4, ""); /* MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX */
_Static_assert(MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION == 3, "");

/* What src/verbs takes for the last call is any other number than those of the first two. */
_Static_assert(HM_CREATE_FLOW == 3, "");

/* MLX5_MATCH_OUTER_HEADERS (linux/mlx5/device.h) */
#define MATCH_OUTER_HEADERS 1

/*
 * An action as the symbol version MLX5_1.6 of mlx5dv_create_flow reads it, whatever the headers have: from rdma-core
 * 60.0 on theirs is 24 bytes. The libraries 60.0, 60.1, 61.0 and 62.0 read 24-byte ones under that version, too: the
 * first is the same in both, so there is never more than one.
 */
struct action {
	uint32_t type;
	uint32_t padding;
	void *action;
};
_Static_assert(offsetof(struct action, action) == offsetof(struct mlx5dv_flow_action_attr, action), "");

/* The functions of libmlx5.so.1 that are used: return type, name, symbol version (libmlx5.map), arguments. */
#define MLX5_FUNCTIONS(F)                                                                                        \
	F(bool, mlx5dv_is_supported, "MLX5_1.8", (struct ibv_device *))                                          \
	F(struct mlx5dv_flow_matcher *, mlx5dv_create_flow_matcher, "MLX5_1.6",                                  \
	  (struct ibv_context *, struct mlx5dv_flow_matcher_attr *))                                             \
	F(int, mlx5dv_destroy_flow_matcher, "MLX5_1.6", (struct mlx5dv_flow_matcher *))                          \
	F(struct ibv_flow_action *, mlx5dv_create_flow_action_modify_header, "MLX5_1.7",                         \
	  (struct ibv_context *, size_t, uint64_t *, enum mlx5dv_flow_table_type))                               \
	F(struct ibv_flow *, mlx5dv_create_flow, "MLX5_1.6",                                                     \
	  (struct mlx5dv_flow_matcher *, struct mlx5dv_flow_match_parameters *, size_t, struct action *))

struct hm_mlx5 {
	void *library;
#define POINTER(result, name, version, arguments) result(*name) arguments;
	MLX5_FUNCTIONS(POINTER)
#undef POINTER
};

struct hm_rule {
	const struct hm_mlx5 *mlx5;
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow_action *action;
	struct ibv_flow *flow;
};

int hm_mlx5_load(struct hm_mlx5 **out, char *why, size_t why_size)
{
	struct hm_mlx5 *mlx5 = calloc(1, sizeof(*mlx5));
	const char *missing, *of;

	*out = NULL;
	if (!mlx5) {
		snprintf(why, why_size, "out of memory");
		return ENOMEM;
	}
	mlx5->library = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!mlx5->library) {
		const char *error = dlerror();

		snprintf(why, why_size, "%s", error ? error : "libmlx5.so.1 cannot be loaded");
		free(mlx5);
		return ENOENT;
	}
	/* POSIX: a function's address may be written through a pointer to void pointer. */
#define LOOK_UP(result, name, version, arguments)                                                  \
	*(void **)&mlx5->name = dlvsym(mlx5->library, missing = #name, of = version);              \
	if (!mlx5->name)                                                                           \
		goto incomplete;
	MLX5_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	*out = mlx5;
	return 0;

incomplete:
	snprintf(why, why_size, "libmlx5.so.1 has no %s@%s: a newer rdma-core is wanted", missing, of);
	hm_mlx5_unload(mlx5);
	return ENOSYS;
}

void hm_mlx5_unload(struct hm_mlx5 *mlx5)
{
	/* It stays mapped: libibverbs has it as the provider of its devices. */
	free(mlx5);
}

int hm_mlx5_drives(const struct hm_mlx5 *mlx5, const struct hm_device *device)
{
	return mlx5->mlx5dv_is_supported(device->context->device);
}

/* Room for a match behind its size, as struct mlx5dv_flow_match_parameters wants it. */
union match {
	struct mlx5dv_flow_match_parameters parameters;
	struct {
		size_t size;
		uint64_t bytes[HM_MATCH_SIZE / sizeof(uint64_t)];
	} whole;
};

static void fill(union match *match, const uint8_t bytes[HM_MATCH_SIZE])
{
	match->whole.size = HM_MATCH_SIZE;
	memcpy(match->whole.bytes, bytes, HM_MATCH_SIZE);
}

int hm_rule_attach(const struct hm_mlx5 *mlx5, const struct hm_device *device, const uint8_t mask_bytes[HM_MATCH_SIZE],
		   const uint8_t value_bytes[HM_MATCH_SIZE], const uint8_t command_bytes[HM_COMMAND_SIZE],
		   struct hm_rule **out, uint32_t *call)
{
	struct hm_rule *rule = calloc(1, sizeof(*rule));
	union match mask, value;
	struct mlx5dv_flow_matcher_attr attr = {
		.type = IBV_FLOW_ATTR_NORMAL,
		.priority = 0,
		.match_criteria_enable = MATCH_OUTER_HEADERS,
		.match_mask = &mask.parameters,
		.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE,
		.ft_type = MLX5DV_FLOW_TABLE_TYPE_RDMA_TX,
	};
	uint64_t command[HM_COMMAND_SIZE / sizeof(uint64_t)];
	struct action action = { .type = MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION };
	int error;

	*out = NULL;
	*call = HM_CREATE_MATCHER;
	if (!rule)
		return ENOMEM;
	rule->mlx5 = mlx5;
	fill(&mask, mask_bytes);
	fill(&value, value_bytes);
	memcpy(command, command_bytes, sizeof(command));

	errno = 0;
	rule->matcher = mlx5->mlx5dv_create_flow_matcher(device->context, &attr);
	if (!rule->matcher)
		goto refused;
	*call = HM_CREATE_ACTION;
	rule->action = mlx5->mlx5dv_create_flow_action_modify_header(device->context, sizeof(command), command,
								     MLX5DV_FLOW_TABLE_TYPE_RDMA_TX);
	if (!rule->action)
		goto refused;
	*call = HM_CREATE_FLOW;
	action.action = rule->action;
	rule->flow = mlx5->mlx5dv_create_flow(rule->matcher, &value.parameters, 1, &action);
	if (!rule->flow)
		goto refused;
	*out = rule;
	return 0;

refused:
	error = errno ? errno : EIO;
	hm_rule_detach(rule);
	return error;
}

int hm_rule_detach(struct hm_rule *rule)
{
	int error = 0;

	if (!rule)
		return 0;
	/* What a flow uses cannot be destroyed before it. */
	if (rule->flow)
		error = ibv_destroy_flow(rule->flow);
	if (!error && rule->action)
		error = ibv_destroy_flow_action(rule->action);
	if (!error && rule->matcher)
		error = rule->mlx5->mlx5dv_destroy_flow_matcher(rule->matcher);
	free(rule);
	return error > 0 ? error : -error;
}
