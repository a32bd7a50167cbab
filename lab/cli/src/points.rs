//! Point of a sweep to which a document belongs: the difference between it and the others.

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::settings::LOAD;

/// Keys, for each document, in which the documents of its experiment differ, as `key=value key=value`; nothing if there is but
/// one.
pub fn points(documents: &[Document]) -> Vec<String> {
    documents
        .iter()
        .map(|document| point(document, documents))
        .collect()
}

/// Loads differ in many parameters, and their names stand for all of them: what else differs is looked for in one load.
fn point(document: &Document, all: &[Document]) -> String {
    let load = |document: &Document| document.parameters.get(LOAD).cloned();
    let others: Vec<_> = all
        .iter()
        .filter(|other| other.experiment == document.experiment)
        .collect();
    let differs = |setting: &&(String, String)| {
        others.iter().any(|other| {
            let theirs = settings(other);
            let same = theirs.iter().find(|(key, _)| *key == setting.0);
            (setting.0 == LOAD || load(other) == load(document))
                && same.is_some_and(|(_, value)| *value != setting.1)
        })
    };
    let own = settings(document);
    let parts: Vec<_> = own
        .iter()
        .filter(differs)
        .map(|(key, value)| format!("{key}={}", value.trim_matches('"')))
        .collect();
    parts.join(" ")
}

/// Everything that is set, by key.
pub fn settings(document: &Document) -> Vec<(String, String)> {
    let mut settings = vec![("machine".to_owned(), document.machine.kind().to_string())];
    if let MachineInfo::Sim(sim) = &document.machine {
        let pairs = sim
            .topology
            .split(',')
            .filter_map(|part| part.split_once('='));
        settings.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    let parameters = document.parameters.iter();
    settings.extend(parameters.map(|(key, value)| (key.clone(), value.to_string())));
    settings
}
