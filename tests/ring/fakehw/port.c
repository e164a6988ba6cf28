// SPDX-License-Identifier: GPL-2.0
/*
 * The port: a netdev stacked on another one (virtio-net, veth). What the lower device receives goes through
 * fh_rx() first; what the stack sends goes out by the lower device.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/rtnetlink.h>
#include <net/net_namespace.h>

#include "fakehw.h"

static bool offload_default;
module_param(offload_default, bool, 0644);
MODULE_PARM_DESC(offload_default, "hw-tc-offload is on in a new netdev, also in the one that a reload brings back");

static char *steering = "hmfs";		/* what hardware forwarding was qualified on */
module_param(steering, charp, 0444);
MODULE_PARM_DESC(steering, "flow_steering_mode of a new port");

LIST_HEAD(fh_fns);
static const struct net_device_ops fh_netdev_ops;

struct fh_fn *fh_fn(const struct net_device *dev)
{
	return ((struct fh_priv *)netdev_priv(dev))->fn;
}

bool fh_is_port(const struct net_device *dev)
{
	return dev->netdev_ops == &fh_netdev_ops;
}

/* ---- netdev ---- */

static netdev_tx_t fh_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct fh_fn *fn = fh_fn(dev);
	unsigned int len = skb->len;

	if (!fn->lower) {
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	fh_mark(fn, skb);
	skb->dev = fn->lower;
	if (dev_queue_xmit(skb) == NET_XMIT_SUCCESS)
		dev_sw_netstats_tx_add(dev, 1, len);
	else
		DEV_STATS_INC(dev, tx_dropped);
	return NETDEV_TX_OK;
}

/* The cable's state is the port's. */
static void fh_carrier(struct fh_fn *fn)
{
	if (fn->dev && netif_running(fn->dev) && fn->lower && netif_carrier_ok(fn->lower))
		netif_carrier_on(fn->dev);
	else if (fn->dev)
		netif_carrier_off(fn->dev);
}

static int fh_open(struct net_device *dev)
{
	struct fh_fn *fn = fh_fn(dev);
	int err = fn->lower ? dev_open(fn->lower, NULL) : -ENODEV;

	if (!err)
		fh_carrier(fn);
	return err;
}

static int fh_stop(struct net_device *dev)
{
	netif_carrier_off(dev);
	return 0;
}

static int fh_change_mtu(struct net_device *dev, int mtu)
{
	struct fh_fn *fn = fh_fn(dev);
	int err = fn->lower ? dev_set_mtu(fn->lower, mtu) : -ENODEV;

	if (!err)
		dev->mtu = mtu;
	return err;
}

/* mlx5: set_feature_hw_tc */
static int fh_set_features(struct net_device *dev, netdev_features_t features)
{
	if ((dev->features & NETIF_F_HW_TC) && !(features & NETIF_F_HW_TC) &&
	    READ_ONCE(fh_fn(dev)->cnt[FH_CNT_RULES])) {
		netdev_err(dev, "Active offloaded tc filters, can't turn hw_tc_offload off\n");
		return -EINVAL;
	}
	return 0;
}

static const struct net_device_ops fh_netdev_ops = {
	.ndo_open = fh_open,
	.ndo_stop = fh_stop,
	.ndo_start_xmit = fh_xmit,
	.ndo_setup_tc = fh_setup_tc,
	.ndo_change_mtu = fh_change_mtu,
	.ndo_set_features = fh_set_features,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_validate_addr = eth_validate_addr,
};

/* ---- ethtool ---- */

static const char fh_counter_names[FH_CNT_MAX][ETH_GSTRING_LEN] = {
	[FH_CNT_FORWARDED] = "hairpin_forwarded",
	[FH_CNT_OUT_OF_BUFFER] = "rx_out_of_buffer",
	[FH_CNT_DEAD_EGRESS] = "hairpin_dead_egress",
	[FH_CNT_TAG_MISS] = "rx_tag_miss",
	[FH_CNT_TAGGED] = "tx_tagged",
	[FH_CNT_RULES] = "rules",
};

