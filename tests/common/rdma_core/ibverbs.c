/* A stand-in for libibverbs.so.1: README.md. */
#define _GNU_SOURCE
#include "record.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#undef ibv_query_port

static struct verbs_context opened;

static int destroy_flow(struct ibv_flow *flow)
{
	record("destroy_flow %u\n", flow->handle);
	return refused("destroy_flow");
}

static int destroy_action(struct ibv_flow_action *action)
{
	record("destroy_flow_action %s\n", action->context == &opened.context ? "of the device" : "of another");
	return refused("destroy_flow_action");
}

struct ibv_device **ibv_get_device_list(int *count)
{
	static struct ibv_device devices[4], *list[5];
	const char *names = getenv("DEVICES"), *present = getenv("PRESENT");
	int n = 0;

	if ((errno = refused("get_device_list")))
		return NULL;
	if (!present || !access(present, F_OK))
		while (names && n < 4 && sscanf(names, "%63s", devices[n].name) == 1) {
			names = strchr(names, ' ');
			names = names ? names + 1 : NULL;
			list[n] = &devices[n];
			n++;
		}
	list[n] = NULL;
	*count = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if ((errno = refused("open_device")))
		return NULL;
	opened.sz = sizeof(opened);
	opened.ibv_destroy_flow = destroy_flow;
	opened.destroy_flow_action = destroy_action;
	opened.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	opened.context.device = device;
	/* For writing, too: then there is no end of it. */
	opened.context.async_fd = open(getenv("EVENTS"), O_RDWR | O_CLOEXEC);
	record("open_device %s\n", device->name);
	return &opened.context;
}

int ibv_close_device(struct ibv_context *context)
{
	close(context->async_fd);
	record("close_device\n");
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)context, (void)port, (void)attr;
	return EINVAL;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	uint32_t type;

	if ((errno = refused("get_async_event")))
		return -1;
	if (read(context->async_fd, &type, sizeof(type)) != sizeof(type))
		return -1;
	event->event_type = type;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	record("ack_async_event %d\n", event->event_type);
}
