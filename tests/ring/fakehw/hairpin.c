// SPDX-License-Identifier: GPL-2.0
/* tc flower rules and the path that they open: in at one port, out at another, the stack never sees it. */
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/module.h>
#include <linux/udp.h>
#include <net/flow_offload.h>

#include "fakehw.h"

/* mlx5 asks the firmware for all counters once a second (MLX5_FC_STATS_PERIOD) and tells tc the last answer. */
static unsigned int stats_ms = 1000;
module_param(stats_ms, uint, 0644);
MODULE_PARM_DESC(stats_ms, "milliseconds between two refreshes of the rule counters; 0 = always fresh");

/*
 * Field figures: with 1024 entries a burst of 60 KB passes and one of 100 KB loses packets; with 8192,
 * 480 KB passes and 960 KB does not. 96 bytes an entry gives 98304 and 786432 bytes.
 */
static unsigned int queue_entry_bytes = 96;
module_param(queue_entry_bytes, uint, 0644);
MODULE_PARM_DESC(queue_entry_bytes, "bytes of a burst that one entry of the hairpin queue holds; 0 = never full");

/* ---- counters ---- */

static void fh_sample(struct fh_rule *r)
{
	unsigned long period = msecs_to_jiffies(READ_ONCE(stats_ms));

	if (period && time_before(jiffies, r->sampled + period))
		return;
	if (r->pkts != r->sampled_pkts)
		r->lastused = jiffies;
	r->sampled_pkts = r->pkts;
	r->sampled_bytes = r->bytes;
	/* The rhythm stays that of the first sample, however late this call comes. */
	r->sampled = period ? jiffies - (jiffies - r->sampled) % period : jiffies;
}

/* ---- the hairpin queue ---- */

struct fh_bth {		/* InfiniBand base transport header */
	u8 opcode, flags;
	__be16 pkey;
	__be32 qpn;	/* low 24 bits */
	__be32 psn;	/* low 24 bits */
} __packed;

enum fh_place { FH_ONLY, FH_FIRST, FH_MIDDLE, FH_LAST };

/* Opcodes: InfiniBand specification 9.2, the low five bits are the same in every transport service. */
static enum fh_place fh_place(u8 opcode)
{
	switch (opcode & 0x1f) {
	case 0x00: case 0x06: case 0x0d:		/* send, write, read response: first */
		return FH_FIRST;
	case 0x01: case 0x07: case 0x0e:
		return FH_MIDDLE;
	case 0x02: case 0x03: case 0x08: case 0x09: case 0x0f: case 0x16:
		return FH_LAST;
	default:
		return FH_ONLY;
	}
}

/* The BTH of a RoCE v2 packet (whatever its EtherType says), or NULL. skb->data is at the IP header. */
static const struct fh_bth *fh_bth(const struct sk_buff *skb, struct fh_bth *buf)
{
	struct iphdr iph_buf;
	const struct iphdr *iph = skb_header_pointer(skb, 0, sizeof(iph_buf), &iph_buf);
	struct udphdr uh_buf;
	const struct udphdr *uh;

	if (!iph || iph->version != 4 || iph->ihl < 5 || iph->protocol != IPPROTO_UDP)
		return NULL;
	uh = skb_header_pointer(skb, iph->ihl * 4, sizeof(uh_buf), &uh_buf);
	if (!uh || uh->dest != htons(FH_ROCE_PORT))
		return NULL;
	return skb_header_pointer(skb, iph->ihl * 4 + sizeof(*uh), sizeof(*buf), buf);
}

/*
 * Is there room for this packet? The queue is modelled by messages, not by time: software emulation has no
 * time worth modelling. A message fills the queue from its first packet to its last, and has left it when it
 * is over or when the sender goes back to repeat a part; messages of several queue pairs add up. A packet
 * that does not fit is lost, and the next one finds the room of a packet: what is over loses every second one.
 */
