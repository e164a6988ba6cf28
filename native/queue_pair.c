/* See verbs.h. */
#include "verbs.h"
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct hm_pd {
	const struct hm_verbs *verbs;
	struct ibv_pd *pd;
};

struct hm_mr {
	const struct hm_verbs *verbs;
	struct ibv_mr *mr;
};

struct hm_cq {
	const struct hm_verbs *verbs;
	struct ibv_cq *cq;
};

struct hm_qp {
	const struct hm_verbs *verbs;
	struct ibv_qp *qp;
	/* What is posted, cleared once: most of it stays 0, and clearing it anew would be a part of every sample. */
	struct ibv_sge element;
	struct ibv_send_wr write;
};

/* Makes a handle around what `create` gives; errno where it gives nothing. */
#define MAKE(type, field, from, create)                   \
	struct type *made = calloc(1, sizeof(*made));      \
	int error;                                         \
                                                           \
	*out = NULL;                                       \
	if (!made)                                         \
		return ENOMEM;                             \
	made->verbs = (from)->verbs;                       \
	errno = 0;                                         \
	made->field = create;                              \
	if (!made->field) {                                \
		error = errno ? errno : EIO;               \
		free(made);                                \
		return error;                              \
	}                                                  \
	*out = made;                                       \
	return 0

int hm_pd_alloc(const struct hm_device *device, struct hm_pd **out)
{
	MAKE(hm_pd, pd, device, device->verbs->ibv_alloc_pd(device->context));
}

void hm_pd_free(struct hm_pd *pd)
{
	pd->verbs->ibv_dealloc_pd(pd->pd);
	free(pd);
}

int hm_mr_register(const struct hm_pd *pd, void *address, size_t length, struct hm_mr **out)
{
	/* No relaxed ordering: the last byte of a write must be the last to be there. */
	MAKE(hm_mr, mr, pd, pd->verbs->ibv_reg_mr(pd->pd, address, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
}

void hm_mr_deregister(struct hm_mr *mr)
{
	mr->verbs->ibv_dereg_mr(mr->mr);
	free(mr);
}

uint32_t hm_mr_rkey(const struct hm_mr *mr)
{
	return mr->mr->rkey;
}

int hm_cq_create(const struct hm_device *device, int depth, struct hm_cq **out)
{
	MAKE(hm_cq, cq, device, device->verbs->ibv_create_cq(device->context, depth, NULL, NULL, 0));
}

void hm_cq_destroy(struct hm_cq *cq)
{
	cq->verbs->ibv_destroy_cq(cq->cq);
	free(cq);
}

int hm_cq_poll(const struct hm_cq *cq, struct hm_completion *out)
{
	struct ibv_wc wc;
	int count = ibv_poll_cq(cq->cq, 1, &wc);

	if (count <= 0)
		return count;
	out->id = wc.wr_id;
	out->status = (uint32_t)wc.status;
	out->vendor_err = wc.vendor_err;
	out->text = wc.status == IBV_WC_SUCCESS ? "" : cq->verbs->ibv_wc_status_str(wc.status);
	return 1;
}

static struct ibv_qp *create(const struct hm_pd *pd, const struct hm_cq *cq, uint32_t depth, uint32_t *inline_bytes)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq->cq,
		.recv_cq = cq->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = *inline_bytes },
	};
	struct ibv_qp *qp = pd->verbs->ibv_create_qp(pd->pd, &attr);

	if (!qp && *inline_bytes) {
		attr.cap.max_inline_data = 0;
		qp = pd->verbs->ibv_create_qp(pd->pd, &attr);
	}
	*inline_bytes = qp ? attr.cap.max_inline_data : 0;
	return qp;
}

int hm_qp_create(const struct hm_pd *pd, const struct hm_cq *cq, uint32_t depth, uint32_t *inline_bytes,
		 struct hm_qp **out)
{
	MAKE(hm_qp, qp, pd, create(pd, cq, depth, inline_bytes));
}

void hm_qp_destroy(struct hm_qp *qp)
{
	qp->verbs->ibv_destroy_qp(qp->qp);
	free(qp);
}

uint32_t hm_qp_number(const struct hm_qp *qp)
{
	return qp->qp->qp_num;
}

static int modify(const struct hm_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int error = qp->verbs->ibv_modify_qp(qp->qp, attr, mask);

	return error > 0 ? error : -error;
}

int hm_qp_to_init(const struct hm_qp *qp, uint8_t port)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	return modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int mtu_code(uint32_t bytes, enum ibv_mtu *out)
{
	switch (bytes) {
	case 256: *out = IBV_MTU_256; return 0;
	case 512: *out = IBV_MTU_512; return 0;
	case 1024: *out = IBV_MTU_1024; return 0;
	case 2048: *out = IBV_MTU_2048; return 0;
	case 4096: *out = IBV_MTU_4096; return 0;
	default: return EINVAL;
	}
}

int hm_qp_to_rtr(const struct hm_qp *qp, const struct hm_path *path)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = path->qp_number,
		.rq_psn = path->packet_number,
		/* RDMA reads are not used; a NIC may refuse none at all. */
		.max_dest_rd_atomic = 1,
		/* 0.64 ms (IBTA table 45). Nothing is received, so it is never waited. */
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = path->port,
			.grh = { .flow_label = path->flow_label, .sgid_index = path->gid_index,
				 .hop_limit = path->hop_limit, .traffic_class = path->traffic_class },
		},
	};

	memcpy(attr.ah_attr.grh.dgid.raw, path->gid, sizeof(attr.ah_attr.grh.dgid.raw));
	if (mtu_code(path->mtu, &attr.path_mtu))
		return EINVAL;
	return modify(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int hm_qp_to_rts(const struct hm_qp *qp, uint32_t packet_number, uint8_t timeout, uint8_t retries)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = packet_number,
		.timeout = timeout,
		.retry_cnt = retries,
		.rnr_retry = 0,
		.max_rd_atomic = 1,
	};

	return modify(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					 IBV_QP_MAX_QP_RD_ATOMIC);
}

int hm_qp_flow_label(const struct hm_qp *qp, uint32_t *out)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int error;

	memset(&attr, 0, sizeof(attr));
	error = qp->verbs->ibv_query_qp(qp->qp, &attr, IBV_QP_AV, &init);
	if (error)
		return error > 0 ? error : -error;
	*out = attr.ah_attr.grh.flow_label;
	return 0;
}

int hm_qp_write(struct hm_qp *qp, uint64_t id, const void *from, uint32_t length, const struct hm_mr *mr, uint64_t to,
		uint32_t rkey, int in_itself)
{
	struct ibv_send_wr *refused, *write = &qp->write;
	int error;

	qp->element.addr = (uintptr_t)from;
	qp->element.length = length;
	qp->element.lkey = mr->mr->lkey;
	write->wr_id = id;
	write->sg_list = &qp->element;
	write->num_sge = 1;
	write->opcode = IBV_WR_RDMA_WRITE;
	write->send_flags = IBV_SEND_SIGNALED | (in_itself ? IBV_SEND_INLINE : 0);
	write->wr.rdma.remote_addr = to;
	write->wr.rdma.rkey = rkey;
	error = ibv_post_send(qp->qp, write, &refused);
	return error > 0 ? error : -error;
}
