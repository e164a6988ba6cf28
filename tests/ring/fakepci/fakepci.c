// SPDX-License-Identifier: GPL-2.0
/*
 * fakepci - TEST ONLY.  Two PCI host bridges made of software, in domains 0000 and 0002, each with the
 * two functions of one card at bus 01: the places that a ConnectX-7 has on the nodes.  QEMU cannot
 * give an x86 machine a second PCI domain; the kernel can (as it does for Intel VMD).
 *
 * The functions have a configuration space and nothing else.  The module is also their driver, by the
 * name mlx5_core, because that name is what the fabric's functions are found by.  Their device ID is
 * none of Mellanox's: neither the real driver nor the provider of rdma-core may take them.
 *
 *   echo "eth1 0002:01:00.1" > /sys/module/fakepci/parameters/lend
 *	makes eth1 a network device of that function, and with it what is stacked on it (by fakehw)
 *   echo "eth1" > /sys/module/fakepci/parameters/lend
 *	takes eth1 home; what was stacked on it meanwhile stays
 *
 * An RDMA device that appears on a network device of such a function gets what Soft-RoCE does not have
 * and a real one does: the link /sys/class/infiniband/<device>/device to the function.
 *
 * Linux 6.12 on x86.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/pci.h>
#include <rdma/ib_verbs.h>

#define VENDOR		0x15b3	/* Mellanox */
#define DEVICE		0xfa4e
#define BUS		1
#define FUNCTIONS	2
#define PCIE		0x40	/* where the PCI Express capability lies */

struct bridge {
	struct pci_sysdata sysdata;
	struct resource busn;
	struct pci_bus *bus;
	u8 config[FUNCTIONS][PCI_CFG_SPACE_SIZE];
};

static struct bridge bridges[] = { { .sysdata.domain = 0 }, { .sysdata.domain = 2 } };

static u8 *config_of(struct pci_bus *bus, unsigned int devfn, int where, int size)
{
	struct bridge *b = container_of((struct pci_sysdata *)bus->sysdata, struct bridge, sysdata);

	if (PCI_SLOT(devfn) || PCI_FUNC(devfn) >= FUNCTIONS || where + size > PCI_CFG_SPACE_SIZE)
		return NULL;
	return b->config[PCI_FUNC(devfn)] + where;
}

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	u8 *at = config_of(bus, devfn, where, size);

	*value = ~0;
	if (!at)
		return PCIBIOS_DEVICE_NOT_FOUND;
	*value = 0;
	memcpy(value, at, size);
	return PCIBIOS_SUCCESSFUL;
}

/* The command register takes what is written; the rest, with it the sizes of BARs, is fixed. */
static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	u8 *at = config_of(bus, devfn, where, size);

	if (!at)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where == PCI_COMMAND && size == 2)
		memcpy(at, &value, size);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config_ops = { .read = config_read, .write = config_write };

static void put(u8 *config, int where, int size, u32 value)
{
	memcpy(config + where, &value, size);
}

static void fill(u8 *config)
{
	put(config, PCI_VENDOR_ID, 2, VENDOR);
	put(config, PCI_DEVICE_ID, 2, DEVICE);
	put(config, PCI_STATUS, 2, PCI_STATUS_CAP_LIST);
	put(config, PCI_CLASS_DEVICE, 2, PCI_CLASS_NETWORK_ETHERNET);
	put(config, PCI_HEADER_TYPE, 1, PCI_HEADER_TYPE_NORMAL | PCI_HEADER_TYPE_MFD);
	put(config, PCI_CAPABILITY_LIST, 1, PCIE);
	put(config, PCIE + PCI_CAP_LIST_ID, 1, PCI_CAP_ID_EXP);
	put(config, PCIE + PCI_EXP_FLAGS, 2, 2 | PCI_EXP_TYPE_ENDPOINT << 4);
	/* Gen5 x4, as on the nodes. */
	put(config, PCIE + PCI_EXP_LNKCAP, 4, PCI_EXP_LNKCAP_SLS_32_0GB | 4 << 4);
	put(config, PCIE + PCI_EXP_LNKSTA, 2, PCI_EXP_LNKSTA_CLS_32_0GB | 4 << PCI_EXP_LNKSTA_NLW_SHIFT);
	put(config, PCIE + PCI_EXP_LNKCAP2, 4, PCI_EXP_LNKCAP2_SLS_32_0GB);
}

/* ---- the driver ---- */

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return 0;
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(VENDOR, DEVICE) }, {} };
static struct pci_driver driver = { .name = "mlx5_core", .id_table = ids, .probe = probe };

/* ---- network devices ---- */

/* A network device that was lent to a function, and where it is at home. */
struct loan {
	struct list_head list;
	char name[IFNAMSIZ];
	struct device *home;
};
static LIST_HEAD(loans);	/* under rtnl */

