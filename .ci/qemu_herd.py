"""Herd of an observed kernel, beside what its own rule of timers gives: `qemu_herd.py DOCUMENT`.

The kernel sets the timer of CPU n to a full second less 3 ticks a CPU (`variant upstream` of the lab's vmstat-spread), and the
wheel then rounds it up to its granularity at a distance of one second.
"""

import json
import sys

document = json.load(open(sys.argv[1]))
machine, figures = document["machine"], document["figures"]
cpus, hz, herd = machine["cpus"], machine["hz"], figures["herd"]
if hz is None:
    upkeep = figures["upkeep"]
    calls = upkeep["duration_ns"]["samples"] if upkeep else 0
    sys.exit(f"qemu: the document has {calls} calls, but no ticks a second: the guest's ticks were late, and its configuration was not there")
if herd is None:
    sys.exit("qemu: the document has no herd: " + "; ".join(it["what"] for it in document["missing"]))
# Levels of 64 slots, each eight times as coarse as the one before.
granularity, reach = 1, 63
while reach < hz:
    granularity, reach = 8 * granularity, 8 * reach
# Which CPUs share a slot depends on where the second lies in it, so this is a mean over all places.
slots, means, largest = 0, 0, 0
for place in range(granularity):
    on_slot = {}
    for cpu in range(cpus):
        slot = (place - 3 * cpu) // granularity
        on_slot[slot] = on_slot.get(slot, 0) + 1
    slots += len(on_slot) / granularity
    means += sum(size * size for size in on_slot.values()) / cpus / granularity
    largest = max(largest, *on_slot.values())
print(f"Linux {machine['kernel']}, {cpus} CPUs, HZ={hz}, {figures['seconds']:.0f} s, {herd['calls']} calls with a timer")
print(f"CPUs on one slot: observed {herd['cpus_per_slot']:.2f} (max {herd['cpus_per_slot_max']}), by the rule {means:.2f} (max {largest})")
print(f"slots a second: observed {herd['slots_per_s']:.2f}, by the rule {slots:.2f}")
