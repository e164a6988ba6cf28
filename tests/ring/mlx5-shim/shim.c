/*
 * A stand-in for libmlx5.so.1 on machines whose NIC is fakehw: TEST ONLY. README.md says what it proves.
 *
 * It takes exactly the RDMA-TX rule of the source marker, looks at every byte of it, and holds fakehw's
 * marker for as long as the rule lives. Refusals come in two kinds, said on standard error:
 *   "as mlx5"   the real library or driver refuses this, with this errno (source named at the check);
 *   "not ours"  legal on the hardware, but it is not the marker's rule; errno EINVAL.
 *
 * Layouts and constants are written out here, from the sources named, and not taken from mlx5dv.h: the
 * program under test is compiled with that header, and a check should not share its mistakes.
 * rdma-core paths: version 56.1. Kernel paths: Linux 6.12.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- the ABI of libmlx5 (providers/mlx5/mlx5dv.h) ---- */

struct mlx5dv_flow_match_parameters {
	size_t match_sz;
	uint64_t match_buf[];
};

struct mlx5dv_flow_matcher_attr {
	uint32_t type;			/* enum ibv_flow_attr_type */
	uint32_t flags;
	uint16_t priority;
	uint8_t match_criteria_enable;
	struct mlx5dv_flow_match_parameters *match_mask;
	uint64_t comp_mask;
	uint32_t ft_type;		/* enum mlx5dv_flow_table_type */
};
_Static_assert(sizeof(struct mlx5dv_flow_matcher_attr) == 40, "as on 44, 50, 56 and 65");

/* The symbol version MLX5_1.6 has this stride in every release but 60.0, 60.1, 61.0 and 62.0 (24 bytes there). */
struct action_attr {
	uint32_t type;			/* enum mlx5dv_flow_action_type */
	uint32_t padding;
	void *action;
};
_Static_assert(sizeof(struct action_attr) == 16, "stride of MLX5_1.6");

struct mlx5dv_context_attr {
	uint32_t flags;
	uint64_t comp_mask;
};

enum {
	MASK_FT_TYPE = 1 << 0,		/* MLX5DV_FLOW_MATCHER_MASK_FT_TYPE */
	FT_RDMA_TX = 4,			/* MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX, mlx5_user_ioctl_verbs.h */
	FT_LAST = FT_RDMA_TX,
	ACTION_DEST_IBV_QP = 0,		/* MLX5DV_FLOW_ACTION_..., mlx5dv.h */
	ACTION_IBV_FLOW_ACTION = 3,
	ACTION_DEFAULT_MISS = 7,	/* the last one */
	CONTEXT_FLAGS_DEVX = 1 << 0,	/* MLX5DV_CONTEXT_FLAGS_DEVX */
};

/* ---- the rule (include/linux/mlx5/mlx5_ifc.h, include/linux/mlx5/device.h) ---- */

enum {
	CRITERIA_OUTER = 1 << 0,	/* MLX5_MATCH_OUTER_HEADERS */
	/* fte_match_param up to and with misc_parameters_4: six sets of 0x200 bits */
	MATCH_SIZE = 0x180,
	/* outer_headers comes first; udp_sport follows 0xe0 bits of fte_match_set_lyr_2_4 */
	UDP_SPORT = 0xe0 / 8,
	MATCH_SIZE_MAX = 4 * 0xa0,	/* MLX5_IB_DW_MATCH_PARAM, include/uapi/rdma/mlx5_user_ioctl_cmds.h */
	PRIORITY_LAST = 15,		/* MLX5_IB_FLOW_LAST_PRIO = MLX5_BY_PASS_NUM_REGULAR_PRIOS - 1 */
	COMMAND_SIZE = 8,		/* MLX5_UN_SZ_BYTES(set_add_copy_action_in_auto) */
	ACTIONS_MAX = 8,		/* CREATE_FLOW_MAX_FLOW_ACTIONS_SUPPORTED, providers/mlx5/verbs.c */
};

/* set_action_in: action_type 4 bits (MLX5_ACTION_TYPE_SET 1), field 12 (MLX5_ACTION_IN_FIELD_OUT_ETHERTYPE 3),
 * reserved 3, offset 5, reserved 3, length 5 (bits); then 32 bits of data. Big-endian. */