static int take_home(struct net_device *dev)
{
	struct loan *loan;
	int err;

	list_for_each_entry(loan, &loans, list) {
		if (strcmp(loan->name, dev->name))
			continue;
		err = device_move(&dev->dev, loan->home, DPM_ORDER_NONE);
		list_del(&loan->list);
		put_device(loan->home);
		kfree(loan);
		return err;
	}
	return -ENOENT;
}

static int lend_to(struct net_device *dev, struct pci_dev *pdev)
{
	struct loan *loan;
	int err;

	if (!pdev || pdev->dev.driver != &driver.driver || !dev->dev.parent)
		return -ENODEV;
	loan = kzalloc(sizeof(*loan), GFP_KERNEL);
	if (!loan)
		return -ENOMEM;
	strscpy(loan->name, dev->name, sizeof(loan->name));
	loan->home = get_device(dev->dev.parent);
	err = device_move(&dev->dev, &pdev->dev, DPM_ORDER_NONE);
	if (err) {
		put_device(loan->home);
		kfree(loan);
		return err;
	}
	list_add(&loan->list, &loans);
	return 0;
}

static int lend(const char *text, const struct kernel_param *kp)
{
	unsigned int domain, bus, slot, function;
	struct pci_dev *pdev = NULL;
	struct net_device *dev;
	char name[IFNAMSIZ];
	int words, err;

	words = sscanf(text, "%15s %x:%x:%x.%x", name, &domain, &bus, &slot, &function);
	if (words != 1 && words != 5)
		return -EINVAL;
	dev = dev_get_by_name(current->nsproxy->net_ns, name);
	if (!dev)
		return -ENODEV;
	if (words == 5)
		pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, function));
	rtnl_lock();
	err = words == 1 ? take_home(dev) : lend_to(dev, pdev);
	rtnl_unlock();
	pci_dev_put(pdev);
	dev_put(dev);
	return err;
}
static const struct kernel_param_ops lend_ops = { .set = lend };
module_param_cb(lend, &lend_ops, NULL, 0200);

/* ---- RDMA devices ---- */

static struct ib_client client;

static int rdma_device_added(struct ib_device *ibdev)
{
	struct net_device *dev = ib_device_get_netdev(ibdev, 1);
	struct device *parent = dev ? dev->dev.parent : NULL;
	int err = -EOPNOTSUPP;	/* not one of ours: no client data, no call at its end */

	if (parent && parent->driver == &driver.driver) {
		err = sysfs_create_link(&ibdev->dev.kobj, &parent->kobj, "device");
		if (!err)
			ib_set_client_data(ibdev, &client, ibdev);
	}
	dev_put(dev);
	return err;
}

static void rdma_device_removed(struct ib_device *ibdev, void *data)
{
	if (data)
		sysfs_remove_link(&ibdev->dev.kobj, "device");
}

static struct ib_client client = { .name = "fakepci", .add = rdma_device_added, .remove = rdma_device_removed };

/* ---- life cycle ---- */

static void remove_bridge(struct bridge *b)
{
	if (!b->bus)
		return;
	pci_lock_rescan_remove();
	pci_stop_root_bus(b->bus);
	pci_remove_root_bus(b->bus);
	pci_unlock_rescan_remove();
}

static int add_bridge(struct bridge *b)
{
	LIST_HEAD(resources);

	for (int i = 0; i < FUNCTIONS; i++)
		fill(b->config[i]);
	b->sysdata.node = NUMA_NO_NODE;
	b->busn = (struct resource) { .name = "fakepci", .start = BUS, .end = BUS, .flags = IORESOURCE_BUS };
	pci_add_resource(&resources, &b->busn);
	pci_lock_rescan_remove();
	b->bus = pci_scan_root_bus(NULL, BUS, &config_ops, &b->sysdata, &resources);
	if (b->bus)
		pci_bus_add_devices(b->bus);
	pci_unlock_rescan_remove();
	if (!b->bus) {
		pci_free_resource_list(&resources);
		return -EBUSY;
	}
	return 0;
}

static int __init fakepci_init(void)
{
	int err = pci_register_driver(&driver);

	if (err)
		return err;
	for (int i = 0; i < ARRAY_SIZE(bridges) && !err; i++)
		err = add_bridge(&bridges[i]);
	if (!err)
		err = ib_register_client(&client);
	if (!err)
		return 0;
	for (int i = 0; i < ARRAY_SIZE(bridges); i++)
		remove_bridge(&bridges[i]);
	pci_unregister_driver(&driver);
	return err;
}

/* Unload fakehw first: its ports are the functions' network devices. */
static void __exit fakepci_exit(void)
{
	struct loan *loan, *next;

	list_for_each_entry_safe(loan, next, &loans, list) {
		put_device(loan->home);
		kfree(loan);
	}
	ib_unregister_client(&client);
	for (int i = 0; i < ARRAY_SIZE(bridges); i++)
		remove_bridge(&bridges[i]);
	pci_unregister_driver(&driver);
}

module_init(fakepci_init);
module_exit(fakepci_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Functions of a NIC in two PCI domains, for tests");