static void fh_get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "fakehw", sizeof(info->driver));
	strscpy(info->fw_version, "28.45.4028 (FAKE0000000001)", sizeof(info->fw_version));
	strscpy(info->bus_info, dev_name(fh_fn(dev)->parent), sizeof(info->bus_info));
}

static int fh_get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? FH_CNT_MAX : -EOPNOTSUPP;
}

static void fh_get_strings(struct net_device *dev, u32 set, u8 *data)
{
	memcpy(data, fh_counter_names, sizeof(fh_counter_names));
}

static void fh_get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct fh_fn *fn = fh_fn(dev);

	spin_lock_bh(&fn->lock);
	memcpy(data, fn->cnt, sizeof(fn->cnt));
	spin_unlock_bh(&fn->lock);
}

static int fh_get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *k)
{
	k->base.speed = 200000;
	k->base.duplex = DUPLEX_FULL;
	return 0;
}

static const struct ethtool_ops fh_ethtool_ops = {
	.get_drvinfo = fh_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_sset_count = fh_get_sset_count,
	.get_strings = fh_get_strings,
	.get_ethtool_stats = fh_get_ethtool_stats,
	.get_link_ksettings = fh_get_link_ksettings,
};

/* ---- switches: /sys/class/net/PORT/fakehw/ ---- */

static struct fh_fn *fh_of(struct device *d)
{
	return fh_fn(to_net_dev(d));
}

#define FH_SWITCH(field, format, parse)									\
static ssize_t field##_show(struct device *d, struct device_attribute *a, char *buf)			\
{													\
	return sysfs_emit(buf, format "\n", fh_of(d)->field);						\
}													\
static ssize_t field##_store(struct device *d, struct device_attribute *a, const char *buf, size_t n)	\
{													\
	return parse(buf, &fh_of(d)->field) ?: n;							\
}													\
static DEVICE_ATTR_RW(field)
#define fh_parse_u32(buf, value) kstrtou32(buf, 0, value)

FH_SWITCH(refuse, "%d", kstrtobool);
FH_SWITCH(refuse_nth, "%u", fh_parse_u32);
FH_SWITCH(same_match, "%u", fh_parse_u32);
FH_SWITCH(lose, "%d", kstrtobool);
FH_SWITCH(stop, "%d", kstrtobool);
FH_SWITCH(dead_egress, "%d", kstrtobool);
FH_SWITCH(drop_nth, "%u", fh_parse_u32);

static ssize_t marker_errno_show(struct device *d, struct device_attribute *a, char *buf)
{
	return sysfs_emit(buf, "%u\n", fh_of(d)->marker_errno);
}

static ssize_t marker_errno_store(struct device *d, struct device_attribute *a, const char *buf, size_t n)
{
	u32 value;
	int err = kstrtou32(buf, 0, &value);

	if (!err && value > MAX_ERRNO)
		err = -ERANGE;
	if (!err)
		fh_of(d)->marker_errno = value;
	return err ?: n;
}
static DEVICE_ATTR_RW(marker_errno);

static ssize_t forget_store(struct device *d, struct device_attribute *a, const char *buf, size_t n)
{
	fh_rules_flush(fh_of(d));
	return n;
}
static DEVICE_ATTR_WO(forget);

static ssize_t flush_markers_store(struct device *d, struct device_attribute *a, const char *buf, size_t n)
{
	fh_markers_flush(fh_of(d));
	return n;
}
static DEVICE_ATTR_WO(flush_markers);

static ssize_t mark_show(struct device *d, struct device_attribute *a, char *buf)
{
	return sysfs_emit(buf, "%u\n", fh_markers_count(fh_of(d)));
}
static DEVICE_ATTR_RO(mark);

static ssize_t loaded_queue_size_show(struct device *d, struct device_attribute *a, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(fh_of(d)->q_size));
}
static DEVICE_ATTR_RO(loaded_queue_size);