static const uint8_t set_ethertype[4] = { 0x10, 0x03, 0x00, 0x10 };

/* ---- what the program holds ---- */

struct shim_context {
	struct shim_context *next;
	struct ibv_context *context;
	int cmd_fd, events;	/* descriptors of the program; events is its async_fd, one end of a socket pair */
	ino_t socket;		/* of that end: tells the context from a later one at the same address */
	int feed, async, epoll;	/* ours: the other end, the kernel's async file (-1: dead), what the thread waits for */
};

enum kind { MATCHER, ACTION, FLOW };

struct object {
	union {			/* what the program has a pointer to */
		struct ibv_flow flow;
		struct ibv_flow_action action;
	};
	struct object *next;
	enum kind kind;
	struct shim_context *owner;
	struct object *uses[2];	/* of a flow: matcher, action */
	int marker;		/* of a flow: /dev/fakehw_marker */
	uint16_t ethertype;	/* of an action */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim_context *contexts;
static struct object *objects;

static void *refuse(int error, const char *kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void *refuse(int error, const char *kind, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "mlx5-shim: refused, %s, errno %d (%s): %s\n", kind, error, strerror(error), text);
	errno = error;
	return NULL;
}
#define AS_MLX5(error, ...) refuse(error, "as mlx5", __VA_ARGS__)
#define NOT_OURS(...) refuse(EINVAL, "not ours", __VA_ARGS__)

/*
 * The rule that is asked for: MLX5_SHIM_RULE="SOURCE-PORT:ETHERTYPE" (numbers as in C), without it the
 * mesh's own. A program with other values would be right on the hardware and wrong in the ring.
 */
static void wanted_rule(unsigned *sport, unsigned *ethertype)
{
	const char *rule = getenv("MLX5_SHIM_RULE");
	char *end = NULL;

	*sport = 65535;
	*ethertype = 0x88b5;
	if (!rule)
		return;
	*sport = (unsigned)strtoul(rule, &end, 0);
	*ethertype = *end == ':' ? (unsigned)strtoul(end + 1, &end, 0) : 0;
	if (*end || !*sport || *sport > 0xffff || *ethertype < 0x600 || *ethertype > 0xffff) {
		fprintf(stderr, "mlx5-shim: MLX5_SHIM_RULE=%s is not SOURCE-PORT:ETHERTYPE\n", rule);
		abort();
	}
}

/* ---- the device ---- */

/* The netdev of port 1 of an RDMA device, when it is a fakehw port. */
static bool fakehw_port(const struct ibv_device *device, char name[64])
{
	char path[256];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", device->name);
	file = fopen(path, "re");
	if (!file)
		return false;
	found = fscanf(file, "%63s", name) == 1;
	fclose(file);
	if (!found)
		return false;
	snprintf(path, sizeof(path), "/sys/class/net/%s/fakehw", name);
	return !access(path, F_OK);
}

/* ---- events ---- */

struct event {			/* struct ib_uverbs_async_event_desc, include/uapi/rdma/ib_user_verbs.h */
	uint64_t element;
	uint32_t type, reserved;
};

static void forget(struct shim_context *owner)
{
	struct object **o = &objects;
	struct shim_context **c;

	while (*o) {
		struct object *object = *o;

		if (object->owner != owner) {
			o = &object->next;
			continue;
		}
		*o = object->next;
		if (object->kind == FLOW)
			close(object->marker);
		free(object);
	}
	for (c = &contexts; *c != owner; c = &(*c)->next)
		;
	*c = owner->next;
	close(owner->feed);
	close(owner->epoll);
	if (owner->async >= 0)
		close(owner->async);
	free(owner);
}

/* The driver re-initialised the function: what mlx5_ib_disassociate_ucontext and uverbs do to a process. */
static void device_gone(struct shim_context *c, int marker)
{
	const struct event fatal = { .type = IBV_EVENT_DEVICE_FATAL };

	epoll_ctl(c->epoll, EPOLL_CTL_DEL, marker, NULL);
	if (c->async < 0)
		return;
	/* From now on every command fails with EIO, and Soft-RoCE loses the user that it waits for. */
	dup3(marker, c->cmd_fd, O_CLOEXEC);
	close(c->async);
	c->async = -1;
	(void)!write(c->feed, &fatal, sizeof(fatal));
}

static void *watch(void *argument)
{
	struct shim_context *c = argument;
	struct epoll_event e;

	for (;;) {
		int n = epoll_wait(c->epoll, &e, 1, -1);

		if (n < 0 && errno == EINTR)
			continue;
		pthread_mutex_lock(&lock);
		if (n < 0 || e.data.fd == c->feed) {	/* ibv_close_device closed the other end */
			forget(c);
			pthread_mutex_unlock(&lock);
			return NULL;
		}
		if (e.data.fd == c->async) {
			struct event event;

			if (read(c->async, &event, sizeof(event)) == sizeof(event))
				(void)!write(c->feed, &event, sizeof(event));
			else if (errno != EAGAIN && errno != EINTR)
				epoll_ctl(c->epoll, EPOLL_CTL_DEL, c->async, NULL);
		} else {
			device_gone(c, e.data.fd);
		}
		pthread_mutex_unlock(&lock);
	}
}

/* ---- destroying: ibv_destroy_flow() and ibv_destroy_flow_action() come here through the context ---- */

static struct object *find(const void *pointer, enum kind kind, const struct ibv_context *context)
{
	struct object *o;

