/* See verbs.h. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "verbs.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

static int forget(struct dl_phdr_info *object, size_t size, void *unused)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)size, (void)unused;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		uintptr_t start, end;

		/* Not the vdso: it is no file. Nothing but what is as the file has it may be dropped. */
		if (segment->p_type != PT_LOAD || segment->p_flags & PF_W || !object->dlpi_addr ||
		    (object->dlpi_name[0] && object->dlpi_name[0] != '/'))
			continue;
		start = (object->dlpi_addr + segment->p_vaddr) & ~(page - 1);
		end = (object->dlpi_addr + segment->p_vaddr + segment->p_filesz + page - 1) & ~(page - 1);
		madvise((void *)start, end - start, MADV_DONTNEED);
	}
	return 0;
}

void hm_forget_program(void)
{
	dl_iterate_phdr(forget, NULL);
}
