/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fakehw - TEST ONLY: a network port that forwards by tc flower rules as a ConnectX hairpin does.
 * README.md tells what it imitates, from where, and how to make it misbehave.
 *
 *   port.c     the netdev, its switches, life cycle
 *   hairpin.c  tc rules, the forwarding path, the hairpin queue
 *   marker.c   /dev/fakehw_marker
 *   devlink.c  parameters, reload
 */
#ifndef FAKEHW_H
#define FAKEHW_H

#include <linux/if_ether.h>
#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/spinlock.h>
#include <net/pkt_cls.h>

struct devlink;
struct net;

#define FH_MARKED_ETHERTYPE	0x88b5
#define FH_ROCE_PORT		4791
#define FH_QUEUE_SIZE_DEFAULT	1024	/* packets; the driver's default on a ConnectX-7 */
#define FH_QUEUE_SIZE_MAX	8192
#define FH_NUM_QUEUES_DEFAULT	4	/* mlx5: one per 50 Gb/s of a 200 Gb/s port */

/* ethtool -S, in this order. Only rx_out_of_buffer is a name that mlx5 has too. */
enum fh_counter {
	FH_CNT_FORWARDED,	/* left by the redirect target of a rule */
	FH_CNT_OUT_OF_BUFFER,	/* lost in the hairpin queue: full, or drop_nth */
	FH_CNT_DEAD_EGRESS,	/* matched a rule whose target takes nothing */
	FH_CNT_TAG_MISS,	/* marked packets that no rule matched */
	FH_CNT_TAGGED,		/* sent with the marker's EtherType */
	FH_CNT_RULES,		/* rules in the hardware now */
	FH_CNT_MAX
};

/* A flower rule in the hardware. Under fh_fn.lock. */
struct fh_rule {
	struct list_head list;		/* fh_fn.rules, oldest first */
	unsigned long cookie;		/* tc's name of the rule */
	__be16 proto, new_proto;
	u8 src[ETH_ALEN], dst[ETH_ALEN], new_dst[ETH_ALEN];
	struct net_device *out;		/* another fakehw port, not held; NULL once it is gone */
	u64 pkts, bytes;		/* now */
	u64 sampled_pkts, sampled_bytes;/* at the last sample: what the driver knows */
	u64 told_pkts, told_bytes;	/* what tc was told so far */
	unsigned long sampled;		/* jiffies of that sample */
	unsigned long lastused;		/* jiffies of the last sample that saw traffic */
};

/* A message that is passing: its bytes are in the hairpin queue until its last packet. */
struct fh_message {
	unsigned long cookie;		/* the rule */
	u32 qpn, psn;			/* destination QP; last sequence number seen */
	u32 bytes;			/* in the queue; 0 = slot free */
	unsigned long seen;		/* jiffies */
};
#define FH_MESSAGES 64

/* One PCI function. It stays over a devlink reload; its netdev does not. */
struct fh_fn {
	struct list_head list;		/* fh_fns, under rtnl */
	struct device *parent;
	struct platform_device *pdev;	/* when the lower device has no PCI parent */
	struct devlink *devlink;
	struct net_device *lower;	/* held; NULL once it is gone */
	netdevice_tracker lower_tracker;
	struct net_device *dev;		/* NULL during a reload */
	char name[IFNAMSIZ];
	bool parked;			/* its network namespace has gone */

	spinlock_t lock;		/* all below */
	struct list_head rules;
	struct list_head markers;
	struct fh_message messages[FH_MESSAGES];
	u64 cnt[FH_CNT_MAX];
	u32 seq;			/* of forwarded packets, for drop_nth */
	u32 q_size, q_num;		/* loaded: as of the last reload */
	char steering[8];

	/* The switches: see README.md. Written by sysfs without the lock. */
	bool refuse, lose, stop, dead_egress;
	u32 refuse_nth, drop_nth, same_match, marker_errno;
};

struct fh_priv { struct fh_fn *fn; };

/* port.c */
extern struct list_head fh_fns;
struct fh_fn *fh_fn(const struct net_device *dev);
bool fh_is_port(const struct net_device *dev);
int fh_netdev_up(struct fh_fn *fn);	/* under rtnl */
void fh_netdev_down(struct fh_fn *fn);	/* under rtnl */

/* hairpin.c */
rx_handler_result_t fh_rx(struct sk_buff **pskb);
int fh_setup_tc(struct net_device *dev, enum tc_setup_type type, void *type_data);
void fh_rules_flush(struct fh_fn *fn);
void fh_rules_target_gone(struct fh_fn *fn, const struct net_device *target);

/* marker.c */
int fh_marker_init(void);
void fh_marker_exit(void);
void fh_mark(struct fh_fn *fn, struct sk_buff *skb);
void fh_markers_flush(struct fh_fn *fn);
unsigned int fh_markers_count(struct fh_fn *fn);

/* devlink.c */
int fh_devlink_register(struct fh_fn *fn, struct net *net);
void fh_devlink_unregister(struct fh_fn *fn);
void fh_devlink_free(struct fh_fn *fn);

#endif