	for (o = objects; o; o = o->next)
		if (o == pointer && o->kind == kind && (!context || o->owner->context == context))
			return o;
	return NULL;
}

static int destroy(const void *pointer, enum kind kind)
{
	struct object *object, *o, **link;
	int error = 0;

	pthread_mutex_lock(&lock);
	object = find(pointer, kind, NULL);
	if (!object) {
		refuse(ENOENT, "as mlx5", "destroying what does not exist (any more)");
		error = ENOENT;
		goto out;
	}
	/* flow_matcher_cleanup, uverbs_free_flow_action: usecnt */
	for (o = objects; o; o = o->next)
		if (o->kind == FLOW && (o->uses[0] == object || o->uses[1] == object)) {
			refuse(EBUSY, "as mlx5", "a flow uses it");
			error = EBUSY;
			goto out;
		}
	if (kind == FLOW)
		close(object->marker);	/* leaves the epoll set by itself */
	for (link = &objects; *link != object; link = &(*link)->next)
		;
	*link = object->next;
	free(object);
out:
	pthread_mutex_unlock(&lock);
	return error;
}

static int destroy_flow(struct ibv_flow *flow)
{
	return destroy(flow, FLOW);
}

static int destroy_action(struct ibv_flow_action *action)
{
	return destroy(action, ACTION);
}

/* ---- taking over a context of Soft-RoCE ---- */

static bool is_current(const struct shim_context *c)
{
	struct stat st;

	return !fstat(c->events, &st) && st.st_ino == c->socket;
}

/* Under the lock. NULL with errno set: not one of ours (libmlx5: mlx5_get_dv_ops() finds no mlx5 device). */
static struct shim_context *take(struct ibv_context *context)
{
	struct verbs_context *verbs = verbs_get_ctx(context);
	int pair[2] = { -1, -1 }, flags, error;
	struct shim_context *c;
	sigset_t all, before;
	pthread_t thread;
	struct stat st;
	char port[64];

	for (c = contexts; c; c = c->next)
		if (c->context == context && is_current(c))
			return c;
	if (!verbs || !fakehw_port(context->device, port))
		return AS_MLX5(EOPNOTSUPP, "%s is not an mlx5 device (its netdev is no fakehw port)",
			       context->device->name);
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->context = context;
	c->cmd_fd = context->cmd_fd;
	c->events = context->async_fd;
	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	c->async = fcntl(c->events, F_DUPFD_CLOEXEC, 0);
	flags = fcntl(c->events, F_GETFL);
	/* Packets, so that one read() is one event, as from the kernel. */
	if (c->epoll < 0 || c->async < 0 || flags < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) || fstat(pair[1], &st))
		goto fail;
	c->feed = pair[0];
	c->socket = st.st_ino;
	if (fcntl(pair[1], F_SETFL, flags & O_NONBLOCK) || fcntl(c->async, F_SETFL, O_NONBLOCK) ||
	    epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->feed,
		      &(struct epoll_event){ .events = EPOLLRDHUP, .data.fd = c->feed }) ||
	    epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->async,
		      &(struct epoll_event){ .events = EPOLLIN, .data.fd = c->async }) ||
	    dup3(pair[1], c->events, O_CLOEXEC) < 0)
		goto fail;
	close(pair[1]);
	pair[1] = -1;
	sigfillset(&all);		/* signals are for the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, watch, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		errno = error;
		goto fail;
	}
	pthread_detach(thread);
	verbs->ibv_destroy_flow = destroy_flow;
	verbs->destroy_flow_action = destroy_action;
	c->next = contexts;
	contexts = c;
	return c;
fail:
	error = errno;
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0)
			close(pair[i]);
	if (c->epoll >= 0)
		close(c->epoll);
	if (c->async >= 0)
		close(c->async);
	free(c);
	return AS_MLX5(error, "cannot take over the context");
}

static struct object *new_object(struct shim_context *owner, enum kind kind)
{
	struct object *object = calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->kind = kind;
	object->owner = owner;
	object->next = objects;
	objects = object;
	return object;
}

/* ---- the library ---- */

