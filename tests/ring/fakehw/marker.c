// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/fakehw_marker stands for the RDMA-TX steering rule: write "NETDEV [UDP-SOURCE-PORT [ETHERTYPE]]", and
 * until the file is closed the port's RoCE packets with that source port leave with that EtherType. A devlink
 * reload flushes the rule while the file stays open: poll() then says POLLHUP, and there is no way back.
 */
#include <linux/capability.h>
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/poll.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <net/ip.h>
#include <net/net_namespace.h>

#include "fakehw.h"

/* An open file. `fn` is set once, under rtnl; a function lives until the module goes, and open files hold that. */
struct fh_marker {
	struct list_head list;		/* fh_fn.markers; empty when flushed */
	struct fh_fn *fn;
	__be16 sport, ethertype;
	bool flushed;
	wait_queue_head_t wait;
};

void fh_mark(struct fh_fn *fn, struct sk_buff *skb)
{
	const struct fh_marker *m;
	const struct udphdr *uh;
	const struct iphdr *ip;

	/* The real rule sees what RDMA sends and nothing else. What the kernel forwards came in by a netdev. */
	if (skb->skb_iif)
		return;
	if (list_empty_careful(&fn->markers) || skb->protocol != htons(ETH_P_IP) || skb_cow_head(skb, 0) ||
	    !pskb_may_pull(skb, ETH_HLEN + sizeof(*ip) + sizeof(*uh)))
		return;
	ip = (struct iphdr *)(skb->data + ETH_HLEN);
	if (ip->ihl != 5 || ip->protocol != IPPROTO_UDP || (ip->frag_off & htons(IP_OFFSET)))
		return;
	uh = (struct udphdr *)(ip + 1);
	if (uh->dest != htons(FH_ROCE_PORT))
		return;
	spin_lock_bh(&fn->lock);
	list_for_each_entry(m, &fn->markers, list) {
		if (m->sport != uh->source)
			continue;
		((struct ethhdr *)skb->data)->h_proto = m->ethertype;
		skb->protocol = m->ethertype;
		fn->cnt[FH_CNT_TAGGED]++;
		break;
	}
	spin_unlock_bh(&fn->lock);
}

void fh_markers_flush(struct fh_fn *fn)
{
	struct fh_marker *m, *n;

	spin_lock_bh(&fn->lock);
	list_for_each_entry_safe(m, n, &fn->markers, list) {
		list_del_init(&m->list);
		WRITE_ONCE(m->flushed, true);
		wake_up_all(&m->wait);
	}
	spin_unlock_bh(&fn->lock);
}

unsigned int fh_markers_count(struct fh_fn *fn)
{
	unsigned int count;

	spin_lock_bh(&fn->lock);
	count = list_count_nodes(&fn->markers);
	spin_unlock_bh(&fn->lock);
	return count;
}

static int fh_marker_open(struct inode *inode, struct file *file)
{
	struct fh_marker *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return -ENOMEM;
	INIT_LIST_HEAD(&m->list);
	init_waitqueue_head(&m->wait);
	file->private_data = m;
	return 0;
}

static int fh_marker_attach(struct fh_marker *m, struct fh_fn *fn)
{
	const struct fh_marker *o;
	int err = 0;

	if (fn->marker_errno)
		return -(int)fn->marker_errno;
	spin_lock_bh(&fn->lock);
	/* mlx5: check_conflicting_ftes, two rules with one match and different rewrite objects. */
	list_for_each_entry(o, &fn->markers, list)
		if (o->sport == m->sport)
			err = -EEXIST;
	if (!err) {
		list_add_tail(&m->list, &fn->markers);
		m->fn = fn;
	}
	spin_unlock_bh(&fn->lock);
	return err;
}

static ssize_t fh_marker_write(struct file *file, const char __user *ubuf, size_t n, loff_t *pos)
{
	unsigned int sport = 65535, ethertype = FH_MARKED_ETHERTYPE;
	struct fh_marker *m = file->private_data;
	char buf[64] = {}, name[IFNAMSIZ];
	struct net_device *dev;
	int err = -ENODEV;

	if (READ_ONCE(m->flushed))
		return -EIO;
	if (!capable(CAP_NET_RAW))	/* mlx5_ib: MLX5_IB_METHOD_CREATE_FLOW */
		return -EPERM;
	if (n >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, ubuf, n))
		return -EFAULT;
	if (sscanf(buf, "%15s %i %i", name, &sport, &ethertype) < 1 || !sport || sport > 0xffff ||
	    ethertype < ETH_P_802_3_MIN || ethertype > 0xffff)
		return -EINVAL;
	rtnl_lock();
	dev = __dev_get_by_name(current->nsproxy->net_ns, name);
	if (m->fn) {
		err = -EBUSY;
	} else if (dev && fh_is_port(dev)) {
		m->sport = htons(sport);
		m->ethertype = htons(ethertype);
		err = fh_marker_attach(m, fh_fn(dev));
	}
	rtnl_unlock();
	return err ?: n;
}

static __poll_t fh_marker_poll(struct file *file, poll_table *wait)
{
	struct fh_marker *m = file->private_data;

	poll_wait(file, &m->wait, wait);
	return READ_ONCE(m->flushed) ? EPOLLHUP : 0;
}

/* A flushed file can stand in for the uverbs file of a device that went away: both answer EIO. */
static long fh_marker_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct fh_marker *m = file->private_data;

	return READ_ONCE(m->flushed) ? -EIO : -ENOTTY;
}

static int fh_marker_release(struct inode *inode, struct file *file)
{
	struct fh_marker *m = file->private_data;

	if (m->fn) {
		spin_lock_bh(&m->fn->lock);
		list_del_init(&m->list);
		spin_unlock_bh(&m->fn->lock);
	}
	kfree(m);
	return 0;
}

static const struct file_operations fh_marker_fops = {
	.owner = THIS_MODULE,
	.open = fh_marker_open,
	.write = fh_marker_write,
	.poll = fh_marker_poll,
	.unlocked_ioctl = fh_marker_ioctl,
	.release = fh_marker_release,
};

static struct miscdevice fh_marker_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "fakehw_marker",
	.mode = 0666,			/* as /dev/infiniband/uverbs*; CAP_NET_RAW decides */
	.fops = &fh_marker_fops,
};

int fh_marker_init(void)
{
	return misc_register(&fh_marker_device);
}

void fh_marker_exit(void)
{
	misc_deregister(&fh_marker_device);
}
