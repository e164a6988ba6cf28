/*
 * The first process of a machine of the ring: loads the modules in /modules in the order of their
 * names, mounts the root image on /dev/vda read-only with a memory overlay above it, and becomes
 * systemd in it. Static and without a shell, because every program that runs once costs translation.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The runner waits for this word to tell whether an accelerator works. */
#define STARTED "RING: initramfs\n"

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	dprintf(1, "RING: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void load_modules(void)
{
	struct dirent **entries;
	int n = scandir("/modules", &entries, NULL, alphasort);

	must(n, "/modules");
	for (int i = 0; i < n; i++) {
		char path[512];
		int fd;

		if (entries[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/modules/%s", entries[i]->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		must(fd, path);
		if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
			must(-1, path);
		close(fd);
	}
}

int main(void)
{
	int fd;

	mkdir("/root", 0755);
	mkdir("/memory", 0755);
	mkdir("/new", 0755);
	must(mount("dev", "/dev", "devtmpfs", MS_NOSUID, "mode=0755"), "/dev");
	fd = open("/dev/console", O_RDWR);
	for (int i = 0; fd >= 0 && i <= 2; i++)
		dup2(fd, i);
	dprintf(1, STARTED);
	load_modules();
	/* The disk appears a moment after its driver; 10 s are far more than it takes. */
	for (int i = 0; i < 1000 && access("/dev/vda", F_OK) < 0; i++)
		usleep(10 * 1000);
	must(mount("/dev/vda", "/root", "squashfs", MS_RDONLY | MS_NOATIME, NULL), "the root image");
	must(mount("memory", "/memory", "tmpfs", 0, "mode=0755,size=70%"), "memory");
	must(mkdir("/memory/upper", 0755), "upper");
	must(mkdir("/memory/work", 0755), "work");
	must(mount("overlay", "/new", "overlay", MS_NOATIME,
		   "lowerdir=/root,upperdir=/memory/upper,workdir=/memory/work"), "overlay");
	must(mount("/dev", "/new/dev", NULL, MS_MOVE, NULL), "moving /dev");
	must(chdir("/new"), "/new");
	must(mount(".", "/", NULL, MS_MOVE, NULL), "moving the root");
	must(chroot("."), "chroot");
	must(chdir("/"), "/");
	execl("/usr/lib/systemd/systemd", "/sbin/init", (char *)NULL);
	must(-1, "systemd");
}
