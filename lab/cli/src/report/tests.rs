//! Documents with random damage are drawn. Anybody may write the file that `report` reads.
//!
//! `BURSAR_SEED` sets the first seed, and `BURSAR_DOCUMENTS` how many documents are tried.

use std::env;
use std::fs;

use bursar_experiments::document::Document;
use bursar_rig::random::Random;
use bursar_term::markup::Markup;
use bursar_term::options::Format;
use roxmltree::Document as Xml;
use serde_json::{Value, json};

use crate::{format, result_file};

/// Documents of the real command, one of each experiment, and inputs that failed once.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/result");
const DOCUMENTS: u64 = 300;
/// Texts that end elements, attributes and documents, that move a terminal's cursor, or that turn the direction of what follows.
const HOSTILE: [&str; 3] = [
    "<script>alert('x')</script> & \"]]> -->",
    "\u{0}\u{1b}[31m",
    "\u{202e}",
];

/// Changes one place of a document, at any depth.
fn damage(random: &mut Random, value: &mut Value, texts: &[String]) {
    let below = |random: &mut Random, bound: usize| random.below(bound as u64) as usize;
    match value {
        Value::Array(values) if !values.is_empty() && !random.happens(8) => {
            let at = below(random, values.len());
            damage(random, &mut values[at], texts)
        }
        Value::Object(values) if !values.is_empty() && !random.happens(12) => {
            let at = below(random, values.len());
            let inner = values.values_mut().nth(at).expect("so many");
            damage(random, inner, texts)
        }
        Value::Array(values) => match random.below(4) {
            0 => values.clear(),
            1 => values.truncate(1),
            2 => values.reverse(),
            _ => values.extend(values.clone()),
        },
        Value::Object(values) => {
            let key = values
                .keys()
                .nth(below(random, values.len().max(1)))
                .cloned();
            key.and_then(|key| values.remove(&key));
        }
        Value::Number(_) => {
            let numbers = [
                json!(0),
                json!(1),
                json!(-1),
                json!(u64::MAX),
                json!(i64::MIN),
                json!(1e308),
                json!(-1e308),
                json!(5e-324),
                json!(0.5),
                json!(random.number() >> random.below(64)),
            ];
            *value = numbers[below(random, numbers.len())].clone();
        }
        Value::String(text) => {
            *text = match random.below(8) {
                0 => String::new(),
                1..3 => HOSTILE[0].to_owned(),
                3 => HOSTILE[1].to_owned(),
                4 => HOSTILE[2].to_owned(),
                5 => "long ".repeat(200),
                _ => texts[below(random, texts.len())].clone(),
            };
        }
        Value::Bool(is) => *is = !*is,
        Value::Null => *value = json!(HOSTILE[0]),
    }
}

/// All texts of a document, keys excepted.
fn texts(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::String(text) => all.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, all)),
        Value::Object(values) => values.values().for_each(|value| texts(value, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// No text of a document becomes part of the page's structure, and none moves a terminal's cursor.
fn check(documents: &[Document], place: &str) {
    let is_harmful = |it: &char| *it != '\n' && (it.is_control() || *it == '\u{202e}');
    let form = |width| Markup::Terminal {
        color: false,
        width,
    };
    for (is_verbose, width) in [(false, Some(80)), (true, None)] {
        let text = format::documents(documents, Format::Table, form(width), is_verbose);
        let text = text.unwrap_or_else(|error| panic!("{place}: {error:?}"));
        assert_eq!(text.chars().find(is_harmful), None, "{place}: {text:?}");
    }
    let page = format::documents(documents, Format::Html, form(None), false);
    let page = page.unwrap_or_else(|error| panic!("{place}: {error:?}"));
    assert!(!page.contains("<script"), "{place}: {page}");
    assert_eq!(page.chars().find(is_harmful), None, "{place}: {page:?}");
    for picture in page.split("<svg").skip(1) {
        let end = picture.find("</svg>").expect("its end");
        let picture = format!("<svg{}</svg>", &picture[..end]);
        let drawn = Xml::parse(&picture);
        drawn.unwrap_or_else(|error| panic!("{place}: {error}: {picture}"));
        assert!(
            !picture.contains("NaN") && !picture.contains("inf\""),
            "{place}: {picture}"
        );
    }
}

#[test]
fn any_document_that_is_read_is_drawn() {
    let number = |name: &str, unless: u64| {
        let text = env::var(name).ok();
        text.map_or(unless, |text| text.parse().expect("a number"))
    };
    let first = number("BURSAR_SEED", 1);
    let mut files: Vec<_> = fs::read_dir(CORPUS)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let whole: Vec<Value> = files
        .iter()
        .map(|file| fs::read(file).unwrap())
        .filter(|text| result_file::parse(String::new(), text).is_ok())
        .map(|text| serde_json::from_slice(&text).unwrap())
        .collect();
    let mut drawn = 0;
    for seed in first..first + number("BURSAR_DOCUMENTS", DOCUMENTS) {
        let random = &mut Random::new(seed);
        let place = format!("BURSAR_SEED={seed}");
        let mut documents = Vec::new();
        for _ in 0..1 + random.below(3) {
            let mut value = whole[random.below(whole.len() as u64) as usize].clone();
            let mut all = Vec::new();
            texts(&value, &mut all);
            for _ in 0..random.below(4) {
                damage(random, &mut value, &all);
            }
            let text = serde_json::to_vec(&value).unwrap();
            if let Ok(source) = result_file::parse("file".to_owned(), &text) {
                documents.extend(source.documents);
            }
        }
        if !documents.is_empty() {
            documents.iter_mut().for_each(Document::conclude);
            check(&documents, &place);
            drawn += 1;
        }
    }
    println!("{drawn} drawn");
    assert!(drawn > 0, "most damage is refused, but not all");
}
