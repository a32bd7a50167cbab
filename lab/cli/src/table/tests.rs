use bursar_experiments::machine_info::HostInfo;
use bursar_experiments::metrics::pcp_batch_free::*;
use bursar_experiments::metrics::vmstat_spread::*;
use bursar_experiments::verdict::Rule;

use super::*;
use crate::samples::{self, document, figure, many, variant, verdict};

const PLAIN: Markup = Markup::Terminal {
    color: false,
    width: None,
};

fn lines(documents: &[Document]) -> Vec<String> {
    run(documents, PLAIN, false)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The line that begins so, its columns parted by one space.
fn line(lines: &[String], begin: &str) -> String {
    let found = lines
        .iter()
        .find(|line| line.trim_start().starts_with(begin));
    let found = found.unwrap_or_else(|| panic!("no {begin} in\n{}", lines.join("\n")));
    found.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn on_host(mut document: Document) -> Document {
    document.machine = MachineInfo::Host(HostInfo {
        cpus: 2,
        nodes: 1,
        model: "a CPU".to_owned(),
        system: "a system".to_owned(),
        backend: "locks".to_owned(),
    });
    document
}

#[test]
fn upkeep_is_shown_with_its_herds() {
    let lines = lines(&[samples::vmstat_spread(72, 18)]);
    assert_eq!(
        line(&lines, "a task on each CPU"),
        "a task on each CPU maps, faults, rewrites and unmaps memory, 11,256 MiB between all of them, of 256 GiB; upkeep \
         each 1,000 ms; 10,000 ms a variant after 0 ms"
    );
    let columns = "variant (simulated) refresh p50 refresh p99 refresh max refresh mean lock wait p99 run queue p99 herd mean herd max \
                   instants drift";
    assert!(line(&lines, "variant (").starts_with(columns), "{lines:?}");
    let row = line(&lines, "upstream ");
    assert!(row.contains(" 18.0 18 4.00/s -3.50 us - - 25.0 %"), "{row}");
    assert_eq!(
        line(&lines, "stress ops"),
        "stress ops per second 40,000/s 40,000/s"
    );
    assert_eq!(
        line(&lines, "upstream: 18 CPUs"),
        "upstream: 18 CPUs on one tick at most, 18.0 in the mean; 4.00 instants a second; refresh p99 400 us, mean 135 us, \
         of 3 calls; its instants are so few that about 18 CPUs share one"
    );
    let spread = line(&lines, "spread: 1 CPU ");
    assert!(spread.ends_with("of 3 calls"), "{spread}");
    assert!(!lines.iter().any(|line| line.contains("more CPUs than")));
    // Said in a column, a sentence or a picture already.
    assert!(
        !lines
            .iter()
            .any(|line| line.trim_start().starts_with("cpus per instant"))
    );
}

#[test]
fn more_cpus_than_ticks_are_stated() {
    let mut document = samples::vmstat_spread(72, 18);
    document
        .parameters
        .insert("interval_ms".to_owned(), 20.into());
    assert_eq!(
        line(&lines(&[document]), "more CPUs"),
        "more CPUs than the interval has ticks: 72 CPUs share 20 ticks, at least 4 on the fullest"
    );
}

#[test]
fn herds_are_drawn_on_the_terminal() {
    let lines = lines(&[samples::vmstat_spread(72, 18)]);
    let title = "When each CPU's upkeep fired, in one second (up: CPU numbers; across: 1.00 s; █ stands for 12 in 12.5 ms), in \
                 virtual time:";
    let begin = lines.iter().position(|line| line == title);
    let begin = begin.unwrap_or_else(|| panic!("{}", lines.join("\n")));
    assert_eq!(lines[begin + 1], "  upstream: max at once 18, ticks 4.00/s");
    // The least CPUs in the last row: 0 to 11 at once at the begin, and 12 to 17 with them in the row above.
    let row = |row: usize| lines[begin + row].trim_end_matches([' ', '|']).to_owned();
    assert_eq!(row(7), "      0 |█");
    assert_eq!(row(6), format!("     12 |▄{}▄", " ".repeat(19)));
    assert_eq!(lines[begin + 8], "  spread: max at once 1, ticks 72.0/s");
    // Each of twelve by itself, one in 80 / 72 columns.
    let first = &lines[begin + 14];
    assert!(first.starts_with("      0 |▁▁▁▁▁▁▁▁▁ ▁▁▁ "), "{first}");
    assert_eq!(first.chars().filter(|it| *it == '▁').count(), 12);
}

#[test]
fn counts_have_an_axis_of_their_own() {
    let lines = lines(&[samples::pcp_batch_free(0)]);
    let title = "Pages freed under one hold (bars grow with the logarithm of the number of holds), simulated:";
    let begin = lines.iter().position(|line| line == title);
    let begin = begin.unwrap_or_else(|| panic!("{}", lines.join("\n")));
    assert_eq!(line(&lines[begin..], "1 "), "1 16 256");
}

#[test]
fn bulk_frees_are_shown_with_their_bystanders() {
    let lines = lines(&[samples::pcp_batch_free(0)]);
    assert_eq!(
        line(&lines, "252 tasks"),
        "252 tasks with 16 MiB each exit at once; 1,024 GiB of memory; a stall is a wait of over 1,000 us"
    );
    assert_eq!(
        line(&lines, "whole: up"),
        "whole: up to 2,016 pages under one hold; bystanders waited up to 1.20 ms, p99 1.20 ms; 2 stalls"
    );
    assert_eq!(
        line(&lines, "batched: up"),
        "batched: up to 63 pages under one hold; bystanders waited up to 20.0 us, p99 20.0 us"
    );
    let row = line(&lines, "whole ");
    assert!(row.ends_with("1.20 ms 1.00 2.00 1,000/s - -"), "{row}");
}

#[test]
fn figures_of_the_host_say_so() {
    for (document, published) in [
        (samples::vmstat_spread(2, 1), "72 CPUs"),
        (samples::pcp_batch_free(0), "176 and 316 CPUs"),
    ] {
        let lines = lines(&[on_host(document)]);
        let said = line(&lines, "These are figures of this machine.");
        assert!(said.contains(published), "{said}");
        line(
            &lines,
            "host figures (this machine, real threads, real time): 2 CPUs",
        );
        for word in ["simulated", "SIMULATED", "virtual"] {
            assert!(!lines.iter().any(|line| line.contains(word)), "{word}");
        }
    }
}

#[test]
fn an_experiment_without_a_view_is_shown_whole() {
    let metrics = [
        ("times", many(Unit::Ns, &[1, 2])),
        ("rate", figure(Unit::PerSecond, 5.0)),
    ];
    let document = document("something-else", 8, vec![variant("one", &metrics)]);
    let lines = lines(&[document]);
    assert_eq!(line(&lines, "times p50"), "times p50 1.00 ns");
    assert_eq!(line(&lines, "rate"), "rate 5.00/s");
    line(&lines, "one: the policy one");
    for other in ["readers", "read p50", "Columns"] {
        let found = lines.iter().find(|line| line.contains(other));
        assert_eq!(found, None);
    }
}

#[test]
fn rows_of_several_experiments_stand_apart() {
    let mut one = samples::vmstat_spread(72, 18);
    one.verdicts = vec![verdict("spread", REFRESH_MEAN.name, "72 CPUs")];
    let mut other = samples::pcp_batch_free(0);
    other.verdicts = vec![verdict("batched", OPS_PER_SECOND.name, "316 CPUs")];
    other.verdicts[0].published = -0.000_011;
    other.verdicts[0].rule = Rule::Equivalent {
        baseline: "whole".to_owned(),
        margin: 0.000_12,
        control: "single-page".to_owned(),
    };
    let mut few = verdict("batched", STALL_RATE.name, "316 CPUs");
    few.rule = Rule::Ratio {
        baseline: "whole".to_owned(),
        from: 0.0,
        to: 0.01,
    };
    other.verdicts.push(few);
    let alone = published_figures(&[one.clone(), on_host(other.clone())], PLAIN, true);
    assert!(!alone.contains("\nvmstat-spread\n"), "{alone}");
    assert!(!alone.contains("316 CPUs"), "{alone}");
    let both = published_figures(&[one, other], PLAIN, true);
    let lines: Vec<_> = both.lines().map(str::to_owned).collect();
    let names: Vec<_> = ["vmstat-spread", "pcp-batch-free"]
        .map(|name| lines.iter().position(|line| line == name))
        .into_iter()
        .map(|place| place.expect("a heading"))
        .collect();
    assert!(names[0] < names[1]);
    line(&lines[names[0]..names[1]], "72 CPUs");
    let first = line(&lines[names[0]..names[1]], "spread against");
    assert!(
        first.starts_with("spread against upstream: refresh mean -20.0 % -10 %"),
        "{first}"
    );
    line(&lines[names[1]..], "316 CPUs");
    let second = line(&lines[names[1]..], "batched against whole: ops");
    let few = line(&lines[names[1]..], "batched against whole: stall rate");
    assert!(few.contains("0.0 to 0.010 times"), "{few}");
    assert!(
        second.contains("-0.0011 %, noise (+- 0.0120 %)"),
        "{second}"
    );
}

#[test]
fn findings_come_first_and_words_before_the_tables_that_use_them() {
    let documents = [
        samples::vmstat_spread(72, 18),
        samples::vmstat_spread(144, 18),
    ];
    let lines = lines(&documents);
    let at = |begin: &str| {
        let found = lines.iter().rposition(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin} in\n{}", lines.join("\n")))
    };
    let first_table = lines.iter().position(|line| line.starts_with("variant ("));
    assert!(at("Findings") < at("Variants"));
    assert!(at("Variants") < at("Columns"));
    assert!(Some(at("Columns")) < first_table);
    let said = lines.iter().filter(|line| *line == "Columns");
    assert_eq!(said.count(), 1, "both documents have these columns");
}

#[test]
fn what_was_not_judged_is_a_line_and_verbose_a_table() {
    let mut document = samples::vmstat_spread(72, 18);
    document.verdicts = vec![verdict("spread", REFRESH_MEAN.name, "72 CPUs")];
    document.draws = 48;
    let said = published_figures(std::slice::from_ref(&document), PLAIN, false);
    assert_eq!(
        said,
        "\nNothing is judged here. `bursar-lab run vmstat-spread --seeds 20` judges by 1 published figure. -v shows these beside \
         the lab's.\n"
    );
    let all = published_figures(std::slice::from_ref(&document), PLAIN, true);
    assert!(all.contains("-20.0 %"), "{all}");
    document.seeds = 20;
    document.verdicts[0].basis = bursar_experiments::verdict::Basis::Ensemble;
    let judged = published_figures(&[document], PLAIN, false);
    assert!(!judged.contains("Nothing is judged"), "{judged}");
    assert!(judged.contains("-20.0 %"), "{judged}");
}

#[test]
fn lines_fit_the_terminal() {
    let mut documents = [samples::vmstat_spread(72, 18), samples::pcp_batch_free(0)];
    documents[0].verdicts = vec![verdict("spread", REFRESH_MEAN.name, "72 CPUs")];
    for width in [40, 80, 120] {
        for color in [false, true] {
            let form = Markup::Terminal {
                color,
                width: Some(width),
            };
            let text = run(&documents, form, true);
            for line in text.lines() {
                assert!(
                    bursar_term::width::columns(line) <= width,
                    "{width}: {line}"
                );
            }
            for column in crate::view::of(&documents[0]).columns() {
                assert!(text.contains(column.title), "{} is missing", column.title);
            }
        }
    }
}
