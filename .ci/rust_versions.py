"""Dependencies of a crate must not ask for a newer Rust than the crate itself.

Reads `cargo metadata`: for each crate of the workspace, everything that it builds with, on any system.
"""

import json
import subprocess
import sys


def numbers(version):
    parts = [int(part) for part in version.split(".")]
    return parts + [0] * (3 - len(parts))


command = ["cargo", "metadata", "--format-version", "1", "--locked"]
metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
dependencies = {
    node["id"]: [
        dependency["pkg"]
        for dependency in node["deps"]
        if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
    ]
    for node in metadata["resolve"]["nodes"]
}
failures = []
for root in metadata["workspace_members"]:
    product = packages[root]
    seen, waiting = set(), [root]
    while waiting:
        identity = waiting.pop()
        if identity in seen:
            continue
        seen.add(identity)
        waiting.extend(dependencies[identity])
        package = packages[identity]
        wanted = package["rust_version"]
        if wanted and numbers(wanted) > numbers(product["rust_version"]):
            failures.append(
                f"{product['name']} promises Rust {product['rust_version']}, "
                f"but {package['name']} {package['version']} needs {wanted}"
            )
    silent = sum(packages[identity]["rust_version"] is None for identity in seen)
    print(
        f"{product['name']}: Rust {product['rust_version']}, {len(seen) - 1} dependencies, "
        f"{silent} of which declare no version"
    )
if failures:
    sys.exit("\n".join(failures))
