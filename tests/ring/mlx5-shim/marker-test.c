/*
 * Plays the source marker against libmlx5.so.1 (the stand-in, in the ring), as the real program does: looked up
 * at run time, layouts from the system's mlx5dv.h.
 *
 *   marker-test DEVICE hold           installs the rule, prints "attached", waits; ends 0 at end of input (rule
 *                                     destroyed), 3 when the device went away, 1 with the errno's name otherwise
 *   marker-test DEVICE unit           the same as a systemd unit of Type=notify, without an end of input
 *   marker-test DEVICE deaf           the same, but does not listen to the device and closes nothing
 *   marker-test DEVICE close          installs the rule, closes the device and waits
 *   marker-test DEVICE mutate         changes every argument in turn; each change must be refused, with the errno
 *                                     that belongs to it, and the right call taken afterwards
 *   marker-test DEVICE send GID SIZE  an RC queue pair with flow label 16383 writes SIZE bytes to an address
 *                                     where nobody answers: packets of the RDMA device for others to look at
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#undef mlx5dv_create_flow

#define MATCH_SIZE 0x180
#define UDP_SPORT 28

struct action16 {		/* struct mlx5dv_flow_action_attr of the symbol version MLX5_1.6 */
	uint32_t type, padding;
	void *action;
};

static struct mlx5dv_flow_matcher *(*create_matcher)(struct ibv_context *, struct mlx5dv_flow_matcher_attr *);
static int (*destroy_matcher)(struct mlx5dv_flow_matcher *);
static struct ibv_flow_action *(*create_action)(struct ibv_context *, size_t, uint64_t *, uint32_t);
static struct ibv_flow *(*create_flow)(struct mlx5dv_flow_matcher *, struct mlx5dv_flow_match_parameters *, size_t,
				       struct action16 *);
static bool (*is_supported)(struct ibv_device *);

static void die(const char *what)
{
	fprintf(stderr, "marker-test: %s: %s\n", what, strerrorname_np(errno) ? strerrorname_np(errno) : "?");
	exit(1);
}

static void load(void)
{
	void *h = dlopen("libmlx5.so.1", RTLD_NOW);

	if (!h) {
		fprintf(stderr, "marker-test: %s\n", dlerror());
		exit(1);
	}
	*(void **)&create_matcher = dlvsym(h, "mlx5dv_create_flow_matcher", "MLX5_1.6");
	*(void **)&destroy_matcher = dlvsym(h, "mlx5dv_destroy_flow_matcher", "MLX5_1.6");
	*(void **)&create_flow = dlvsym(h, "mlx5dv_create_flow", "MLX5_1.6");
	*(void **)&create_action = dlvsym(h, "mlx5dv_create_flow_action_modify_header", "MLX5_1.7");
	*(void **)&is_supported = dlvsym(h, "mlx5dv_is_supported", "MLX5_1.8");
	if (!create_matcher || !destroy_matcher || !create_flow || !create_action || !is_supported) {
		fprintf(stderr, "marker-test: a symbol is missing\n");
		exit(1);
	}
}

/* All arguments of the three calls; room behind the match buffers for sizes that are too large. */
struct arguments {
	struct mlx5dv_flow_matcher_attr attr;
	struct { size_t size; uint8_t bytes[0x400]; } mask, value;
	size_t commands_size;
	uint8_t commands[64];
	uint32_t action_table;
	size_t actions;
	struct action16 action[2];
	bool foreign;		/* the action comes from another context */
};

static void right(struct arguments *a)
{
	static const uint8_t command[8] = { 0x10, 0x03, 0x00, 0x10, 0x00, 0x00, 0x88, 0xb5 };

	memset(a, 0, sizeof(*a));
	a->mask.size = a->value.size = MATCH_SIZE;
	memset(a->mask.bytes + UDP_SPORT, 0xff, 2);
	memset(a->value.bytes + UDP_SPORT, 0xff, 2);	/* 65535 */
	a->attr = (struct mlx5dv_flow_matcher_attr){
		.type = IBV_FLOW_ATTR_NORMAL,
		.match_criteria_enable = 1,
		.match_mask = (void *)&a->mask,
		.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE,
		.ft_type = MLX5DV_FLOW_TABLE_TYPE_RDMA_TX,
	};
	a->commands_size = sizeof(command);
	memcpy(a->commands, command, sizeof(command));
	a->action_table = MLX5DV_FLOW_TABLE_TYPE_RDMA_TX;
	a->actions = 1;
	a->action[0].type = a->action[1].type = MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION;
}

struct marker {
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow_action *action;
	struct ibv_flow *flow;
};

