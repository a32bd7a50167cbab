"""Pages freed under one hold of the zone lock, and requests for flushes, in a guest of `LOAD=1 .ci/qemu`: `qemu_holds.py CONSOLE`."""

import re
import sys
from collections import Counter, defaultdict

text = open(sys.argv[1], errors="replace").read().replace("\r", "")
guest = re.search(r"guest: (Linux .*)$", text, re.M)
zones = re.findall(r"^ZONE Node \d+, zone +(\w+)\nZONE +managed +([1-9]\d*)$", text, re.M)
sizes = ", ".join(f"{name} {pages}" for name, pages in zones)
print(f"{guest[1] if guest else 'no guest'}; pages of zones: {sizes}")
# The first that stands in the stack.
PATHS = [("upkeep", "refresh_cpu_vm_stats"), ("exits", "exit_mmap"), ("files removed", "shmem_"), ("drains", "drain_pages")]
holds = defaultdict(Counter)
histogram = re.search(r"^BEGIN-HOLDS\n(.*?)^END-HOLDS", text, re.S | re.M)
entries = r"\{ count:\s*(-?\d+), (?:common_)?stacktrace:\n(.*?)\} hitcount:\s*(\d+)"
for pages, stack, hits in re.findall(entries, histogram[1] if histogram else "", re.S):
    path = next((path for path, function in PATHS if function in stack), "other")
    holds[path][int(pages)] += int(hits)
print(f"{'path':14} {'holds':>6} {'median':>7} {'at most':>8} {'of 63':>6} {'of more':>8}")
for path, sizes in sorted(holds.items(), key=lambda it: -it[1].total()):
    pages = sorted(sizes.elements())
    more = sum(hits for size, hits in sizes.items() if size > 63)
    print(f"{path:14} {len(pages):6} {pages[len(pages) // 2]:7} {pages[-1]:8} {sizes[63]:6} {more:8}")
totals = {(when, name): int(hits) for when, name, hits in re.findall(r"^TOTAL (\w+) (\w+) (\d+)$", text, re.M)}
for before, when in [("start", "busy"), ("busy", "idle")]:
    added = {name: totals[when, name] - totals[before, name] for name in ["requested", "flushed", "forced"]}
    print(f"200 reads of the {when} group: requested {added['requested']}, flushed {added['flushed'] - added['forced']}, forced {added['forced']}")
