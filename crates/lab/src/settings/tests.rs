use super::*;

const MACHINE_KEYS: &[&str] = &["cpus", "nodes"];

fn experiment() -> Experiment {
    Experiment::parse(
        r#"
        name = "x"
        title = "x"
        thread = "x"
        about = "x"
        machine = "sim:cpus=8"
        variants = ["one", "two"]
        [parameters]
        seed = 1
        readers = 4
        read_interval_ms = 10
        [sim]
        readers = 100
        read_interval_ms = [100, 10]
        [quick]
        readers = 1
        "#,
    )
    .expect("the file above")
}

fn settings(kind: MachineKind) -> Settings<'static> {
    Settings::new(&experiment(), kind, MACHINE_KEYS).expect("the file's overrides")
}

fn integers(points: &[Point], key: &str) -> Vec<i64> {
    let value = |point: &Point| point.parameters[key].as_integer().expect("a number");
    points.iter().map(value).collect()
}

#[test]
fn a_known_key_is_replaced() {
    let mut settings = settings(MachineKind::Host);
    settings.set("readers=1_000").unwrap();
    assert_eq!(integers(&settings.points().unwrap(), "readers"), [1_000]);
}

#[test]
fn each_kind_of_machine_has_its_own_defaults() {
    let host = settings(MachineKind::Host).points().unwrap();
    assert_eq!(integers(&host, "readers"), [4]);
    let sim = settings(MachineKind::Sim).points().unwrap();
    assert_eq!(integers(&sim, "readers"), [100, 100]);
    assert_eq!(integers(&sim, "read_interval_ms"), [100, 10]);
}

#[test]
fn a_sweep_is_the_cross_product_of_all_lists() {
    let mut settings = settings(MachineKind::Sim);
    settings.set("cpus=8,72").unwrap();
    settings.set("readers=1, 2, 3").unwrap();
    let points = settings.points().unwrap();
    assert_eq!(points.len(), 12);
    assert_eq!(
        points[0].machine,
        [("cpus".to_owned(), "8".to_owned())],
        "{points:?}"
    );
    assert_eq!(points[6].machine[0].1, "72");
    assert_eq!(integers(&points[..4], "readers"), [1, 2, 3, 1]);
    settings.set("read_interval_ms=7").unwrap();
    settings.set("readers=1").unwrap();
    assert_eq!(
        settings.points().unwrap().len(),
        2,
        "one value ends a sweep"
    );
}

#[test]
fn a_sweep_that_is_a_mistake_is_refused() {
    let mut settings = settings(MachineKind::Sim);
    for (wrong, message) in [
        ("cpus=8,8", "8 twice"),
        ("readers=1,2,1", "1 twice"),
        ("seed=1,2", "--seeds N"),
        ("readers=1,", "a whole number"),
    ] {
        let error = settings.set(wrong).unwrap_err().to_string();
        assert!(error.contains(message), "{wrong}: {error}");
    }
    let many: Vec<_> = (1..=200).map(|nth: u32| nth.to_string()).collect();
    settings.set(&format!("cpus={}", many.join(","))).unwrap();
    settings
        .set(&format!("readers={}", many.join(",")))
        .unwrap();
    assert_eq!(
        settings.points().unwrap_err(),
        ParameterError::TooManyPoints(80_000)
    );
}

#[test]
fn the_hosts_cpus_cannot_be_set() {
    assert_eq!(
        settings(MachineKind::Host).set("cpus=8").unwrap_err(),
        ParameterError::OfSimulatedMachines("cpus".to_owned())
    );
}

#[test]
fn an_unknown_key_names_the_nearest_and_all_others() {
    let error = settings(MachineKind::Host).set("reader=3").unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown parameter `reader`; did you mean `readers`?\n  known parameters: read_interval_ms, readers, seed, \
         variants"
    );
    let error = settings(MachineKind::Sim).set("cpu=3").unwrap_err();
    assert!(error.to_string().contains("`cpus`"), "{error}");
}

#[test]
fn a_key_like_no_other_gets_no_suggestion() {
    let error = settings(MachineKind::Host).set("zzz=3").unwrap_err();
    assert!(matches!(
        error,
        ParameterError::Unknown { nearest: None, .. }
    ));
}

#[test]
fn values_are_checked_for_their_type() {
    for wrong in [
        "readers=many",
        "readers=1.5",
        "readers=",
        "readers=-1",
        "readers=99999999999999999999",
    ] {
        let error = settings(MachineKind::Host).set(wrong).unwrap_err();
        assert!(
            matches!(error, ParameterError::Type { .. }),
            "{wrong}: {error}"
        );
    }
    assert!(matches!(
        settings(MachineKind::Host).set("readers"),
        Err(ParameterError::NotAssigned(_))
    ));
}

#[test]
fn overrides_in_the_file_are_checked_like_any_other() {
    let mut experiment = experiment();
    experiment.sim.insert("reeders".to_owned(), 1.into());
    let error = Settings::new(&experiment, MachineKind::Sim, MACHINE_KEYS).unwrap_err();
    assert!(error.to_string().contains("`reeders`"), "{error}");
    experiment.sim = Table::from_iter([("readers".to_owned(), "many".into())]);
    let error = Settings::new(&experiment, MachineKind::Sim, MACHINE_KEYS).unwrap_err();
    assert!(matches!(error, ParameterError::Type { .. }), "{error}");
}

#[test]
fn variants_are_chosen_by_name() {
    let mut settings = settings(MachineKind::Host);
    assert!(settings.set("variants=three").is_err());
    settings.set("variants=two").unwrap();
    assert_eq!(settings.variants, ["two"]);
    settings.offer(["two", "three"].into_iter());
    assert_eq!(settings.variants, ["two"], "offered, not chosen");
    settings.set("variants=three,one").unwrap();
    assert_eq!(settings.variants, ["one", "three"]);
}