EXPORT bool mlx5dv_is_supported(struct ibv_device *device)
{
	char port[64];

	return fakehw_port(device, port);
}

EXPORT struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	struct ibv_context *(*open_device)(struct ibv_device *);
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);

	*(void **)&open_device = verbs ? dlsym(verbs, "ibv_open_device") : NULL;
	if (!open_device)
		return NOT_OURS("there is a device, but libibverbs.so.1 is not loaded");
	if (!mlx5dv_is_supported(device))
		return AS_MLX5(EOPNOTSUPP, "%s is not an mlx5 device", device->name);
	/* mlx5_alloc_context, providers/mlx5/mlx5.c */
	if (attr->comp_mask || (attr->flags & ~(uint32_t)CONTEXT_FLAGS_DEVX))
		return AS_MLX5(EINVAL, "context attributes: flags 0x%x, comp_mask 0x%llx", attr->flags,
			       (unsigned long long)attr->comp_mask);
	return open_device(device);
}

/* The first byte at which the mask is not the marker's, or -1. */
static int wrong_mask_byte(const uint8_t *mask)
{
	for (int i = 0; i < MATCH_SIZE; i++)
		if (mask[i] != (i == UDP_SPORT || i == UDP_SPORT + 1 ? 0xff : 0))
			return i;
	return -1;
}

/* _mlx5dv_create_flow_matcher (providers/mlx5/verbs.c), MLX5_IB_METHOD_FLOW_MATCHER_CREATE (hw/mlx5/fs.c) */
static void *check_matcher(const struct mlx5dv_flow_matcher_attr *attr)
{
	const struct mlx5dv_flow_match_parameters *mask = attr->match_mask;
	int wrong;

	if (attr->comp_mask & ~(uint64_t)MASK_FT_TYPE)
		return AS_MLX5(EOPNOTSUPP, "comp_mask 0x%llx", (unsigned long long)attr->comp_mask);
	if (attr->type != IBV_FLOW_ATTR_NORMAL)
		return AS_MLX5(EOPNOTSUPP, "type %u, wanted IBV_FLOW_ATTR_NORMAL", attr->type);
	if (!mask)
		return NOT_OURS("no match_mask (the real library would crash)");
	if (!mask->match_sz || mask->match_sz > MATCH_SIZE_MAX)
		return AS_MLX5(EINVAL, "match_sz 0x%zx is not 1 to 0x%x", mask->match_sz, MATCH_SIZE_MAX);
	if (attr->flags && (attr->comp_mask & MASK_FT_TYPE))
		return AS_MLX5(EINVAL, "flags 0x%x beside ft_type (mlx5_ib_matcher_ns)", attr->flags);
	if (attr->flags)
		return NOT_OURS("flags 0x%x", attr->flags);
	if (!(attr->comp_mask & MASK_FT_TYPE))
		return NOT_OURS("comp_mask without FT_TYPE: the table would be NIC_RX");
	if (attr->ft_type > FT_LAST)
		return AS_MLX5(EINVAL, "ft_type %u (mlx5_ib_ft_type_to_namespace)", attr->ft_type);
	if (attr->ft_type != FT_RDMA_TX)
		return NOT_OURS("ft_type %u, wanted RDMA_TX (%u)", attr->ft_type, FT_RDMA_TX);
	if (attr->priority)
		return NOT_OURS("priority %u, wanted 0", attr->priority);
	if (attr->match_criteria_enable != CRITERIA_OUTER)
		return NOT_OURS("match_criteria_enable 0x%x, wanted 0x%x", attr->match_criteria_enable, CRITERIA_OUTER);
	if (mask->match_sz != MATCH_SIZE)
		return NOT_OURS("match_sz 0x%zx, wanted 0x%x", mask->match_sz, MATCH_SIZE);
	wrong = wrong_mask_byte((const uint8_t *)mask->match_buf);
	if (wrong >= 0)
		return NOT_OURS("byte %d of the mask is 0x%02x; wanted ff ff at byte %d (udp_sport), else 0", wrong,
				((const uint8_t *)mask->match_buf)[wrong], UDP_SPORT);
	return &lock;		/* not NULL */
}

