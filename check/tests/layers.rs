//! The order of crates and of modules, and the files with `unsafe` and with addresses, as ARCHITECTURE.md states them.
//!
//! Each rule is a table here. The code is parsed, every file of every package.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bursar_check::source::{Bounds, House, Package, numbers, workspace};
use proc_macro2::{TokenStream, TokenTree};

/// All packages, each with those on which it may depend outside of tests: all of them stand before it.
#[rustfmt::skip]
const CRATES: &[(&str, &[&str])] = &[
    ("bursar-machine", &[]),
    ("bursar", &["bursar-machine"]),
    ("bursar-arbiter", &["bursar", "bursar-machine"]),
    ("bursar-alloc", &["bursar", "bursar-machine"]),
    ("bursar-tower", &["bursar", "bursar-alloc", "bursar-arbiter"]),
    ("bursar-cache", &["bursar", "bursar-arbiter", "bursar-machine"]),
    ("bursar-arrow", &["bursar"]),
    ("bursar-datafusion", &["bursar", "bursar-alloc", "bursar-arbiter", "bursar-arrow"]),
    ("bursar-prometheus", &["bursar", "bursar-arbiter"]),
    ("bursar-serve", &["bursar", "bursar-arbiter", "bursar-prometheus"]),
    ("bursar-capi", &["bursar", "bursar-alloc", "bursar-arbiter", "bursar-machine"]),
    // These know nothing of Bursar.
    ("bursar-tpch", &[]),
    ("bursar-bench-peers", &[]),
    ("bursar-term", &[]),
    ("bursar-top", &["bursar", "bursar-machine", "bursar-serve", "bursar-term"]),
    ("bursar-watch", &[]),
    ("bursar-conditions", &["bursar-machine"]),
    ("bursar-rig", &["bursar-machine"]),
    ("bursar-sim", &["bursar-machine", "bursar-rig"]),
    ("bursar-kernel", &["bursar", "bursar-machine", "bursar-rig"]),
    ("bursar-experiments", &["bursar", "bursar-arbiter", "bursar-kernel", "bursar-machine", "bursar-rig"]),
    ("bursar-check", &["bursar", "bursar-arbiter", "bursar-experiments", "bursar-kernel", "bursar-machine", "bursar-rig", "bursar-sim"]),
    ("bursar-lab", &["bursar-check", "bursar-experiments", "bursar-machine", "bursar-sim", "bursar-term"]),
    ("bursar-replay", &["bursar-experiments", "bursar-kernel", "bursar-machine", "bursar-rig", "bursar-watch"]),
    ("bursar-observe", &["bursar-experiments", "bursar-replay", "bursar-sim", "bursar-term", "bursar-watch"]),
    ("bursar-bench", &["bursar", "bursar-alloc", "bursar-arbiter", "bursar-bench-peers", "bursar-conditions", "bursar-datafusion",
        "bursar-machine", "bursar-rig", "bursar-sim"]),
    ("bursar-fuzz", &["bursar", "bursar-arbiter", "bursar-capi", "bursar-experiments", "bursar-machine", "bursar-prometheus", "bursar-replay", "bursar-serve",
        "bursar-sim", "bursar-term", "bursar-watch"]),
    ("bursar-example-server", &["bursar", "bursar-conditions"]),
    ("bursar-example-engines", &["bursar", "bursar-capi", "bursar-datafusion", "bursar-tpch"]),
    ("bursar-example-distributed", &["bursar", "bursar-arbiter", "bursar-datafusion", "bursar-tpch"]),
    ("bursar-example-sql-server",
        &["bursar", "bursar-alloc", "bursar-arbiter", "bursar-datafusion", "bursar-prometheus", "bursar-serve", "bursar-tpch"]),
];

/// Modules of `bursar`: each uses those before it, and itself.
const MODULES: &[&str] = &[
    "room",
    "apart",
    "arena",
    "gate",
    "tree",
    "bytes",
    "outline",
    "limit",
    "zones",
    "housekeeping",
    "react",
    "group",
    "account",
    "charge",
    "futures",
    "registration",
    "reserve",
    "snapshot",
    "consumers",
    "memory",
    "diagnosis",
    "pages",
    "raw",
    "engine",
    "group_charge",
    "group_read",
    "serial",
];

/// Modules of `bursar` that use a later one.
const UPWARD: &[(&str, &str, &str)] = &[];

