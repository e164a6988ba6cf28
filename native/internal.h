/* What the files of this layer share: libibverbs, loaded, and a device of it. */
#ifndef HAIRPIN_MESH_INTERNAL_H
#define HAIRPIN_MESH_INTERNAL_H

#include <infiniband/verbs.h>

/* A macro in the headers that wants the library linked; the symbol behind it is looked up. */
#undef ibv_query_port

/* The functions of libibverbs.so.1 that are used: return type, name, arguments. */
#define VERBS_FUNCTIONS(F)                                                               \
	F(struct ibv_device **, ibv_get_device_list, (int *))                            \
	F(void, ibv_free_device_list, (struct ibv_device **))                            \
	F(const char *, ibv_get_device_name, (struct ibv_device *))                      \
	F(struct ibv_context *, ibv_open_device, (struct ibv_device *))                  \
	F(int, ibv_close_device, (struct ibv_context *))                                 \
	F(int, ibv_query_port, (struct ibv_context *, uint8_t, struct ibv_port_attr *))  \
	F(int, ibv_get_async_event, (struct ibv_context *, struct ibv_async_event *))    \
	F(void, ibv_ack_async_event, (struct ibv_async_event *))

struct hm_verbs {
	void *library;
#define POINTER(result, name, arguments) result(*name) arguments;
	VERBS_FUNCTIONS(POINTER)
#undef POINTER
};

struct hm_device {
	const struct hm_verbs *verbs;
	struct ibv_context *context;
};

#endif
