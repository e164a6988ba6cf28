#!/bin/bash
# assemble.sh CACHE: kernel, initramfs and root image of the machines, from the fetched root folders
# and this folder. build.sh runs it inside the builder's root, where the folder tests/ring is /ring.
set -euo pipefail
CACHE=$1
MODULES=$(echo /kernel/usr/lib/modules/*)
[[ -d $MODULES ]] || MODULES=$(echo /kernel/lib/modules/*)
VERSION=${MODULES##*/}
WORK=$CACHE/work
rm -rf "$WORK"
mkdir -p "$WORK"
trap 'rm -rf "$WORK"' EXIT

# --- The kernel, unpacked, which QEMU boots without the machine having to decompress it ------------
# Offsets: Documentation/arch/x86/boot.rst, "setup_sects", "payload_offset", "payload_length". The
# last four bytes of the payload are its unpacked size.
export PS4='+ ' # the log says which step failed
set -x
image=/kernel/boot/vmlinuz-$VERSION
number() { od -An -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }
start=$((($(number 0x1f1 1) + 1) * 512 + $(number 0x248 4)))
length=$(($(number 0x24c 4) - 4))
head -c $((start + length)) "$image" | tail -c "$length" >"$WORK/payload"
case $(od -An -t x1 -N 4 "$WORK/payload" | tr -d ' ') in
    28b52ffd) zstd -qdcf "$WORK/payload" >"$CACHE/vmlinux" ;;
    fd377a58) xz -dc "$WORK/payload" >"$CACHE/vmlinux" ;;
    *) echo "a kernel that is packed in an unknown way"; exit 1 ;;
esac

# --- Kernel modules -----------------------------------------------------------------------------
depmod -b "${MODULES%/lib/modules/*}" "$VERSION"
# files MODULE...: their files and those of the modules that they need, first what is needed.
files() {
    modprobe -d "${MODULES%/lib/modules/*}" -S "$VERSION" -D -a "$@" | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}
unpacked() { # FILE INTO
    case $1 in
        *.xz) xz -dc "$1" >"$2" ;;
        *.zst) zstd -qdc "$1" >"$2" ;;
        *) cp "$1" "$2" ;;
    esac
}
make -s -C /ring/fakehw KDIR="/lib/modules/$VERSION/build" OUT="$WORK/fakehw" fakehw.ko
cp -r /ring/fakepci "$WORK/fakepci"
make -s -C "/lib/modules/$VERSION/build" M="$WORK/fakepci" modules
strip --strip-debug "$WORK/fakepci/fakepci.ko"