static struct attribute *fh_attrs[] = {
	&dev_attr_refuse.attr,
	&dev_attr_refuse_nth.attr,
	&dev_attr_same_match.attr,
	&dev_attr_lose.attr,
	&dev_attr_forget.attr,
	&dev_attr_stop.attr,
	&dev_attr_dead_egress.attr,
	&dev_attr_drop_nth.attr,
	&dev_attr_marker_errno.attr,
	&dev_attr_flush_markers.attr,
	&dev_attr_mark.attr,
	&dev_attr_loaded_queue_size.attr,
	NULL
};
static const struct attribute_group fh_group = { .name = "fakehw", .attrs = fh_attrs };

/* ---- life cycle ---- */

static void fh_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &fh_netdev_ops;
	dev->ethtool_ops = &fh_ethtool_ops;
	dev->needs_free_netdev = true;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->min_mtu = 68;
	dev->max_mtu = 9978;
	dev->hw_features = NETIF_F_HW_TC;
	dev->features = offload_default ? NETIF_F_HW_TC : 0;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
}

int fh_netdev_up(struct fh_fn *fn)
{
	struct net_device *dev;
	int err;

	if (!fn->lower)
		return -ENODEV;
	dev = alloc_netdev(sizeof(struct fh_priv), fn->name, NET_NAME_USER, fh_setup);
	if (!dev)
		return -ENOMEM;
	((struct fh_priv *)netdev_priv(dev))->fn = fn;
	dev_net_set(dev, dev_net(fn->lower));
	eth_hw_addr_set(dev, fn->lower->dev_addr);
	dev->sysfs_groups[0] = &fh_group;
	SET_NETDEV_DEV(dev, fn->parent);
	err = register_netdevice(dev);
	if (err) {
		free_netdev(dev);
		return err;
	}
	err = netdev_upper_dev_link(fn->lower, dev, NULL);
	if (err) {
		unregister_netdevice(dev);
		return err;
	}
	netif_carrier_off(dev);
	WRITE_ONCE(fn->dev, dev);
	return 0;
}

void fh_netdev_down(struct fh_fn *fn)
{
	struct net_device *dev = fn->dev;
	struct fh_fn *other;

	if (!dev)
		return;
	fh_markers_flush(fn);
	fh_rules_flush(fn);
	list_for_each_entry(other, &fh_fns, list)
		fh_rules_target_gone(other, dev);
	strscpy(fn->name, dev->name, IFNAMSIZ);
	WRITE_ONCE(fn->dev, NULL);
	synchronize_net();
	netdev_upper_dev_unlink(fn->lower, dev);
	unregister_netdevice(dev);
}

static void fh_lower_gone(struct fh_fn *fn)
{
	if (!fn->lower)
		return;
	fh_netdev_down(fn);
	netdev_rx_handler_unregister(fn->lower);
	netdev_put(fn->lower, &fn->lower_tracker);
	fn->lower = NULL;
}

static int fh_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct net_device *dev = netdev_notifier_info_to_dev(ptr);
	struct fh_fn *fn;

	if (rtnl_dereference(dev->rx_handler) != fh_rx)
		return NOTIFY_DONE;
	fn = rtnl_dereference(dev->rx_handler_data);
	switch (event) {
	case NETDEV_UNREGISTER:		/* a veth or a network namespace goes away */
		fh_lower_gone(fn);
		break;
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		fh_carrier(fn);
		break;
	}
	return NOTIFY_DONE;
}
static struct notifier_block fh_notifier = { .notifier_call = fh_event };

static void fh_destroy(struct fh_fn *fn)
{
	fh_devlink_unregister(fn);
	rtnl_lock();
	fh_lower_gone(fn);
	list_del(&fn->list);
	rtnl_unlock();
	fh_devlink_free(fn);
	if (fn->pdev)
		platform_device_unregister(fn->pdev);
	kfree(fn);
}