/// Files and directories with `unsafe`.
#[rustfmt::skip]
const UNSAFE: &[(&str, &str)] = &[
    ("crates/machine/src/host/", "the host's side of the seam"),
    ("crates/machine/src/pages/list.rs", "a list is made of words that others must not write"),
    ("crates/machine/tests/fork.rs", "forks"),
    ("crates/machine/tests/stacks/unregistered.rs", "leaves a thread without sections"),
    ("crates/machine/tests/slots.rs", "sends signals and handles them"),
    ("crates/machine/tests/common/filter.rs", "filters system calls"),
    ("crates/alloc/src/", "pages as memory, and the allocator"),
    ("crates/alloc/tests/", "calls of an allocator"),
    ("crates/alloc/examples/local_blocks.rs", "calls of an allocator"),
    ("crates/arrow/tests/foreign.rs", "imports arrays, and maps a file"),
    ("crates/capi/src/", "arguments of C"),
    ("crates/capi/examples/", "calls of C"),
    ("crates/bursar/tests/loom/machine/stacks.rs", "lists of blocks in words of loom"),
    ("crates/bursar/tests/common/cpus.rs", "binds a thread to a CPU"),
    ("crates/bursar/tests/common/fork.rs", "forks"),
    ("crates/bursar/tests/common/model_pages.rs", "reads a page's words while others may"),
    ("crates/bursar/tests/common/signals.rs", "sends signals and handles them"),
    ("crates/bursar/tests/library/pages/allocation.rs", "writes to a page that is raw"),
    ("crates/bursar/tests/process/machine_limits.rs", "limits the process's memory"),
    ("crates/bursar/tests/process/pages_bad_input.rs", "limits the process's memory"),
    ("examples/engines/src/", "calls of an engine in C"),
    ("check/tests/memory.rs", "counts what is allocated"),
    ("check/tests/faults/allocator.rs", "lets allocations fail"),
    ("check/tests/faults/calls.rs", "limits memory"),
    ("check/tests/faults/child.rs", "limits children"),
    ("check/tests/faults/interrupted.rs", "sends signals"),
    ("check/tests/faults/others.rs", "calls of C"),
    ("lab/sim/src/coroutine.rs", "stacks of tasks"),
    ("lab/sim/src/engine.rs", "keeps a scenario's check for the time of its run"),
    ("lab/sim/src/machine.rs", "makes coroutines of bodies that borrow"),
    ("bench/peers/src/", "calls of other allocators"),
    ("fuzz/src/meter.rs", "an allocator that counts"),
    ("fuzz/src/capi.rs", "calls of C"),
];

/// Files and directories that see addresses.
#[rustfmt::skip]
const ADDRESSES: &[(&str, &str)] = &[
    ("crates/machine/src/host/", "memory of the host"),
    ("crates/machine/tests/stacks/unregistered.rs", "looks up a symbol"),
    ("crates/machine/tests/common/filter.rs", "a filter of system calls"),
    ("crates/alloc/", "pages as memory"),
    ("crates/capi/src/", "arguments of C"),
    ("crates/capi/examples/", "calls of C"),
    ("examples/engines/src/", "an engine in C"),
    ("crates/bursar/src/account.rs", "an address as the identity of a memory; nothing is read through it"),
    ("crates/datafusion/src/tenant_session/tables.rs", "an address as the identity of a query; nothing is read through it"),
    ("crates/bursar/src/arena.rs", "a test that entries stay where they are"),
    ("crates/bursar/tests/common/model_pages.rs", "reads a page's words while others may"),
    ("crates/bursar/tests/library/pages/allocation.rs", "pages are aligned"),
    ("crates/bursar/tests/library/pages/bytes.rs", "bytes stay where the page was"),
    ("check/tests/memory.rs", "blocks of an allocator"),
    ("check/tests/faults/allocator.rs", "blocks of an allocator"),
    ("check/tests/faults/others.rs", "calls of C"),
    ("lab/sim/src/coroutine.rs", "stacks of tasks"),
    ("lab/sim/src/engine.rs", "the simulator of a thread"),
    ("lab/sim/src/operation.rs", "a type that stays on its thread"),
    ("bench/peers/src/", "calls of other allocators"),
    ("fuzz/src/meter.rs", "an allocator that counts"),
    ("fuzz/src/capi.rs", "calls of C"),
];

/// Code that decides or accounts has no clock, thread, environment or random order of its own.
const DECIDING: &[&str] = &[
    "bursar",
    "bursar-arbiter",
    "bursar-experiments",
    "bursar-replay",
];
const UNDECIDED: &[&[&str]] = &[
    &["std", "time", "Instant"],
    &["SystemTime"],
    &["std", "thread"],
    &["std", "env"],
    &["HashMap"],
];