EXPORT void *mlx5dv_create_flow_matcher(struct ibv_context *context, struct mlx5dv_flow_matcher_attr *attr)
{
	struct object *matcher = NULL;
	struct shim_context *c;

	pthread_mutex_lock(&lock);
	c = take(context);
	if (c && check_matcher(attr)) {
		if (c->async < 0)
			AS_MLX5(EIO, "the device went away");
		else
			matcher = new_object(c, MATCHER);
	}
	pthread_mutex_unlock(&lock);
	return matcher;
}

EXPORT int mlx5dv_destroy_flow_matcher(void *matcher)
{
	return destroy(matcher, MATCHER);
}

/* _mlx5dv_create_flow_action_modify_header, MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER */
static void *check_modify_header(size_t size, const uint64_t *actions, uint32_t ft_type, unsigned *ethertype)
{
	const uint8_t *command = (const uint8_t *)actions;
	unsigned sport;

	wanted_rule(&sport, ethertype);
	if (size < COMMAND_SIZE || size % COMMAND_SIZE || size > UINT16_MAX)
		return AS_MLX5(EINVAL, "%zu bytes of commands are not whole ones of %u", size, COMMAND_SIZE);
	if (ft_type > FT_LAST)
		return AS_MLX5(EINVAL, "ft_type %u (mlx5_ib_ft_type_to_namespace)", ft_type);
	if (ft_type != FT_RDMA_TX)
		return NOT_OURS("ft_type %u, wanted RDMA_TX (%u)", ft_type, FT_RDMA_TX);
	if (size != COMMAND_SIZE)
		return NOT_OURS("%zu commands, wanted one", size / COMMAND_SIZE);
	if (memcmp(command, set_ethertype, sizeof(set_ethertype)))
		return NOT_OURS("the command begins %02x%02x%02x%02x, wanted 10030010 (set OUT_ETHERTYPE, 16 bits)",
				command[0], command[1], command[2], command[3]);
	if (command[4] || command[5] || command[6] != *ethertype >> 8 || command[7] != (*ethertype & 0xff))
		return NOT_OURS("the command's data is %02x%02x%02x%02x, wanted %08x", command[4], command[5], command[6],
				command[7], *ethertype);
	return &lock;
}

EXPORT struct ibv_flow_action *mlx5dv_create_flow_action_modify_header(struct ibv_context *context, size_t size,
								       uint64_t actions[], uint32_t ft_type)
{
	struct object *action = NULL;
	struct shim_context *c;
	unsigned ethertype;

	pthread_mutex_lock(&lock);
	c = take(context);
	if (c && check_modify_header(size, actions, ft_type, &ethertype)) {
		if (c->async < 0)
			AS_MLX5(EIO, "the device went away");
		else
			action = new_object(c, ACTION);
	}
	if (action) {
		action->action.context = context;
		action->ethertype = (uint16_t)ethertype;
	}
	pthread_mutex_unlock(&lock);
	return action ? &action->action : NULL;
}