/* 0, or the errno of the call that was refused; what was made before stays in `m`. */
static int install(struct ibv_context *context, struct ibv_context *other, struct arguments *a, struct marker *m)
{
	uint64_t commands[8];

	memset(m, 0, sizeof(*m));
	a->attr.match_mask = a->attr.match_mask ? (void *)&a->mask : NULL;
	errno = 0;
	m->matcher = create_matcher(context, &a->attr);
	if (!m->matcher)
		return errno;
	memcpy(commands, a->commands, sizeof(commands));
	m->action = create_action(a->foreign ? other : context, a->commands_size, commands, a->action_table);
	if (!m->action)
		return errno;
	a->action[0].action = a->action[1].action = m->action;
	m->flow = create_flow(m->matcher, (void *)&a->value, a->actions, a->action);
	return m->flow ? 0 : errno;
}

static int remove_marker(struct marker *m)
{
	int error = 0;

	if (m->flow && !error)
		error = ibv_destroy_flow(m->flow);
	if (m->action && !error)
		error = ibv_destroy_flow_action(m->action);
	if (m->matcher && !error)
		error = destroy_matcher(m->matcher);
	return error;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name)) {
			context = ibv_open_device(list[i]);
			printf("supported %d\n", is_supported(list[i]));
		}
	if (!context)
		die(name);
	ibv_free_device_list(list);
	return context;
}

/* ---- hold ---- */

/* sd_notify(3) without its library. */
static void tell_systemd(const char *text)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;
	int fd;

	if (!length || length >= sizeof(to.sun_path)) {
		fprintf(stderr, "marker-test: unit: no NOTIFY_SOCKET\n");
		exit(1);
	}
	memcpy(to.sun_path, path, length);
	if (to.sun_path[0] == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, text, strlen(text), 0, (void *)&to,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		die("NOTIFY_SOCKET");
	close(fd);
}

static int hold(struct ibv_context *context, char how)
{
	bool listens = how == 'h' || how == 'u';
	struct pollfd fds[2] = { { .fd = how == 'u' ? -1 : 0, .events = POLLIN },
				 { .fd = context->async_fd, .events = POLLIN } };
	struct ibv_async_event event;
	struct arguments a;
	struct marker m;

	right(&a);
	if (install(context, NULL, &a, &m))
		die("install");
	printf("attached\n");
	if (how == 'u')
		tell_systemd("READY=1\nSTATUS=tags\n");
	if (how == 'c') {
		if (ibv_close_device(context))
			die("close");
		printf("closed\n");
	}
	while (poll(fds, listens ? 2 : 1, -1) > 0) {
		if (fds[0].revents)
			break;
		if (!fds[1].revents)
			continue;
		if (ibv_get_async_event(context, &event))
			die("async event");
		printf("event %s\n", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
			struct ibv_device_attr attr;
			int error = ibv_query_device(context, &attr);

			printf("query %s, a new rule: %s\n", error ? strerrorname_np(error) : "works",
			       install(context, NULL, &a, &m) ? strerrorname_np(errno) : "taken");
			ibv_close_device(context);
			return 3;
		}
	}
	if (!listens)
		return 0;
	if (remove_marker(&m))
		die("remove");
	return ibv_close_device(context) ? 1 : 0;
}

/* ---- mutate ---- */

static int bad, done;

static void expect(struct ibv_context *context, struct ibv_context *other, struct arguments *a, int wanted,
		   const char *what)
{
	struct marker m;
	int got = install(context, other, a, &m);

	done++;
	if (got != wanted) {
		bad++;
		printf("WRONG %s: %s, wanted %s\n", what, got ? strerrorname_np(got) : "taken", strerrorname_np(wanted));
	}
	if (remove_marker(&m)) {
		bad++;
		printf("WRONG %s: cannot clean up\n", what);
	}
	right(a);
}

