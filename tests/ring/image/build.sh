#!/bin/bash
# build.sh CACHE: what the machines of the ring boot, below the folder CACHE:
#
#   vmlinux, initrd, root.squashfs, key, key.pub
#
# Everything is fetched and built below CACHE: the machine's own package sources, /boot and /usr are
# neither read nor written. Needs root, mmdebstrap and ssh-keygen, about 2 minutes and 1.5 GB the
# first time; afterwards only what has changed is made again.
set -euo pipefail

# The one place that says what the machines run. Debian 13 has kernel 6.12 (the users run 6.17),
# systemd 257, iproute2 6.15, rdma-core 56 and perftest 25.01, the first of Debian's that gives the
# flow label of a reliable connection to the kernel.
SUITE=trixie
KERNEL=linux-image-amd64
HEADERS=linux-headers-amd64
NODE_PACKAGES=systemd,systemd-sysv,udev,dbus,openssh-server,iproute2,iputils-ping,kmod,ethtool,rdma-core,perftest,ibverbs-providers,ibverbs-utils,rdmacm-utils,jq,strace,tcpdump,procps,util-linux
# With what the machines are built: compilers and tools of the same Debian, so that this machine's
# do not matter.
BUILDER_PACKAGES=$HEADERS,gcc,libc6-dev,make,kmod,xz-utils,zstd,cpio,squashfs-tools,libibverbs-dev,rdma-core

HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
CACHE=$(cd "$1" && pwd)

say() { echo "ring: $*" >&2; }

# fetched NAME PACKAGES [OPTION...]: CACHE/NAME, a root folder of Debian with these packages.
fetched() {
    local name=$1 packages=$2 key
    shift 2
    key=$(printf '%s\n' "$SUITE" "$packages" "$@" | sha256sum | cut -c1-16)
    if [[ -e $CACHE/$name.key && $(<"$CACHE/$name.key") == "$key" ]]; then return; fi
    if ((EUID != 0)); then
        say 'fetching and building the machines needs root (who owns target/ring can run them)'
        exit 1
    fi
    say "fetching Debian $SUITE for the $name (about a minute)"
    rm -rf "${CACHE:?}/$name" "$CACHE/$name.key" "$CACHE/$name.new"
    mmdebstrap --quiet --mode=root --variant=essential --include="$packages" \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/lib/udev/hwdb.d/*' \
        "$@" "$SUITE" "$CACHE/$name.new" </dev/null >"$CACHE/$name.log" 2>&1 ||
        { tail -n 30 "$CACHE/$name.log" >&2; say "fetching failed; all of it: $CACHE/$name.log"; exit 1; }
    mv "$CACHE/$name.new" "$CACHE/$name"
    echo "$key" >"$CACHE/$name.key"
}

# The package of the kernel is unpacked only: installing it would make an initramfs that nobody uses.
# shellcheck disable=SC2016 # for the shell of the hook
UNPACK_KERNEL='set -e; export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; mkdir -p "$1/kernel"; cd "$1/kernel"
name=$(apt-cache depends '$KERNEL' | sed -n "s/^ *Depends: \(linux-image-[0-9].*\)/\1/p" | head -n 1)
apt-get -o APT::Sandbox::User=root download "$name"; dpkg-deb -x linux-image-*.deb .; rm linux-image-*.deb'
fetched builder "$BUILDER_PACKAGES" --customize-hook="$UNPACK_KERNEL"
fetched node "$NODE_PACKAGES"

if [[ ! -e $CACHE/key ]]; then ssh-keygen -q -t ed25519 -N '' -C 'test key of the virtual ring' -f "$CACHE/key"; fi

shopt -s nullglob
key=$(cd "$HERE/.." && find image fakehw fakepci mlx5-shim -type f | LC_ALL=C sort | xargs sha256sum |
    cat - "$CACHE/builder.key" "$CACHE/node.key" "$CACHE/key.pub" | sha256sum | cut -c1-16)
if [[ -e $CACHE/image.key && $(<"$CACHE/image.key") == "$key" ]]; then exit 0; fi
say 'building kernel modules and the image of the machines (about 30 seconds)'
rm -f "$CACHE/image.key"
# In the builder's root, with this folder and the cache in it, in a mount namespace of its own:
# nothing is left mounted whatever happens.
mkdir -p "$CACHE/builder/cache" "$CACHE/builder/ring"
# shellcheck disable=SC2016 # for the inner shell
unshare --mount --propagation private sh -ec '
    mount -t proc proc "$1/builder/proc"
    mount --bind "$1" "$1/builder/cache"
    mount --bind -o ro "$2" "$1/builder/ring"
    exec chroot "$1/builder" /usr/bin/env -i PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 HOME=/ /bin/bash /ring/image/assemble.sh /cache
    ' sh "$CACHE" "$HERE/.." </dev/null >"$CACHE/image.log" 2>&1 ||
    { tail -n 30 "$CACHE/image.log" >&2; say "building failed; all of it: $CACHE/image.log"; exit 1; }
echo "$key" >"$CACHE/image.key"
