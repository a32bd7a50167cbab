//! The checked-in header beside the library: functions with their types, structures field by field, and what the library exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::{Item, ReturnType, Type};

/// Names that C has for Rust types.
const TYPES: [(&str, &str); 26] = [
    ("c_int", "int"),
    ("c_char", "char"),
    ("c_void", "void"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("i64", "int64_t"),
    ("usize", "size_t"),
    ("Error", "bursar_error"),
    ("GroupHandle", "bursar_group"),
    ("RegistrationHandle", "bursar_registration"),
    ("StatisticOption", "bursar_statistic"),
    ("Options", "bursar_options"),
    ("CLimits", "bursar_limits"),
    ("CValue", "bursar_value"),
    ("CReading", "bursar_reading"),
    ("Reclaim", "bursar_reclaim_function"),
    ("Tell", "bursar_pressure_function"),
    ("Destroy", "bursar_destroy_function"),
    ("ArbiterHandle", "bursar_arbiter"),
    ("GrantHandle", "bursar_grant"),
    ("AnswerHandle", "bursar_answer"),
    ("ArbiterOptions", "bursar_arbiter_options"),
    ("EngineOption", "bursar_engine"),
    ("Reclaimable", "bursar_reclaimable_function"),
    ("AskFor", "bursar_ask_function"),
    ("TellStop", "bursar_stop_function"),
];

/// Functions by name, as `result(parameters)`; structures by name, as the types of their fields.
#[derive(Debug, Default, PartialEq)]
struct Interface {
    functions: BTreeMap<String, String>,
    structures: BTreeMap<String, Vec<String>>,
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The C type of a Rust type.
fn in_c(rust: &Type) -> String {
    match rust {
        Type::Ptr(pointer) => {
            let constant = if matches!(pointer.mutability, syn::PointerMutability::Const(_)) {
                "const "
            } else {
                ""
            };
            format!("{constant}{}*", in_c(&pointer.elem))
        }
        Type::Path(path) => {
            let last = path.path.segments.last().unwrap();
            // A function that may be NULL.
            if let syn::PathArguments::AngleBracketed(of) = &last.arguments
                && let Some(syn::GenericArgument::Type(inner)) = of.args.first()
            {
                return in_c(inner);
            }
            let name = last.ident.to_string();
            let known = TYPES.iter().find(|(rust, _)| *rust == name);
            known
                .unwrap_or_else(|| panic!("{name} has no name in C here"))
                .1
                .to_owned()
        }
        _ => panic!("a type that C has not"),
    }
}

fn of_library() -> Interface {
    let mut interface = Interface::default();
    for file in std::fs::read_dir(here("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for item in syn::parse_file(&text).unwrap().items {
            match item {
                Item::Fn(function) if function.sig.abi.is_some() => {
                    let signature = function.sig;
                    let result = match &signature.output {
                        ReturnType::Default => "void".to_owned(),
                        ReturnType::Type(_, rust) => in_c(rust),
                    };
                    let parameters: Vec<String> = signature
                        .inputs
                        .iter()
                        .map(|input| match input {
                            syn::FnArg::Typed(typed) => in_c(&typed.ty),
                            syn::FnArg::Receiver(_) => panic!("a method"),
                        })
                        .collect();
                    let text = format!("{result}({})", parameters.join(","));
                    interface
                        .functions
                        .insert(signature.ident.to_string(), text);
                }
                Item::Struct(structure)
                    if structure.attrs.iter().any(|it| it.path().is_ident("repr")) =>
                {
                    let name = structure.ident.to_string();
                    let in_header = TYPES.iter().find(|(rust, _)| *rust == name);
                    let (_, in_header) =
                        in_header.unwrap_or_else(|| panic!("{name} has no name in C here"));
                    let fields = structure.fields.iter().map(|field| in_c(&field.ty));
                    interface
                        .structures
                        .insert((*in_header).to_owned(), fields.collect());
                }
                _ => {}
            }
        }
    }
    interface
}

/// `const char *name` as type and name, without spaces around `*`.
fn declaration(text: &str) -> (String, String) {
    let text = text.trim();
    let at = text.rfind([' ', '*']).unwrap() + 1;
    (
        text[..at].replace(" *", "*").trim().to_owned(),
        text[at..].to_owned(),
    )
}

fn of_header(path: &str) -> Interface {
    let text = std::fs::read_to_string(here(path)).unwrap();
    let mut interface = Interface::default();
    let mut code = String::new();
    for (at, part) in text.split("/*").enumerate() {
        code.push_str(if at == 0 {
            part
        } else {
            part.split_once("*/").unwrap().1
        });
    }
    let lines = code
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("extern \"C\""));
    let code: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let mut rest = code.join(" ");
    while let Some(begin) = rest.find("typedef struct {") {
        let (fields, after) = rest[begin..]
            .split_once('{')
            .unwrap()
            .1
            .split_once('}')
            .unwrap();
        let (name, after) = after.split_once(';').unwrap();
        let types = fields
            .split(';')
            .filter(|it| !it.trim().is_empty())
            .flat_map(|field| {
                let (first, more) = field.split_once(',').unwrap_or((field, ""));
                let count = if more.is_empty() {
                    1
                } else {
                    1 + more.split(',').count()
                };
                std::iter::repeat_n(declaration(first).0, count)
            });
        interface
            .structures
            .insert(name.trim().to_owned(), types.collect());
        rest = format!("{}{after}", &rest[..begin]);
    }
    for statement in rest.split(';') {
        let Some((head, parameters)) = statement.split_once('(') else {
            continue;
        };
        if statement.contains("typedef") {
            continue;
        }
        let (result, name) = declaration(head);
        let parameters = parameters.trim_end().trim_end_matches(')');
        let types = parameters
            .split(',')
            .filter(|it| *it != "void")
            .map(|it| declaration(it).0);
        let types: Vec<String> = types.collect();
        interface
            .functions
            .insert(name, format!("{result}({})", types.join(",")));
    }
    interface
}

#[test]
fn the_header_is_the_librarys() {
    let (library, mut header) = (of_library(), of_header("include/bursar.h"));
    assert!(library.functions.len() > 20 && library.structures.len() > 5);
    // A structure of C that is no argument of its own would not be noticed in Rust, and there is none.
    assert_eq!(library.functions, header.functions);
    header
        .structures
        .retain(|name, _| library.structures.contains_key(name));
    assert_eq!(library.structures, header.structures);
}

/// The functions that the shared library shows, which Cargo puts beside this test.
#[test]
fn the_header_has_what_the_shared_library_exports() {
    let this = std::env::current_exe().unwrap();
    let library = this.with_file_name("libbursar_capi.so");
    let listed = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names = listed
        .lines()
        .filter_map(|line| line.split(' ').next_back()?.split('@').next());
    let exported: BTreeSet<&str> = names.filter(|name| name.starts_with("bursar_")).collect();
    let header = of_header("include/bursar.h");
    assert_eq!(
        exported,
        header.functions.keys().map(String::as_str).collect()
    );
}

/// Programs that were built with the first header find their functions, and their structures at the begin of today's.
#[test]
fn the_header_has_what_the_first_one_has() {
    let (first, now) = (
        of_header("tests/c/first/bursar.h"),
        of_header("include/bursar.h"),
    );
    for (name, function) in &first.functions {
        assert_eq!(now.functions.get(name), Some(function), "{name}");
    }
    for (name, fields) in &first.structures {
        assert!(
            now.structures[name].starts_with(fields),
            "{name}: {fields:?}"
        );
    }
}
