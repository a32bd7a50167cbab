//! `-f html`: pages with pictures that need nothing else.

mod common;

use common::*;
use roxmltree::{Document, ParsingOptions};

/// A well-formed document without scripts that names nothing outside of it.
fn assert_complete(text: &str) {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let xml = Document::parse_with_options(text, options).expect("well-formed XML");
    for node in xml.descendants() {
        let name = node.tag_name().name();
        let foreign = [
            "script",
            "image",
            "img",
            "link",
            "iframe",
            "object",
            "use",
            "foreignObject",
        ];
        assert!(!foreign.contains(&name), "<{name}>");
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            // A link loads nothing before a reader follows it.
            let is_link = node.tag_name().name() == "a" && value.starts_with("https://");
            let stays = name == "href" && (is_link || value.starts_with('#'));
            let leads = matches!(name, "href" | "src" | "srcset");
            assert!(stays || !leads, "{name}={value}");
            assert!(!name.starts_with("on"), "{name}={value}");
            assert!(!value.contains("url("), "{name}={value}");
        }
    }
    assert!(!text.contains("@import") && !text.contains("url("));
}

#[test]
fn pages_are_complete_in_themselves() {
    let result = Scratch::new("pictures.json");
    let sweep = ["--seeds=2", "-scpus=4,8", "-o", result.path()];
    succeeded(&simulated(&sweep));
    let page = document_of(&["report", result.path(), "-fhtml"]);
    assert_complete(&page);
    for said in [
        "combining",
        "coalesced",
        "SIMULATED (virtual time)",
        "cost against cpus",
    ] {
        assert!(page.contains(said), "{said}");
    }
    assert_eq!(page, document_of(&["report", result.path(), "-fhtml"]));
    // The form follows the name, and what was just measured is what is read back.
    let named = Scratch::new("pictures.html");
    let output = command()
        .args(common::SIMULATED)
        .args(["--seeds=2", "-scpus=4,8", "-o", named.path()])
        .output()
        .expect("the program starts");
    succeeded(&output);
    assert!(std::fs::read_to_string(&named.0).expect("a file") == page);
}

#[test]
fn hostile_names_stay_texts() {
    const HOSTILE: &str = "</td></text><script>alert(1)</script>\"'&{{ 1 }}";
    let result = Scratch::new("hostile.json");
    let output = simulated(&["-o", result.path()]);
    succeeded(&output);
    let text = std::fs::read_to_string(&result.0).expect("a result");
    let mut document: serde_json::Value = serde_json::from_str(&text).expect("a document");
    for key in ["experiment", "title", "revision"] {
        document[key] = HOSTILE.into();
    }
    document["variants"][0]["name"] = HOSTILE.into();
    document["variants"][0]["summary"] = HOSTILE.into();
    document["machine"]["model"] = HOSTILE.into();
    document["parameters"][HOSTILE] = HOSTILE.into();
    std::fs::write(&result.0, document.to_string()).expect("a temporary file");
    let page = document_of(&["report", result.path(), "-fhtml"]);
    assert_complete(&page);
    assert!(!page.contains("<script"));
    assert!(page.contains("{{ 1 }}"));
    // A terminal would obey these.
    let hostile = [
        (
            r#"{"schema":1,"title":"\u001b[2J"}"#,
            r#"it has the text "\u{1b}[2J""#,
        ),
        (r#"{"schema":"\u202e"}"#, r#"is of schema "\u{202e}", and"#),
        // Of two equal keys, the look for such texts sees the last.
        (
            r#"{"schema":1,"variants":[{"\u001b[2J":0}],"variants":[]}"#,
            r"unknown field `\u{1b}[2J`",
        ),
    ];
    for (document, said) in hostile {
        std::fs::write(&result.0, document).expect("a temporary file");
        common::assert_refused(&["report", result.path()], 2, said);
    }
}

#[test]
fn what_has_no_page_says_so() {
    for arguments in [
        &["list", "-fhtml"][..],
        &["list", "-o", "/tmp/no-such-page.html"],
        &["explore", "--schedules=10", "-fhtml"],
        &["compare", "a.json", "b.json", "-fhtml"],
    ] {
        common::assert_refused(arguments, 2, "does not have the form html");
    }
    assert!(!std::path::Path::new("/tmp/no-such-page.html").exists());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let result = Scratch::new("pictures-unread.json");
    assert_eq!(simulated(&["-o", result.path()]).status.code(), Some(0));
    assert_survives_a_reader_that_goes_away(&["report", "-fhtml", result.path()]);
}
