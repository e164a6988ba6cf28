/* See verbs.h. */
#include "verbs.h"
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hm_verbs_load(struct hm_verbs **out, char *why, size_t why_size)
{
	struct hm_verbs *verbs = calloc(1, sizeof(*verbs));
	const char *missing;

	*out = NULL;
	if (!verbs) {
		snprintf(why, why_size, "out of memory");
		return ENOMEM;
	}
	verbs->library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!verbs->library) {
		const char *error = dlerror();

		snprintf(why, why_size, "%s", error ? error : "libibverbs.so.1 cannot be loaded");
		free(verbs);
		return ENOENT;
	}
	/* POSIX: a function's address may be written through a pointer to void pointer. */
#define LOOK_UP(result, name, arguments)                              \
	*(void **)&verbs->name = dlsym(verbs->library, missing = #name); \
	if (!verbs->name)                                              \
		goto incomplete;
	VERBS_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	*out = verbs;
	return 0;

incomplete:
	snprintf(why, why_size, "libibverbs.so.1 has no %s", missing);
	hm_verbs_unload(verbs);
	return ENOSYS;
}

void hm_verbs_unload(struct hm_verbs *verbs)
{
	if (!verbs)
		return;
	/*
	 * The library stays mapped: providers that it loaded (libmlx5, librxe) register themselves
	 * with it and with atexit, and are not made to be unloaded. dlclose would only drop a count.
	 */
	free(verbs);
}

int hm_device_open(const struct hm_verbs *verbs, const char *name, struct hm_device **out)
{
	struct hm_device *device = calloc(1, sizeof(*device));
	struct ibv_device **list;
	int count = 0, error = ENODEV;

	*out = NULL;
	if (!device)
		return ENOMEM;
	errno = 0;
	list = verbs->ibv_get_device_list(&count);
	if (!list) {
		error = errno ? errno : ENOSYS;
		free(device);
		return error;
	}
	for (int i = 0; i < count; i++) {
		const char *this = verbs->ibv_get_device_name(list[i]);

		if (!this || strcmp(this, name))
			continue;
		errno = 0;
		device->context = verbs->ibv_open_device(list[i]);
		error = device->context ? 0 : (errno ? errno : EIO);
		break;
	}
	verbs->ibv_free_device_list(list);
	if (error) {
		free(device);
		return error;
	}
	device->verbs = verbs;
	*out = device;
	return 0;
}

void hm_device_close(struct hm_device *device)
{
	if (!device)
		return;
	device->verbs->ibv_close_device(device->context);
	free(device);
}

/* enum ibv_mtu is 1 for 256 up to 5 for 4096 bytes. */
static uint32_t mtu_bytes(int code)
{
	return code >= IBV_MTU_256 && code <= IBV_MTU_4096 ? UINT32_C(128) << code : 0;
}

int hm_device_query_port(const struct hm_device *device, uint8_t port, struct hm_port *out)
{
	/*
	 * struct ibv_port_attr grew (52 bytes up to rdma-core 49, 56 after it). The exported symbol
	 * fills the oldest layout, the start of every later one; the room around it keeps a library
	 * newer than the headers from writing past the end.
	 */
	union {
		struct ibv_port_attr attr;
		unsigned char room[512];
	} answer;
	int error;

	memset(&answer, 0, sizeof(answer));
	error = device->verbs->ibv_query_port(device->context, port, &answer.attr);
	if (error)
		return error > 0 ? error : -error;
	out->active_mtu = mtu_bytes((int)answer.attr.active_mtu);
	out->max_mtu = mtu_bytes((int)answer.attr.max_mtu);
	out->state = (uint8_t)answer.attr.state;
	return 0;
}

int hm_device_events(const struct hm_device *device)
{
	int fd = device->context->async_fd;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return -1;
	return fd;
}

int hm_device_next_event(const struct hm_device *device, uint32_t *type)
{
	struct ibv_async_event event;

	errno = 0;
	if (device->verbs->ibv_get_async_event(device->context, &event))
		return errno ? errno : EIO;
	*type = (uint32_t)event.event_type;
	/* Nothing of a queue pair or the like is kept here that an acknowledgement could wait for. */
	device->verbs->ibv_ack_async_event(&event);
	return 0;
}
