/* DPDK's mempool behind functions: in its headers, get and put are inline. */

#define _GNU_SOURCE
#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mempool.h>
#include <sched.h>
#include <stdio.h>

/* Starts DPDK without huge pages, devices or files. It pins the calling thread, which is undone. Below 0: it failed. */
int bench_dpdk_start(unsigned cpu, unsigned megabytes)
{
	char lcore[16], memory[16];
	cpu_set_t before;
	int result;

	snprintf(lcore, sizeof(lcore), "%u", cpu);
	snprintf(memory, sizeof(memory), "%u", megabytes);
	char *arguments[] = { "bench", "--no-huge", "-m", memory, "--no-pci", "--no-telemetry", "--no-shconf", "-l", lcore,
			      "-d", "librte_mempool_ring.so", "--log-level", "error", NULL };

	sched_getaffinity(0, sizeof(before), &before);
	result = rte_eal_init(sizeof(arguments) / sizeof(*arguments) - 1, arguments);
	sched_setaffinity(0, sizeof(before), &before);
	return result;
}

/* A pool of so many objects of so many bytes, with a cache of 2 MiB for each thread, or the largest that DPDK allows. */
void *bench_dpdk_pool(unsigned objects, unsigned bytes)
{
	unsigned cached = RTE_MIN(RTE_MEMPOOL_CACHE_MAX_SIZE, (2u << 20) / bytes);
	char name[32];

	snprintf(name, sizeof(name), "bench%u", bytes);
	return rte_mempool_create(name, objects, bytes, cached, 0, NULL, NULL, NULL, NULL,
				  SOCKET_ID_ANY, 0);
}

void *bench_dpdk_get(void *pool)
{
	void *object;

	return rte_mempool_get(pool, &object) ? NULL : object;
}

void bench_dpdk_put(void *pool, void *object)
{
	rte_mempool_put(pool, object);
}

/* A thread without a number has no cache; the one that started DPDK has one already. 1: registered, below 0: it failed. */
int bench_dpdk_enter(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -1 : 1;
}

void bench_dpdk_leave(void)
{
	rte_thread_unregister();
}
