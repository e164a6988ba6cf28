/* What the files of this layer share: libibverbs, loaded, and a device of it. */
#ifndef HAIRPIN_MESH_INTERNAL_H
#define HAIRPIN_MESH_INTERNAL_H

#include <infiniband/verbs.h>

/* Macros in the headers that want the library linked; the symbols behind them are looked up. */
#undef ibv_query_port
#undef ibv_reg_mr

/* The functions of libibverbs.so.1 that are used: return type, name, arguments. */
#define VERBS_FUNCTIONS(F)                                                               \
	F(struct ibv_device **, ibv_get_device_list, (int *))                            \
	F(void, ibv_free_device_list, (struct ibv_device **))                            \
	F(const char *, ibv_get_device_name, (struct ibv_device *))                      \
	F(struct ibv_context *, ibv_open_device, (struct ibv_device *))                  \
	F(int, ibv_close_device, (struct ibv_context *))                                 \
	F(int, ibv_query_port, (struct ibv_context *, uint8_t, struct ibv_port_attr *))  \
	F(int, ibv_get_async_event, (struct ibv_context *, struct ibv_async_event *))    \
	F(void, ibv_ack_async_event, (struct ibv_async_event *))                         \
	F(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *))                         \
	F(int, ibv_dealloc_pd, (struct ibv_pd *))                                        \
	F(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int))           \
	F(int, ibv_dereg_mr, (struct ibv_mr *))                                          \
	F(struct ibv_cq *, ibv_create_cq,                                                \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))           \
	F(int, ibv_destroy_cq, (struct ibv_cq *))                                        \
	F(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *))  \
	F(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))              \
	F(int, ibv_query_qp,                                                             \
	  (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))       \
	F(int, ibv_destroy_qp, (struct ibv_qp *))                                        \
	F(const char *, ibv_wc_status_str, (enum ibv_wc_status))

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