/* _mlx5dv_create_flow, MLX5_IB_METHOD_CREATE_FLOW, mlx5_add_flow_rules */
static void *check_flow(const struct object *matcher, const struct mlx5dv_flow_match_parameters *value, size_t count,
			const struct action_attr *actions, unsigned *sport)
{
	const uint8_t *bytes = value ? (const uint8_t *)value->match_buf : NULL;
	unsigned ethertype, got;

	wanted_rule(sport, &ethertype);
	if (!value || (count && !actions))
		return NOT_OURS("no value or no actions (the real library would crash)");
	for (size_t i = 0; i < count; i++)
		if (actions[i].type > ACTION_DEFAULT_MISS)
			return AS_MLX5(EOPNOTSUPP, "action %zu has type %u", i, actions[i].type);
	if (!value->match_sz || value->match_sz > MATCH_SIZE_MAX)
		return AS_MLX5(EINVAL, "match_sz 0x%zx is not 1 to 0x%x", value->match_sz, MATCH_SIZE_MAX);
	/* More than one is not safe on libmlx5 60.0, 60.1, 61.0 and 62.0, whose stride is another. */
	if (count != 1)
		return NOT_OURS("%zu actions, wanted one", count);
	if (actions[0].type != ACTION_IBV_FLOW_ACTION)
		return NOT_OURS("the action has type %u, wanted IBV_FLOW_ACTION (%u)", actions[0].type,
				ACTION_IBV_FLOW_ACTION);
	if (!find(actions[0].action, ACTION, matcher->owner->context))
		return AS_MLX5(ENOENT, "the action does not exist in this context");
	if (value->match_sz != MATCH_SIZE)
		return NOT_OURS("match_sz 0x%zx, wanted 0x%x", value->match_sz, MATCH_SIZE);
	for (int i = 0; i < MATCH_SIZE; i++)
		if (bytes[i] && i != UDP_SPORT && i != UDP_SPORT + 1)
			return AS_MLX5(EINVAL, "byte %d of the value is 0x%02x outside the mask (check_valid_spec)", i,
				       bytes[i]);
	got = (unsigned)bytes[UDP_SPORT] << 8 | bytes[UDP_SPORT + 1];
	if (got != *sport)
		return NOT_OURS("the value's UDP source port is %u, wanted %u", got, *sport);
	return &lock;
}

/* Puts the rule into the fake hardware. -1 with errno set as the kernel would. */
static int hold_marker(struct shim_context *c, unsigned sport, unsigned ethertype)
{
	char port[64], rule[128];
	int marker, error;

	if (!fakehw_port(c->context->device, port)) {
		AS_MLX5(EIO, "the device went away");
		return -1;
	}
	marker = open("/dev/fakehw_marker", O_WRONLY | O_CLOEXEC);
	if (marker < 0) {
		AS_MLX5(errno, "/dev/fakehw_marker");
		return -1;
	}
	snprintf(rule, sizeof(rule), "%s %u 0x%x", port, sport, ethertype);
	if (write(marker, rule, strlen(rule)) < 0 ||
	    epoll_ctl(c->epoll, EPOLL_CTL_ADD, marker, &(struct epoll_event){ .data.fd = marker })) {
		error = errno;
		close(marker);
		AS_MLX5(error, "the driver does not take \"%s\"", rule);
		return -1;
	}
	return marker;
}

EXPORT struct ibv_flow *mlx5dv_create_flow(void *matcher_pointer, struct mlx5dv_flow_match_parameters *value,
					   size_t count, struct action_attr actions[])
{
	struct object *matcher, *flow = NULL;
	unsigned sport;
	int marker;

	pthread_mutex_lock(&lock);
	matcher = find(matcher_pointer, MATCHER, NULL);
	if (!matcher) {
		AS_MLX5(ENOENT, "the matcher does not exist (the real library would crash)");
		goto out;
	}
	if (matcher->owner->async < 0) {
		AS_MLX5(EIO, "the device went away");
		goto out;
	}
	if (!check_flow(matcher, value, count, actions, &sport))
		goto out;
	marker = hold_marker(matcher->owner, sport, ((struct object *)actions[0].action)->ethertype);
	if (marker < 0)
		goto out;
	flow = new_object(matcher->owner, FLOW);
	if (!flow) {
		close(marker);
		goto out;
	}
	flow->flow.context = matcher->owner->context;
	flow->uses[0] = matcher;
	flow->uses[1] = actions[0].action;
	flow->marker = marker;
out:
	pthread_mutex_unlock(&lock);
	return flow ? &flow->flow : NULL;
}