static bool fh_queue_takes(struct fh_fn *fn, const struct fh_rule *r, const struct sk_buff *skb, u32 len)
{
	u64 room = (u64)fn->q_size * READ_ONCE(queue_entry_bytes), level = 0;
	struct fh_message *m = NULL, *spare = &fn->messages[0];
	enum fh_place place = FH_ONLY;
	const struct fh_bth *bth;
	struct fh_bth buf;
	u32 qpn = 0, psn = 0;
	bool fits;
	int i;

	if (!room)
		return true;
	bth = fh_bth(skb, &buf);
	if (bth) {
		place = fh_place(bth->opcode);
		qpn = be32_to_cpu(bth->qpn) & 0xffffff;
		psn = be32_to_cpu(bth->psn) & 0xffffff;
	}
	for (i = 0; i < FH_MESSAGES; i++) {
		struct fh_message *t = &fn->messages[i];

		if (t->bytes && time_after(jiffies, t->seen + HZ))	/* given up by its sender */
			t->bytes = 0;
		if (t->bytes && t->cookie == r->cookie && t->qpn == qpn)
			m = t;
		level += t->bytes;
		if (spare->bytes && (!t->bytes || time_before(t->seen, spare->seen)))
			spare = t;
	}
	if (place == FH_ONLY)
		return level + len <= room;
	if (m && (place == FH_FIRST || ((psn - m->psn - 1) & 0x800000))) {	/* a new message, or a repetition */
		level -= m->bytes;
		m->bytes = 0;
	}
	if (!m) {
		m = spare;
		level -= m->bytes;
		m->bytes = 0;
	}
	fits = level + len <= room;
	if (fits)
		m->bytes += len;
	else
		m->bytes -= min(m->bytes, len);
	m->cookie = r->cookie;
	m->qpn = qpn;
	m->psn = psn;
	m->seen = jiffies;
	if (place == FH_LAST)
		m->bytes = 0;
	return fits;
}

/* ---- forwarding ---- */

static struct fh_rule *fh_match(struct fh_fn *fn, const struct ethhdr *eth)
{
	struct fh_rule *r;

	list_for_each_entry(r, &fn->rules, list)
		if (r->proto == eth->h_proto && ether_addr_equal(r->src, eth->h_source) &&
		    ether_addr_equal(r->dst, eth->h_dest))
			return r;
	return NULL;
}

/* Where a rule's packets leave now; NULL when they go nowhere. */
static struct net_device *fh_egress(const struct fh_rule *r)
{
	struct fh_fn *out = r->out ? fh_fn(r->out) : NULL;

	if (!out || READ_ONCE(out->dead_egress) || !(r->out->flags & IFF_UP))
		return NULL;
	return READ_ONCE(out->lower);
}

/* The hardware's part of receiving. True: the packet is dealt with. */
static bool fh_hairpin(struct fh_fn *fn, struct sk_buff *skb)
{
	u32 len = skb->len + ETH_HLEN, nth = READ_ONCE(fn->drop_nth);
	struct net_device *egress;
	struct ethhdr *eth = eth_hdr(skb);
	u8 new_dst[ETH_ALEN];
	__be16 new_proto;
	struct fh_rule *r;

	spin_lock_bh(&fn->lock);
	r = READ_ONCE(fn->stop) ? NULL : fh_match(fn, eth);
	if (!r) {
		if (eth->h_proto == htons(FH_MARKED_ETHERTYPE))
			fn->cnt[FH_CNT_TAG_MISS]++;
		spin_unlock_bh(&fn->lock);
		return false;
	}
	/* The flow counter stands in front of the queue: it counts what is lost behind it too. */
	fh_sample(r);
	r->pkts++;
	r->bytes += len;
	fn->seq++;
	egress = fh_egress(r);
	if (!egress) {
		fn->cnt[FH_CNT_DEAD_EGRESS]++;
	} else if ((nth && fn->seq % nth == 0) || !fh_queue_takes(fn, r, skb, len)) {
		fn->cnt[FH_CNT_OUT_OF_BUFFER]++;
		egress = NULL;
	} else {
		fn->cnt[FH_CNT_FORWARDED]++;
		ether_addr_copy(new_dst, r->new_dst);
		new_proto = r->new_proto;
	}
	spin_unlock_bh(&fn->lock);

	if (!egress || skb_cow_head(skb, ETH_HLEN)) {
		kfree_skb(skb);
		return true;
	}
	skb_push(skb, ETH_HLEN);
	skb_reset_mac_header(skb);
	eth = eth_hdr(skb);
	ether_addr_copy(eth->h_dest, new_dst);
	eth->h_proto = new_proto;
	skb->protocol = new_proto;
	skb->dev = egress;		/* there until the end of this RCU section */
	skb_clear_tstamp(skb);
	dev_queue_xmit(skb);
	return true;
}

/* rx_handler of the lower device; the caller holds rcu_read_lock. */
rx_handler_result_t fh_rx(struct sk_buff **pskb)
{
	struct fh_fn *fn = rcu_dereference((*pskb)->dev->rx_handler_data);
	struct net_device *dev = fn ? READ_ONCE(fn->dev) : NULL;
	struct sk_buff *skb;

	if (!dev || !(dev->flags & IFF_UP)) {
		kfree_skb(*pskb);
		return RX_HANDLER_CONSUMED;
	}
	skb = skb_share_check(*pskb, GFP_ATOMIC);
	if (!skb)
		return RX_HANDLER_CONSUMED;
	*pskb = skb;
	if (fh_hairpin(fn, skb))
		return RX_HANDLER_CONSUMED;
	dev_sw_netstats_rx_add(dev, skb->len);
	skb->dev = dev;
	if (skb->pkt_type == PACKET_OTHERHOST && ether_addr_equal_64bits(eth_hdr(skb)->h_dest, dev->dev_addr))
		skb->pkt_type = PACKET_HOST;
	return RX_HANDLER_ANOTHER;
}

