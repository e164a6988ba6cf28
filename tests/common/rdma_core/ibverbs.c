/* A stand-in for libibverbs.so.1: README.md. */
#define _GNU_SOURCE
#include "record.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#undef ibv_query_port
#undef ibv_reg_mr

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

/* Queue pairs of this process write into each other's memory at once; a write is complete when it was posted. */
enum { QUEUE_PAIRS = 8, COMPLETIONS = 64 };

struct queue {
	struct ibv_cq cq;
	struct ibv_wc done[COMPLETIONS];
	unsigned first, count;
};

static struct ibv_qp pairs[QUEUE_PAIRS];
static int connected[QUEUE_PAIRS]; /* to which, by number; 0 for none */

/* What refused() says of a call that is made very often, asked once. */
static int refused_always(const char *call, int *known)
{
	if (*known < 0)
		*known = refused(call);
	return *known;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	static int of_post = -1, of_write = -1;
	struct queue *queue = (struct queue *)qp->send_cq;
	struct ibv_wc *wc = &queue->done[(queue->first + queue->count) % COMPLETIONS];
	int error = refused_always("post_send", &of_post);

	if (error || queue->count == COMPLETIONS) {
		*bad = wr;
		return error ? error : ENOMEM;
	}
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = wr->wr_id;
	wc->qp_num = qp->qp_num;
	/* A peer that is not there does not answer. */
	wc->status = refused_always("write", &of_write) ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS;
	wc->vendor_err = wc->status ? 0x81 : 0;
	if (!wc->status && connected[qp->qp_num])
		memcpy((void *)(uintptr_t)wr->wr.rdma.remote_addr, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
	queue->count++;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	struct queue *queue = (struct queue *)cq;

	if (!queue->count || most < 1)
		return 0;
	*wc = queue->done[queue->first];
	queue->first = (queue->first + 1) % COMPLETIONS;
	queue->count--;
	return 1;
}

/* How long a write and its completion take here with nothing around them, for benches/probe.rs. */
static void bare(long count)
{
	static struct queue queue;
	static char bytes[4];
	struct ibv_qp qp = { .send_cq = &queue.cq, .qp_num = 1 };
	struct ibv_sge place = { .addr = (uintptr_t)(bytes + 2), .length = 2 };
	struct ibv_send_wr wr = { .sg_list = &place, .num_sge = 1, .wr = { .rdma = { .remote_addr = (uintptr_t)bytes } } }, *bad;
	struct timespec before, after;
	struct ibv_wc wc;

	connected[1] = 1;
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (long i = 0; i < count; i++) {
		post_send(&qp, &wr, &bad);
		while (!poll_cq(&queue.cq, 1, &wc))
			;
		/* It is another write each time. */
		__asm__ volatile("" ::: "memory");
	}
	clock_gettime(CLOCK_MONOTONIC, &after);
	connected[1] = 0;
	record("bare %.2f ns\n", ((after.tv_sec - before.tv_sec) * 1e9 + after.tv_nsec - before.tv_nsec) / count);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	static struct ibv_pd pd;

	pd.context = context;
	return (errno = refused("alloc_pd")) ? NULL : &pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	struct ibv_mr *mr;

	record("reg_mr %zu bytes access %d\n", length, access);
	if ((errno = refused("reg_mr")))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	mr->context = pd->context;
	mr->addr = address;
	mr->length = length;
	mr->lkey = 1;
	mr->rkey = 2;
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	record("dereg_mr\n");
	free(mr);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int depth, void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	struct queue *queue;

	(void)cq_context, (void)channel, (void)vector;
	record("create_cq depth %d\n", depth);
	if ((errno = refused("create_cq")))
		return NULL;
	queue = calloc(1, sizeof(*queue));
	queue->cq.context = context;
	return &queue->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	record("destroy_cq\n");
	free(cq);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static uint32_t last;
	struct ibv_qp *qp;

	record("create_qp type %d send %u receive %u inline %u\n", attr->qp_type, attr->cap.max_send_wr, attr->cap.max_recv_wr,
	       attr->cap.max_inline_data);
	if ((errno = refused("create_qp")) || last + 1 == QUEUE_PAIRS)
		return NULL;
	qp = &pairs[++last];
	qp->context = pd->context;
	qp->qp_num = last;
	qp->send_cq = attr->send_cq;
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	static const char *const names[] = { [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR", [IBV_QPS_RTS] = "RTS" };
	char call[32];

	record("modify_qp %s mask %#x port %u access %u mtu %d peer %u rq_psn %u sq_psn %u dest_rd %u rd %u rnr_timer %u "
	       "timeout %u retry %u rnr %u global %u gid_index %u label %u hops %u class %u\n",
	       names[attr->qp_state], mask, mask & IBV_QP_PORT ? attr->port_num : attr->ah_attr.port_num, attr->qp_access_flags,
	       attr->path_mtu, attr->dest_qp_num, attr->rq_psn, attr->sq_psn, attr->max_dest_rd_atomic, attr->max_rd_atomic,
	       attr->min_rnr_timer, attr->timeout, attr->retry_cnt, attr->rnr_retry, attr->ah_attr.is_global,
	       attr->ah_attr.grh.sgid_index, attr->ah_attr.grh.flow_label, attr->ah_attr.grh.hop_limit,
	       attr->ah_attr.grh.traffic_class);
	snprintf(call, sizeof(call), "modify_qp_%s", names[attr->qp_state]);
	if (mask & IBV_QP_DEST_QPN)
		connected[qp->qp_num] = (int)attr->dest_qp_num;
	return refused(call);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	(void)qp, (void)mask, (void)init;
	attr->ah_attr.grh.flow_label = 16383;
	return refused("query_qp");
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	record("destroy_qp %u\n", qp->qp_num);
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "another status";
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
	opened.context.ops.post_send = post_send;
	opened.context.ops.poll_cq = poll_cq;
	/* For writing, too: then there is no end of it. */
	opened.context.async_fd = open(getenv("EVENTS"), O_RDWR | O_CLOEXEC);
	record("open_device %s\n", device->name);
	if (getenv("BARE"))
		bare(atol(getenv("BARE")));
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