/// Packages that know pages by their numbers alone.
const WITHOUT_BYTES: &[&str] = &[
    "bursar",
    "bursar-experiments",
    "bursar-check",
    "bursar-lab",
    "bursar-replay",
    "bursar-observe",
];
const BYTES: &[&[&str]] = &[&["NonNull"], &["HostFrames"], &["bursar_alloc"]];

/// Lines above an ordering in which a comment names the access that it pairs with.
const NEAR: usize = 8;
/// Types of orderings, and those above `Relaxed`. A comment that names the partner of one begins with its word.
const ORDERS: &[&str] = &["Ordering", "MemoryOrder"];
const STRONG: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst", "Full"];

/// A rule: adds a line for each error.
type Rule = fn(&[Package], &mut Vec<String>);

/// One test, because the workspace is parsed once for all.
#[test]
fn the_code_is_as_the_tables_say() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = workspace(here.parent().expect("the workspace"));
    let mut errors = Vec::new();
    let rules: [Rule; 10] = [
        crates_depend_on_those_before_them,
        every_file_belongs_to_a_crate,
        modules_use_only_those_before_them,
        unsafe_stays_where_the_table_says,
        addresses_stay_where_the_table_says,
        deciding_code_knows_no_machine,
        pages_are_numbers,
        errors_of_the_product_show_their_message,
        orderings_name_their_partners,
        no_number_exceeds_its_bound,
    ];
    for rule in rules {
        rule(&packages, &mut errors);
    }
    assert!(errors.is_empty(), "{errors:#?}");
}

fn crates_depend_on_those_before_them(packages: &[Package], errors: &mut Vec<String>) {
    for package in packages {
        let name = &package.name;
        let Some(level) = CRATES.iter().position(|(known, _)| known == name) else {
            errors.push(format!("{name} is not in the table of crates"));
            continue;
        };
        if package.house.is_none() {
            errors.push(format!("{name} belongs to no house"));
        }
        for dependency in &package.dependencies {
            let is_before = CRATES[..level].iter().any(|(known, _)| known == dependency);
            let mut others = packages.iter();
            let house = others
                .find(|other| other.name == *dependency)
                .and_then(|it| it.house);
            let leaves = package.house == Some(House::Product) && house != Some(House::Product);
            let may_enter = [House::Observe, House::Fuzz].map(Some);
            let enters = house == Some(House::Observe) && !may_enter.contains(&package.house);
            if !CRATES[level].1.contains(&dependency.as_str()) || !is_before || leaves || enters {
                errors.push(format!("{name} depends on {dependency}"));
            }
        }
    }
    for (name, _) in CRATES {
        if !packages.iter().any(|package| package.name == *name) {
            errors.push(format!("{name} of the table is no package"));
        }
    }
}

/// A file that no module leads to would escape the other rules.
fn every_file_belongs_to_a_crate(packages: &[Package], errors: &mut Vec<String>) {
    for package in packages {
        let modules = package.crates.iter().flat_map(|made| &made.modules);
        let reached: BTreeSet<usize> = modules.map(|module| module.file).collect();
        for (index, file) in package.files.iter().enumerate() {
            if !reached.contains(&index) {
                errors.push(format!("{}: no module leads to it", file.path));
            }
        }
    }
}

fn modules_use_only_those_before_them(packages: &[Package], errors: &mut Vec<String>) {
    let package = packages.iter().find(|package| package.name == "bursar");
    let package = package.expect("the library");
    let library = package.main_crate();
    let layer = |module: usize| library.modules[module].path.first();
    let level = |name: &str| MODULES.iter().position(|layer| *layer == name);
    let found: BTreeSet<&str> = (0..library.modules.len())
        .filter(|&module| !library.modules[module].is_test)
        .filter_map(|module| layer(module).map(String::as_str))
        .collect();
    let known: BTreeSet<&str> = MODULES.iter().copied().collect();
    for name in found.symmetric_difference(&known) {
        errors.push(format!(
            "{name}: in the table of modules or in the library, not in both"
        ));
    }
    let mut upward = BTreeSet::new();
    for reference in library.references() {
        if let (Some(from), Some(to)) = (layer(reference.module), layer(reference.to))
            && level(from) < level(to)
        {
            upward.insert((from.as_str(), to.as_str()));
            if !UPWARD
                .iter()
                .any(|(a, b, _)| (*a, *b) == (from.as_str(), to.as_str()))
            {
                let (file, name) = (&package.files[reference.file].path, &reference.name);
                errors.push(format!("{file} uses {name} of the later module {to}"));
            }
        }
    }
    for (from, to, _) in UPWARD {
        if !upward.contains(&(*from, *to)) {
            errors.push(format!("{from} uses {to} no more"));
        }
    }
}