static int mutate(struct ibv_context *context, struct ibv_context *other)
{
	struct marker first, second;
	struct arguments a;
	char what[64];

	right(&a);
#define EXPECT(wanted, change) do { change; expect(context, other, &a, wanted, #change); } while (0)
	EXPECT(EOPNOTSUPP, a.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT);
	EXPECT(EINVAL, a.attr.flags = 1);
	EXPECT(EINVAL, a.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS);
	EXPECT(EINVAL, a.attr.comp_mask = 0);
	EXPECT(EOPNOTSUPP, a.attr.comp_mask = 2);
	EXPECT(EOPNOTSUPP, a.attr.comp_mask = 3);
	EXPECT(EINVAL, a.attr.match_mask = NULL);
	for (int i = 0; i < 16; i++)
		EXPECT(EINVAL, a.attr.priority ^= (uint16_t)(1 << i));
	for (int i = 0; i < 8; i++)
		EXPECT(EINVAL, a.attr.match_criteria_enable ^= (uint8_t)(1 << i));
	for (uint32_t table = 0; table < 9; table++) {
		if (table == MLX5DV_FLOW_TABLE_TYPE_RDMA_TX)
			continue;
		EXPECT(EINVAL, a.attr.ft_type = table);
		EXPECT(EINVAL, a.action_table = table);
	}
	for (size_t size = 0; size <= 0x300; size++) {
		if (size == MATCH_SIZE)
			continue;
		EXPECT(EINVAL, a.mask.size = size);
		EXPECT(EINVAL, a.value.size = size);
	}
	for (int bit = 0; bit < MATCH_SIZE * 8; bit++) {
		EXPECT(EINVAL, a.mask.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8));
		EXPECT(EINVAL, a.value.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8));
	}
	for (int bit = 0; bit < 64; bit++)
		EXPECT(EINVAL, a.commands[bit / 8] ^= (uint8_t)(1 << bit % 8));
	EXPECT(EINVAL, memcpy(a.commands, "\x10\x00\x03\x10\xb5\x88\x00\x00", 8));	/* words in host order */
	for (size_t size = 0; size <= 64; size++)
		if (size != 8)
			EXPECT(EINVAL, a.commands_size = size);
	for (size_t count = 0; count <= 2; count++)
		if (count != 1)
			EXPECT(EINVAL, a.actions = count);
	for (uint32_t type = 0; type <= 7; type++)
		if (type != MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION)
			EXPECT(EINVAL, a.action[0].type = type);
	EXPECT(EOPNOTSUPP, a.action[0].type = 8);
	EXPECT(EOPNOTSUPP, a.action[0].type = UINT32_MAX);
	EXPECT(ENOENT, a.foreign = true);

	/* The right rule is taken; a second one is refused; nothing in use can be destroyed; it comes back. */
	for (int round = 0; round < 2; round++) {
		int error = install(context, other, &a, &first);

		snprintf(what, sizeof(what), "round %d", round);
		done++;
		if (error) {
			bad++;
			printf("WRONG the right rule, %s: %s\n", what, strerrorname_np(error));
			break;
		}
		error = install(context, other, &a, &second);
		done++;
		if (error != EEXIST || remove_marker(&second)) {
			bad++;
			printf("WRONG a second rule, %s: %d\n", what, error);
		}
		done++;
		if (ibv_destroy_flow_action(first.action) != EBUSY || destroy_matcher(first.matcher) != EBUSY) {
			bad++;
			printf("WRONG destroying what is in use, %s\n", what);
		}
		done++;
		if (remove_marker(&first)) {
			bad++;
			printf("WRONG removing, %s\n", what);
		}
	}
	printf("%d checks, %d wrong\n", done, bad);
	return bad ? 1 : 0;
}

/* ---- send ---- */

static int send_to(struct ibv_context *context, const char *address, size_t size)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_send_wr *bad_wr, wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 1, 1, 1, 0 } };
	union ibv_gid dgid = {}, sgid;
	uint32_t index = UINT32_MAX;
	struct ibv_port_attr port;
	struct ibv_sge sge;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	void *cq_context;
	struct ibv_wc wc;

	dgid.raw[10] = dgid.raw[11] = 0xff;
	if (inet_pton(AF_INET, address, dgid.raw + 12) != 1)
		die("address");
	if (ibv_query_port(context, 1, &port))
		die("port");
	for (uint32_t i = 0; i < (uint32_t)port.gid_tbl_len; i++)
		if (!ibv_query_gid(context, 1, (int)i, &sgid) && !memcmp(sgid.raw, dgid.raw, 12))
			index = i;
	if (index == UINT32_MAX)
		die("no IPv4 GID");
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	init.send_cq = init.recv_cq = channel ? ibv_create_cq(context, 4, NULL, channel, 0) : NULL;
	mr = pd ? ibv_reg_mr(pd, calloc(1, size), size, IBV_ACCESS_LOCAL_WRITE) : NULL;
	qp = mr && init.send_cq ? ibv_create_qp(pd, &init) : NULL;
	if (!qp)
		die("queue pair");
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = 17,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = dgid, .flow_label = 16383,
		.sgid_index = (uint8_t)index, .hop_limit = 64 } } };
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 1 };
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
	sge = (struct ibv_sge){ (uintptr_t)mr->addr, (uint32_t)size, mr->lkey };
	wr.sg_list = &sge;
	if (ibv_req_notify_cq(init.send_cq, 0) || ibv_post_send(qp, &wr, &bad_wr))
		die("send");
	if (ibv_get_cq_event(channel, &cq, &cq_context) || ibv_poll_cq(cq, 1, &wc) != 1)
		die("completion");
	printf("sent, %s\n", ibv_wc_status_str(wc.status));
	return 0;
}

int main(int argc, char **argv)
{
	struct ibv_context *context;

	if (argc < 3) {
		fprintf(stderr, "marker-test DEVICE hold|unit|deaf|close|mutate|send ADDRESS SIZE\n");
		return 2;
	}
	setlinebuf(stdout);
	load();
	context = open_device(argv[1]);
	if (!strcmp(argv[2], "hold") || !strcmp(argv[2], "unit") || !strcmp(argv[2], "deaf") || !strcmp(argv[2], "close"))
		return hold(context, argv[2][0]);
	if (!strcmp(argv[2], "mutate"))
		return mutate(context, open_device(argv[1]));
	if (!strcmp(argv[2], "send") && argc == 5)
		return send_to(context, argv[3], strtoul(argv[4], NULL, 0));
	fprintf(stderr, "marker-test: what is %s?\n", argv[2]);
	return 2;
}