/* ---- tc ---- */

static LIST_HEAD(fh_block_cbs);

/* Bytes 0-15 of the Ethernet header (and two of the next) that pedit sets. */
struct fh_munge { u8 set[16], val[16]; };

static bool fh_munge(struct fh_munge *m, const struct flow_action_entry *a)
{
	const u8 *keep = (const u8 *)&a->mangle.mask, *val = (const u8 *)&a->mangle.val;
	int i;

	if (a->mangle.htype != FLOW_ACT_MANGLE_HDR_TYPE_ETH || a->mangle.offset > 12)
		return false;
	for (i = 0; i < 4; i++) {
		if (keep[i] == 0xff)
			continue;
		if (keep[i])		/* a part of a byte */
			return false;
		m->set[a->mangle.offset + i] = 1;
		m->val[a->mangle.offset + i] = val[i];
	}
	return true;
}

static int fh_parse_match(const struct flow_rule *rule, struct fh_rule *r, struct netlink_ext_ack *extack)
{
	u64 keys = rule->match.dissector->used_keys;
	struct flow_match_eth_addrs eth;
	struct flow_match_basic basic;

	if (keys & ~(BIT_ULL(FLOW_DISSECTOR_KEY_CONTROL) | BIT_ULL(FLOW_DISSECTOR_KEY_BASIC) |
		     BIT_ULL(FLOW_DISSECTOR_KEY_ETH_ADDRS))) {
		NL_SET_ERR_MSG_MOD(extack, "Unsupported key");
		return -EOPNOTSUPP;
	}
	if (!(keys & BIT_ULL(FLOW_DISSECTOR_KEY_BASIC)) || !(keys & BIT_ULL(FLOW_DISSECTOR_KEY_ETH_ADDRS)))
		goto shape;
	flow_rule_match_basic(rule, &basic);
	flow_rule_match_eth_addrs(rule, &eth);
	if (basic.mask->n_proto != htons(0xffff) || basic.mask->ip_proto ||
	    !is_broadcast_ether_addr(eth.mask->src) || !is_broadcast_ether_addr(eth.mask->dst))
		goto shape;
	r->proto = basic.key->n_proto;
	ether_addr_copy(r->src, eth.key->src);
	ether_addr_copy(r->dst, eth.key->dst);
	return 0;
shape:
	NL_SET_ERR_MSG_MOD(extack, "Only a match on protocol, source MAC and destination MAC is offloaded");
	return -EOPNOTSUPP;
}

static int fh_parse_actions(const struct net_device *dev, const struct flow_rule *rule, struct fh_rule *r,
			    struct netlink_ext_ack *extack)
{
	const struct flow_action_entry *a;
	struct fh_munge m = {};
	int i;

	flow_action_for_each(i, a, &rule->action) {
		if (a->id == FLOW_ACTION_MANGLE && !r->out && fh_munge(&m, a))
			continue;
		if (a->id != FLOW_ACTION_REDIRECT || r->out || !a->dev) {
			NL_SET_ERR_MSG_MOD(extack, "Unsupported action");
			return -EOPNOTSUPP;
		}
		if (!fh_is_port(a->dev) || a->dev == dev) {
			NL_SET_ERR_MSG_MOD(extack, "Redirect target is not another port of this device");
			return -EOPNOTSUPP;
		}
		r->out = a->dev;
	}
	for (i = 0; i < 16; i++)
		if (m.set[i] != (i < ETH_ALEN || i == 12 || i == 13))
			r->out = NULL;
	if (!r->out) {
		NL_SET_ERR_MSG_MOD(extack, "Only set eth type, set eth dst, redirect is offloaded");
		return -EOPNOTSUPP;
	}
	memcpy(r->new_dst, m.val, ETH_ALEN);
	memcpy(&r->new_proto, m.val + 12, sizeof(r->new_proto));
	return 0;
}

static struct fh_rule *fh_find(struct fh_fn *fn, unsigned long cookie)
{
	struct fh_rule *r;

	list_for_each_entry(r, &fn->rules, list)
		if (r->cookie == cookie)
			return r;
	return NULL;
}

