# Reads the LLVM code of the example `local_blocks`: each function that allocates blocks must write as many labels. The two ways to
# allocate one block, with and without an alignment, may share its label.
/^define / { name = $0; blocks = aligned = labels = 0 }
/ call .*@(malloc|calloc)\(/ { blocks++ }
/ call .*@posix_memalign\(/ { aligned++ }
/ store volatile i64 / { labels++ }
/^}/ {
    all += blocks + aligned
    if (blocks > labels || aligned > labels) {
        print blocks + aligned " blocks and " labels " labels in " name
        bad = 1
    }
}
END {
    print all + 0 " allocations in the code of the example, each with its label: " (bad || !all ? "no" : "yes")
    exit bad || !all
}
