/* A stand-in for libmlx5.so.1: README.md. The layouts are written out, not taken from mlx5dv.h, as the ring's are. */
#define _GNU_SOURCE
#include "record.h"

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct match {
	size_t size;
	uint8_t bytes[];
};

struct matcher_attr {
	uint32_t type, flags;
	uint16_t priority;
	uint8_t criteria;
	struct match *mask;
	uint64_t comp_mask;
	uint32_t ft_type;
};

struct action {
	uint32_t type, padding;
	void *action;
};

/* What the program is given pointers to: the inline functions of verbs.h look for their device. */
static struct ibv_flow flow = { .handle = 30 };
static struct ibv_flow_action action;

static const char *hex(const void *bytes, size_t length)
{
	static char text[2 * 0x400 + 1];

	if (length > 0x400)
		return "too long";
	for (size_t i = 0; i < length; i++)
		sprintf(text + 2 * i, "%02x", ((const uint8_t *)bytes)[i]);
	text[2 * length] = 0;
	return text;
}

bool mlx5dv_is_supported(void *device)
{
	(void)device;
	return !refused("is_supported");
}

void *mlx5dv_create_flow_matcher(void *context, struct matcher_attr *attr)
{
	(void)context;
	record("create_flow_matcher type %u flags %u priority %u criteria %u comp_mask %llu ft_type %u mask %zu %s\n", attr->type,
	       attr->flags, attr->priority, attr->criteria, (unsigned long long)attr->comp_mask, attr->ft_type, attr->mask->size,
	       hex(attr->mask->bytes, attr->mask->size));
	return (errno = refused("create_flow_matcher")) ? NULL : (void *)0x10;
}

int mlx5dv_destroy_flow_matcher(void *matcher)
{
	record("destroy_flow_matcher %s\n", matcher == (void *)0x10 ? "the matcher" : "another");
	return refused("destroy_flow_matcher");
}

void *mlx5dv_create_flow_action_modify_header(void *context, size_t size, uint64_t *commands, uint32_t ft_type)
{
	action.context = flow.context = context;
	record("create_flow_action_modify_header ft_type %u commands %zu %s\n", ft_type, size, hex(commands, size));
	return (errno = refused("create_flow_action_modify_header")) ? NULL : &action;
}

void *mlx5dv_create_flow(void *matcher, struct match *value, size_t count, struct action *actions)
{
	record("create_flow %s value %zu %s actions %zu type %u padding %u %s\n", matcher == (void *)0x10 ? "the matcher" : "another",
	       value->size, hex(value->bytes, value->size), count, actions->type, actions->padding,
	       actions->action == &action ? "the action" : "another");
	return (errno = refused("create_flow")) ? NULL : &flow;
}