static void fh_del(struct fh_fn *fn, struct fh_rule *r)
{
	list_del(&r->list);
	fn->cnt[FH_CNT_RULES]--;
	kfree(r);
}

static bool fh_injected_refusal(struct fh_fn *fn)
{
	/* Under rtnl, as every writer of rules is. */
	return fn->refuse || (fn->refuse_nth && --fn->refuse_nth == 0);
}

static int fh_rule_add(struct net_device *dev, struct flow_cls_offload *cls)
{
	struct netlink_ext_ack *extack = cls->common.extack;
	struct flow_rule *rule = flow_cls_offload_flow_rule(cls);
	struct fh_fn *fn = fh_fn(dev);
	struct fh_rule *r, *o;
	u32 same = 0;
	int err;

	if (fh_injected_refusal(fn)) {
		NL_SET_ERR_MSG_MOD(extack, "Rule refused (fault injection)");
		return -EOPNOTSUPP;
	}
	r = kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return -ENOMEM;
	err = fh_parse_match(rule, r, extack) ?: fh_parse_actions(dev, rule, r, extack);
	if (err)
		goto free;
	r->cookie = cls->cookie;
	r->lastused = r->sampled = jiffies;
	spin_lock_bh(&fn->lock);
	list_for_each_entry(o, &fn->rules, list) {
		if (o->cookie == r->cookie)
			err = -EEXIST;
		same += o->proto == r->proto && ether_addr_equal(o->src, r->src) && ether_addr_equal(o->dst, r->dst);
	}
	if (same >= fn->same_match)
		err = -EEXIST;
	if (!err && !fn->lose) {
		list_add_tail(&r->list, &fn->rules);
		fn->cnt[FH_CNT_RULES]++;
		r = NULL;
	}
	spin_unlock_bh(&fn->lock);
free:
	kfree(r);
	return err;
}

static void fh_rule_stats(struct fh_fn *fn, struct flow_cls_offload *cls)
{
	struct fh_rule *r;

	spin_lock_bh(&fn->lock);
	r = fh_find(fn, cls->cookie);
	if (r) {
		fh_sample(r);
		flow_stats_update(&cls->stats, r->sampled_bytes - r->told_bytes, r->sampled_pkts - r->told_pkts, 0,
				  r->lastused, FLOW_ACTION_HW_STATS_DELAYED);
		r->told_bytes = r->sampled_bytes;
		r->told_pkts = r->sampled_pkts;
	}
	spin_unlock_bh(&fn->lock);
}

static int fh_flower(struct net_device *dev, struct flow_cls_offload *cls)
{
	struct fh_fn *fn = fh_fn(dev);
	struct fh_rule *r;

	if (!tc_cls_can_offload_and_chain0(dev, &cls->common))
		return -EOPNOTSUPP;
	switch (cls->command) {
	case FLOW_CLS_REPLACE:
		return fh_rule_add(dev, cls);
	case FLOW_CLS_DESTROY:
		spin_lock_bh(&fn->lock);
		r = fh_find(fn, cls->cookie);
		if (r)
			fh_del(fn, r);
		spin_unlock_bh(&fn->lock);
		return 0;
	case FLOW_CLS_STATS:
		fh_rule_stats(fn, cls);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int fh_block_cb(enum tc_setup_type type, void *type_data, void *cb_priv)
{
	return type == TC_SETUP_CLSFLOWER ? fh_flower(cb_priv, type_data) : -EOPNOTSUPP;
}

int fh_setup_tc(struct net_device *dev, enum tc_setup_type type, void *type_data)
{
	if (type != TC_SETUP_BLOCK)
		return -EOPNOTSUPP;
	return flow_block_cb_setup_simple(type_data, &fh_block_cbs, fh_block_cb, dev, dev, true);
}

/* Every rule leaves the hardware; tc is not told. */
void fh_rules_flush(struct fh_fn *fn)
{
	struct fh_rule *r, *n;

	spin_lock_bh(&fn->lock);
	list_for_each_entry_safe(r, n, &fn->rules, list)
		fh_del(fn, r);
	spin_unlock_bh(&fn->lock);
}

/*
 * mlx5_core_hairpin_clear_dead_peer: the queues on the target's side are gone, the rule stays, and so does
 * what tc says of it (in_hw), with "*" for the device. A new netdev of the same name does not bring it back.
 */
void fh_rules_target_gone(struct fh_fn *fn, const struct net_device *target)
{
	struct fh_rule *r;

	spin_lock_bh(&fn->lock);
	list_for_each_entry(r, &fn->rules, list)
		if (r->out == target)
			r->out = NULL;
	spin_unlock_bh(&fn->lock);
}