# --- The root image -----------------------------------------------------------------------------
STAGE=$WORK/stage
cp -a "$CACHE/node" "$STAGE"
into=$STAGE/usr/lib/modules/$VERSION
mkdir -p "$into/extra"
files crc32_generic crc32c_generic virtio_net virtio_rng virtio_blk rdma_rxe ib_uverbs rdma_ucm cls_flower cls_matchall \
    cls_u32 act_pedit act_mirred act_gact act_skbedit sch_ingress sch_netem sch_tbf veth dummy macvlan ifb bridge \
    overlay autofs4 macsec |
    while read -r file; do
        name=${file##*/}
        name=${name%.xz}
        unpacked "$file" "$into/${name%.zst}"
    done
cp "$MODULES"/modules.{order,builtin,builtin.modinfo} "$into/"
cp "$WORK/fakehw/fakehw.ko" "$WORK/fakepci/fakepci.ko" "$into/extra/"
depmod -b "$STAGE" "$VERSION"

rm -f "$STAGE"/etc/ssh/ssh_host_*
cp -rT --no-preserve=ownership /ring/image/node "$STAGE"
chmod 755 "$STAGE"/usr/local/sbin/*
# One host key and one user key, which only the test ring knows.
install -m 600 "$CACHE/key" "$STAGE/etc/ssh/ssh_host_ed25519_key"
install -m 644 "$CACHE/key.pub" "$STAGE/etc/ssh/ssh_host_ed25519_key.pub"
install -d -m 700 "$STAGE/root/.ssh"
install -m 600 "$CACHE/key.pub" "$STAGE/root/.ssh/authorized_keys"
install -m 600 "$CACHE/key" "$STAGE/root/.ssh/id_ed25519"
sed -i 's/^root:[^:]*:/root:*:/' "$STAGE/etc/shadow"
: >"$STAGE/etc/fstab"
: >"$STAGE/etc/resolv.conf"
# systemd.machine_id= on the kernel's command line gives each machine its own.
echo 0123456789abcdef0123456789abcdef >"$STAGE/etc/machine-id"
mkdir -p "$STAGE/opt/dsv41-mesh/bin" "$STAGE/var/lib/systemd"
touch "$STAGE/etc/.updated" "$STAGE/var/.updated"

# Translating code that runs once is what a boot without KVM costs: everything that the ring does not
# need stays off.
units=$STAGE/etc/systemd/system
masked() { ln -sf /dev/null "$1"; }
while read -r unit; do
    case $unit in '' | '#'*) continue ;; esac
    rm -f "${units:?}/$unit"
    masked "$units/$unit"
done </ring/image/masked-units
mkdir -p "$STAGE/etc/systemd/system-generators" "$STAGE/etc/udev/rules.d"
for generator in "$STAGE"/usr/lib/systemd/system-generators/*; do
    masked "$STAGE/etc/systemd/system-generators/${generator##*/}"
done
for rules in "$STAGE"/usr/lib/udev/rules.d/*.rules; do
    case ${rules##*/} in
        50-udev-default.rules | 60-infiniband.rules | 99-systemd.rules) ;;
        *) masked "$STAGE/etc/udev/rules.d/${rules##*/}" ;;
    esac
done
rm -f "$units"/*.wants/sshd-keygen.service "$units"/getty.target.wants/* "$units"/timers.target.wants/*
# dbus.socket starts it when it is needed.
rm -f "$STAGE/usr/lib/systemd/system/multi-user.target.wants/dbus.service"
mkdir -p "$units/multi-user.target.wants"
ln -sf ../ring-boot.service "$units/multi-user.target.wants/ring-boot.service"
ln -sf /usr/lib/systemd/system/multi-user.target "$units/default.target"
# The stand-in for libmlx5 is preloaded into the marker alone: the provider of rdma-core stays.
make -s -C /ring/mlx5-shim OUT="$WORK/mlx5-shim"
make -s -C /ring/fakehw OUT="$WORK/fakehw" roce-burst
mkdir -p "$STAGE"/usr/local/lib/{mlx5-shim,fakehw}
cp "$WORK"/mlx5-shim/* /ring/mlx5-shim/check.sh "$STAGE/usr/local/lib/mlx5-shim/"
cp "$WORK/fakehw/roce-burst" /ring/fakehw/check.sh "$STAGE/usr/local/lib/fakehw/"
rm -rf "$STAGE"/var/cache/* "$STAGE"/var/lib/apt "$STAGE"/usr/share/{doc,man,locale,info,bash-completion,zoneinfo} "$STAGE"/var/log/*

rm -f "$CACHE/root.squashfs"
mksquashfs "$STAGE" "$CACHE/root.squashfs" -comp lz4 -noappend -quiet -no-progress

# --- The initramfs: a static init and the modules for the root image ------------------------------
INITRD=$WORK/initrd
mkdir -p "$INITRD"/{dev,proc,modules}
gcc -O2 -static -s -Wall -Werror -o "$INITRD/init" /ring/image/init.c
n=100
for file in $(files virtio_pci virtio_blk squashfs overlay); do
    name=${file##*/}
    name=${name%.xz}
    unpacked "$file" "$INITRD/modules/$n-${name%.zst}"
    n=$((n + 1))
done
mknod "$INITRD/dev/console" c 5 1
(cd "$INITRD" && find . | cpio -o -H newc --quiet) >"$CACHE/initrd"