fn unsafe_stays_where_the_table_says(packages: &[Package], errors: &mut Vec<String>) {
    let is_unsafe = |words: &[Word]| words[0].text == "unsafe";
    stays(packages, errors, "`unsafe`", UNSAFE, &is_unsafe);
    for package in packages {
        let root = &package.files[package.main_crate().root_file()];
        let source = format!("{}/src/", package.directory);
        let has_unsafe = UNSAFE.iter().any(|(place, _)| place.starts_with(&source));
        let forbids = words(root.tokens.clone()).windows(2).any(|pair| {
            (pair[0].text.as_str(), pair[1].text.as_str()) == ("forbid", "unsafe_code")
        });
        if has_unsafe == forbids {
            errors.push(format!("{}: forbid(unsafe_code)", root.path));
        }
    }
}

fn addresses_stay_where_the_table_says(packages: &[Package], errors: &mut Vec<String>) {
    let is_address = |words: &[Word]| {
        let word = |index: usize| words.get(index).map_or("", |word| &word.text);
        match (word(0), word(1)) {
            ("*" | "raw", "const" | "mut") | ("NonNull", _) => true,
            (".", "addr" | "as_ptr" | "as_mut_ptr" | "expose_provenance") => word(2) == "()",
            _ => false,
        }
    };
    stays(packages, errors, "an address", ADDRESSES, &is_address);
}

/// No file but those of a table has words that `is_it` knows, and each entry of the table is needed.
fn stays(
    packages: &[Package],
    errors: &mut Vec<String>,
    what: &str,
    table: &[(&str, &str)],
    is_it: &dyn Fn(&[Word]) -> bool,
) {
    let mut needed = BTreeSet::new();
    for file in packages.iter().flat_map(|package| &package.files) {
        let place = table.iter().find(|(place, _)| file.path.starts_with(place));
        let words = words(file.tokens.clone());
        for start in (0..words.len()).filter(|&start| is_it(&words[start..])) {
            match place {
                Some((place, _)) => {
                    needed.insert(*place);
                }
                None => errors.push(format!("{}:{}: {what}", file.path, words[start].line)),
            }
        }
    }
    for (place, _) in table {
        if !needed.contains(place) {
            errors.push(format!("{place}: {what} stands there no more"));
        }
    }
}

/// A token, and its line. An empty group is `()`; another is its tokens, and `)`.
struct Word {
    text: String,
    line: usize,
}

fn words(tokens: TokenStream) -> Vec<Word> {
    let mut found = Vec::new();
    for token in tokens {
        let line = token.span().start().line;
        let text = match token {
            TokenTree::Group(group) if !group.stream().is_empty() => {
                found.extend(words(group.stream()));
                ")".to_owned()
            }
            token => token.to_string(),
        };
        found.push(Word { text, line });
    }
    found
}

fn deciding_code_knows_no_machine(packages: &[Package], errors: &mut Vec<String>) {
    never_mentioned(packages, errors, DECIDING, UNDECIDED);
}

fn pages_are_numbers(packages: &[Package], errors: &mut Vec<String>) {
    never_mentioned(packages, errors, WITHOUT_BYTES, BYTES);
}

/// `{:?}` of an error is what `main`, `unwrap` and `expect` print. `debug_as_message!` stands in the file of each error type.
fn errors_of_the_product_show_their_message(packages: &[Package], errors: &mut Vec<String>) {
    let is_product = |package: &&Package| package.house == Some(House::Product);
    for package in packages.iter().filter(is_product) {
        let mut found = 0;
        let modules = package.main_crate().modules.iter();
        let sources: BTreeSet<usize> = modules.map(|module| module.file).collect();
        for file in sources.into_iter().map(|file| &package.files[file]) {
            let items = &file.syntax.items;
            let shown: Vec<String> = items.iter().filter_map(shown_as_message).collect();
            for error in items.iter().filter_map(implements_error) {
                found += 1;
                if !shown.contains(&error) {
                    let path = &file.path;
                    errors.push(format!("{path}: {error} without debug_as_message!"));
                }
            }
        }
        let has_none = [
            "bursar-cache",
            "bursar-prometheus",
            "bursar-capi",
            "bursar-term",
            "bursar-top",
        ];
        if (found == 0) != has_none.contains(&package.name.as_str()) {
            errors.push(format!("{}: {found} error types", package.name));
        }
    }
}

