# Reads the LLVM code of the example `local_blocks`: each function that allocates a block must write at least as many labels.
/^define / { name = $0; blocks = labels = 0 }
/ call .*@(malloc|calloc|posix_memalign)\(/ { blocks++ }
/ store volatile i64 / { labels++ }
/^}/ {
    all += blocks
    if (blocks > labels) {
        print blocks " blocks and " labels " labels in " name
        bad = 1
    }
}
END {
    print all + 0 " allocations in the code of the example, each with its label: " (bad || !all ? "no" : "yes")
    exit bad || !all
}
