// SPDX-License-Identifier: GPL-2.0
/*
 * devlink as mlx5 has it: names, types, modes, limits and refusals of mlx5's devlink.c and fs_core.c (the
 * three steering modes and their text from Linux 6.13 on). The counts of `devlink -s dev show` are devlink's own.
 */
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <linux/string.h>
#include <linux/version.h>
#include <net/devlink.h>

#include "fakehw.h"

/* Linux 7.0 passes values by pointer (seen in 7.3, not in 6.17). */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define FH_VALUE		union devlink_param_value *
#define FH_OF(v)		(*(v))
#define FH_PASS(v)		(&(v))
#else
#define FH_VALUE		union devlink_param_value
#define FH_OF(v)		(v)
#define FH_PASS(v)		(v)
#endif

enum {
	FH_PARAM_BASE = DEVLINK_PARAM_GENERIC_ID_MAX,
	FH_PARAM_QUEUE_SIZE,
	FH_PARAM_NUM_QUEUES,
	FH_PARAM_STEERING,
};

static struct fh_fn *fh_of(struct devlink *devlink)
{
	return *(struct fh_fn **)devlink_priv(devlink);
}

static int fh_queue_size_validate(struct devlink *devlink, u32 id, FH_VALUE val, struct netlink_ext_ack *extack)
{
	if (!is_power_of_2(FH_OF(val).vu32)) {
		NL_SET_ERR_MSG(extack, "mlx5_core: Value is not power of two");
		return -EINVAL;
	}
	if (FH_OF(val).vu32 > FH_QUEUE_SIZE_MAX) {
		NL_SET_ERR_MSG(extack, "mlx5_core: Maximum hairpin queue size is " __stringify(FH_QUEUE_SIZE_MAX));
		return -EINVAL;
	}
	return 0;
}

static int fh_num_queues_validate(struct devlink *devlink, u32 id, FH_VALUE val, struct netlink_ext_ack *extack)
{
	return FH_OF(val).vu32 ? 0 : -EINVAL;
}

static int fh_steering_validate(struct devlink *devlink, u32 id, FH_VALUE val, struct netlink_ext_ack *extack)
{
	const char *mode = FH_OF(val).vstr;

	if (!strcmp(mode, "dmfs") || !strcmp(mode, "smfs") || !strcmp(mode, "hmfs"))
		return 0;
	NL_SET_ERR_MSG(extack, "mlx5_core: Bad parameter: supported values are [\"dmfs\", \"smfs\", \"hmfs\"]");
	return -EINVAL;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
static int fh_steering_get(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx,
			   struct netlink_ext_ack *extack)
#else
static int fh_steering_get(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx)
#endif
{
	struct fh_fn *fn = fh_of(devlink);

	strscpy(ctx->val.vstr, fn->steering, sizeof(fn->steering));
	return 0;
}

static int fh_steering_set(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx,
			   struct netlink_ext_ack *extack)
{
	struct fh_fn *fn = fh_of(devlink);

	strscpy(fn->steering, ctx->val.vstr, sizeof(fn->steering));
	return 0;
}

static const struct devlink_param fh_params[] = {
	DEVLINK_PARAM_DRIVER(FH_PARAM_QUEUE_SIZE, "hairpin_queue_size", DEVLINK_PARAM_TYPE_U32,
			     BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL, fh_queue_size_validate),
	DEVLINK_PARAM_DRIVER(FH_PARAM_NUM_QUEUES, "hairpin_num_queues", DEVLINK_PARAM_TYPE_U32,
			     BIT(DEVLINK_PARAM_CMODE_DRIVERINIT), NULL, NULL, fh_num_queues_validate),
	DEVLINK_PARAM_DRIVER(FH_PARAM_STEERING, "flow_steering_mode", DEVLINK_PARAM_TYPE_STRING,
			     BIT(DEVLINK_PARAM_CMODE_RUNTIME), fh_steering_get, fh_steering_set,
			     fh_steering_validate),
};

static int fh_reload_down(struct devlink *devlink, bool netns_change, enum devlink_reload_action action,
			  enum devlink_reload_limit limit, struct netlink_ext_ack *extack)
{
	struct fh_fn *fn = fh_of(devlink);

	/*
	 * Before the netdev goes: Soft-RoCE (up to 6.17) keeps an RDMA device until its last user has closed
	 * it, and a marker closes it when it hears of this. unregister_netdevice() waits for that.
	 */
	fh_markers_flush(fn);
	rtnl_lock();
	if (netns_change)	/* the namespace is being removed; a refusal would leave devlink pointing at it */
		fn->parked = true;
	fh_netdev_down(fn);
	rtnl_unlock();
	return 0;
}

static int fh_reload_up(struct devlink *devlink, enum devlink_reload_action action, enum devlink_reload_limit limit,
			u32 *performed, struct netlink_ext_ack *extack)
{
	struct fh_fn *fn = fh_of(devlink);
	union devlink_param_value v;
	int err;

	/* devlink has made the pending values the present ones just before. */
	if (!devl_param_driverinit_value_get(devlink, FH_PARAM_QUEUE_SIZE, &v))
		WRITE_ONCE(fn->q_size, v.vu32);
	if (!devl_param_driverinit_value_get(devlink, FH_PARAM_NUM_QUEUES, &v))
		WRITE_ONCE(fn->q_num, v.vu32);
	rtnl_lock();
	err = fn->parked ? 0 : fh_netdev_up(fn);
	rtnl_unlock();
	*performed = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT);
	return err;
}

static int fh_info_get(struct devlink *devlink, struct devlink_info_req *req, struct netlink_ext_ack *extack)
{
	return devlink_info_version_running_put(req, DEVLINK_INFO_VERSION_GENERIC_FW, "28.45.4028");
}

static const struct devlink_ops fh_devlink_ops = {
	.reload_actions = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT),
	.reload_down = fh_reload_down,
	.reload_up = fh_reload_up,
	.info_get = fh_info_get,
};

int fh_devlink_register(struct fh_fn *fn, struct net *net)
{
	struct devlink *devlink = devlink_alloc_ns(&fh_devlink_ops, sizeof(fn), net, fn->parent);
	union devlink_param_value v;
	int err;

	if (!devlink)
		return -ENOMEM;
	*(struct fh_fn **)devlink_priv(devlink) = fn;
	err = devlink_params_register(devlink, fh_params, ARRAY_SIZE(fh_params));
	if (err) {
		devlink_free(devlink);
		return err;
	}
	devl_lock(devlink);
	v.vu32 = fn->q_size;
	devl_param_driverinit_value_set(devlink, FH_PARAM_QUEUE_SIZE, FH_PASS(v));
	v.vu32 = fn->q_num;
	devl_param_driverinit_value_set(devlink, FH_PARAM_NUM_QUEUES, FH_PASS(v));
	devl_unlock(devlink);
	fn->devlink = devlink;
	devlink_register(devlink);
	return 0;
}

/* In two steps: user space must be out before the netdev goes, parameters and memory after it. */
void fh_devlink_unregister(struct fh_fn *fn)
{
	if (fn->devlink)
		devlink_unregister(fn->devlink);
}

void fh_devlink_free(struct fh_fn *fn)
{
	if (!fn->devlink)
		return;
	devlink_params_unregister(fn->devlink, fh_params, ARRAY_SIZE(fh_params));
	devlink_free(fn->devlink);
}