/* devlink wants a real device, and user space a PCI function where there is one. */
static int fh_find_parent(struct fh_fn *fn)
{
	struct device *d = fn->lower->dev.parent;
	static int next_id;

	while (d && !dev_is_pci(d))
		d = d->parent;
	if (!d) {
		fn->pdev = platform_device_register_simple("fakehw", next_id++, NULL, 0);
		if (IS_ERR(fn->pdev))
			return PTR_ERR(fn->pdev);
		d = &fn->pdev->dev;
	}
	fn->parent = d;
	return 0;
}

/* "LOWER NAME": a port NAME on the netdev LOWER of the writer's network namespace. */
static int fh_add(const char *buf, const struct kernel_param *kp)
{
	struct net *net = current->nsproxy->net_ns;
	char lower[IFNAMSIZ], name[IFNAMSIZ];
	struct fh_fn *fn;
	int err;

	if (sscanf(buf, "%15s %15s", lower, name) != 2)
		return -EINVAL;
	fn = kzalloc(sizeof(*fn), GFP_KERNEL);
	if (!fn)
		return -ENOMEM;
	INIT_LIST_HEAD(&fn->rules);
	INIT_LIST_HEAD(&fn->markers);
	spin_lock_init(&fn->lock);
	strscpy(fn->name, name, sizeof(fn->name));
	strscpy(fn->steering, steering, sizeof(fn->steering));
	fn->q_size = FH_QUEUE_SIZE_DEFAULT;
	fn->q_num = FH_NUM_QUEUES_DEFAULT;
	fn->same_match = 2;		/* mlx5: "Can have only a single duplicate rule" */
	fn->lower = netdev_get_by_name(net, lower, &fn->lower_tracker, GFP_KERNEL);
	if (!fn->lower) {
		err = -ENODEV;
		goto free;
	}
	err = fh_find_parent(fn);
	if (err)
		goto put;
	rtnl_lock();
	err = netdev_rx_handler_register(fn->lower, fh_rx, fn);
	if (!err) {
		err = fh_netdev_up(fn);
		if (err)
			netdev_rx_handler_unregister(fn->lower);
		else
			list_add_tail(&fn->list, &fh_fns);
	}
	rtnl_unlock();
	if (err)
		goto device;
	err = fh_devlink_register(fn, net);
	if (!err)
		return 0;
	rtnl_lock();
	list_del(&fn->list);
	fh_netdev_down(fn);
	netdev_rx_handler_unregister(fn->lower);
	rtnl_unlock();
device:
	if (fn->pdev)
		platform_device_unregister(fn->pdev);
put:
	netdev_put(fn->lower, &fn->lower_tracker);
free:
	kfree(fn);
	return err;
}
static const struct kernel_param_ops fh_add_ops = { .set = fh_add };
module_param_cb(add, &fh_add_ops, NULL, 0200);
MODULE_PARM_DESC(add, "write \"LOWER NAME\" to create the port NAME on the netdev LOWER");

static int fh_probe(struct platform_device *pdev)
{
	return 0;
}
static struct platform_driver fh_driver = { .probe = fh_probe, .driver.name = "fakehw" };

static int __init fh_init(void)
{
	int err = platform_driver_register(&fh_driver);

	if (err)
		return err;
	err = fh_marker_init();
	if (err)
		goto driver;
	err = register_netdevice_notifier(&fh_notifier);
	if (!err)
		return 0;
	fh_marker_exit();
driver:
	platform_driver_unregister(&fh_driver);
	return err;
}

static void __exit fh_exit(void)
{
	struct fh_fn *fn, *next;

	fh_marker_exit();
	list_for_each_entry_safe(fn, next, &fh_fns, list)
		fh_destroy(fn);
	unregister_netdevice_notifier(&fh_notifier);
	platform_driver_unregister(&fh_driver);
	rcu_barrier();
}

module_init(fh_init);
module_exit(fh_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Test-only NIC with tc flower hairpin offload and an EtherType marker");