/// The type of an `impl Error for`.
fn implements_error(item: &syn::Item) -> Option<String> {
    let syn::Item::Impl(block) = item else {
        return None;
    };
    let (of, _) = block.trait_.as_ref()?;
    let is_error = of.segments.last().is_some_and(|last| last.ident == "Error");
    match &*block.self_ty {
        syn::Type::Path(path) if is_error => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

/// The type that `debug_as_message!` is for.
fn shown_as_message(item: &syn::Item) -> Option<String> {
    let syn::Item::Macro(call) = item else {
        return None;
    };
    let name = call.mac.path.segments.last()?.ident.to_string();
    let mut tokens = call.mac.tokens.clone().into_iter();
    let of = tokens.nth(1)?.to_string();
    (name == "debug_as_message").then_some(of)
}

/// No path in the code of the packages, but for tests, has such names in a row.
fn never_mentioned(
    packages: &[Package],
    errors: &mut Vec<String>,
    names: &[&str],
    banned: &[&[&str]],
) {
    let is_named = |package: &&Package| names.contains(&package.name.as_str());
    for package in packages.iter().filter(is_named) {
        let modules = package.main_crate().modules.iter();
        for module in modules.filter(|module| !module.is_test) {
            for mention in &module.mentions {
                let has = |banned: &&[&str]| {
                    let mut parts = mention.path.windows(banned.len());
                    parts.any(|part| part == *banned)
                };
                if banned.iter().any(has) {
                    let file = &package.files[module.file].path;
                    errors.push(format!("{file}: {}", mention.path.join("::")));
                }
            }
        }
    }
}

/// Comments are no tokens, so this looks at lines. Planted bugs have orderings that pair with nothing, so the proof is left out.
fn orderings_name_their_partners(packages: &[Package], errors: &mut Vec<String>) {
    const HOUSES: [Option<House>; 3] =
        [Some(House::Product), Some(House::Lab), Some(House::Observe)];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let is_checked = |package: &&Package| HOUSES.contains(&package.house);
    for package in packages.iter().filter(is_checked) {
        let modules = package.main_crate().modules.iter();
        let sources = modules.filter(|module| !module.is_test);
        let sources: BTreeSet<usize> = sources.map(|module| module.file).collect();
        for path in sources.into_iter().map(|file| &package.files[file].path) {
            let text = fs::read_to_string(root.join(path)).expect("a file of text");
            let text = text.split("#[cfg(test)]\nmod tests {").next();
            let lines: Vec<_> = text.into_iter().flat_map(str::lines).map(parts).collect();
            for (at, (code, _)) in lines.iter().enumerate() {
                let near = &lines[at.saturating_sub(NEAR)..=at];
                for word in strong(code) {
                    if !near.iter().any(|(_, comment)| comment.contains(word)) {
                        errors.push(format!(
                            "{path}:{}: {word} without a partner. A comment at most {NEAR} lines above says it: `// {word}: pairs with` \
                             and the function that has the other access",
                            at + 1
                        ));
                    }
                }
            }
        }
    }
}

/// A line's code and its comment.
fn parts(line: &str) -> (&str, &str) {
    line.split_once("//").unwrap_or((line, ""))
}

/// The orderings above `Relaxed` in a line of code, and fences.
fn strong(code: &str) -> impl Iterator<Item = &'static str> {
    let mut words: Vec<_> = STRONG.to_vec();
    words.retain(|word| {
        ORDERS
            .iter()
            .any(|of| code.contains(&format!("{of}::{word}")))
    });
    words.extend(code.contains(".fence()").then_some("fence"));
    words.into_iter()
}

/// The numbers of the ratchet may fall, and not rise.
fn no_number_exceeds_its_bound(packages: &[Package], errors: &mut Vec<String>) {
    let numbers = numbers(packages);
    let bounds = Bounds::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("ratchet.txt"));
    for number in &numbers {
        let (name, value, bound) = (&number.name, number.value, bounds.of(number));
        if value > bound {
            let places = &number.places;
            errors.push(format!("{name}: {value}, bound {bound} {places}"));
        }
    }
    for name in bounds.unused(&numbers) {
        errors.push(format!("{name} of ratchet.txt is no number"));
    }
}
