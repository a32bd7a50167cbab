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
        load = ["slow", "fast"]
        readers = 100
        [host]
        load = "plain"
        [quick_sim]
        readers = 1
        [[load]]
        name = "plain"
        about = "x"
        [[load]]
        name = "slow"
        about = "x"
        variants = ["two"]
        parameters = { read_interval_ms = 100 }
        quick = { read_interval_ms = 1 }
        [[load]]
        name = "fast"
        about = "x"
        sim = { read_interval_ms = 10 }
        "#,
        r#"
        [[draw]]
        number = 3
        parameters = { readers = 5 }
        costs = { line_own_ns = 2 }
        "#,
    )
    .expect("the file above")
}

fn new(
    experiment: Experiment,
    kind: MachineKind,
    is_quick: bool,
) -> Result<Settings<'static>, ParameterError> {
    // Settings borrow their experiment, and a test has one only.
    let experiment: &'static Experiment = Box::leak(Box::new(experiment));
    Settings::new(experiment, kind, MACHINE_KEYS, is_quick)
}

fn settings(kind: MachineKind) -> Settings<'static> {
    new(experiment(), kind, false).expect("the file's overrides")
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
    assert_eq!(points[3].machine[0].1, "72");
    assert_eq!(
        (points[5].load.as_str(), points[6].load.as_str()),
        ("slow", "fast")
    );
    assert_eq!(integers(&points[..4], "readers"), [1, 2, 3, 1]);
    settings.set("load=fast").unwrap();
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
        "unknown parameter `reader`; did you mean `readers`?\n  known parameters:\n    read_interval_ms, \
         readers, seed, load, variants, draws"
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
    let error = new(experiment.clone(), MachineKind::Sim, false).unwrap_err();
    assert!(error.to_string().contains("`reeders`"), "{error}");
    experiment.sim = Table::from_iter([("readers".to_owned(), "many".into())]);
    let error = new(experiment.clone(), MachineKind::Sim, false).unwrap_err();
    assert!(matches!(error, ParameterError::Type { .. }), "{error}");
    experiment.sim = Table::from_iter([("load".to_owned(), "nothing".into())]);
    let error = new(experiment.clone(), MachineKind::Sim, false).unwrap_err();
    assert!(error.to_string().contains("no `nothing`"), "{error}");
    experiment.sim = Table::new();
    experiment.loads[1].variants = Some(vec!["three".to_owned()]);
    let error = new(experiment, MachineKind::Sim, false).unwrap_err();
    assert!(error.to_string().contains("no `three`"), "{error}");
}

#[test]
fn a_file_that_names_a_variant_or_a_load_twice_is_refused() {
    let refused = |change: fn(&mut Experiment)| {
        let mut experiment = experiment();
        change(&mut experiment);
        new(experiment, MachineKind::Sim, false)
            .unwrap_err()
            .to_string()
    };
    let variants = refused(|it| it.variants.push("one".to_owned()));
    assert!(variants.contains("one twice"), "{variants}");
    let loads = refused(|it| it.loads.push(it.loads[2].clone()));
    assert!(loads.contains("fast twice"), "{loads}");
    let by_default = refused(|it| {
        drop(
            it.sim
                .insert("load".to_owned(), vec!["slow", "slow"].into()),
        )
    });
    assert!(by_default.contains("slow twice"), "{by_default}");
}

#[test]
fn variants_are_chosen_by_name() {
    let mut settings = settings(MachineKind::Host);
    assert!(settings.set("variants=three").is_err());
    settings.set("variants=two").unwrap();
    assert_eq!(settings.points().unwrap()[0].variants, ["two"]);
}

#[test]
fn a_load_has_parameters_and_variants_of_its_own() {
    let points = settings(MachineKind::Sim).points().unwrap();
    assert_eq!(points[0].load, "slow");
    assert_eq!(points[0].variants, ["two"]);
    assert_eq!(points[1].variants, ["one", "two"]);
    assert!(points.iter().all(|point| point.is_own));
    let mut chosen = settings(MachineKind::Sim);
    chosen.set("load=plain,fast").unwrap();
    chosen.set("variants=one").unwrap();
    let points = chosen.points().unwrap();
    assert_eq!(integers(&points, "read_interval_ms"), [10, 10]);
    assert_eq!(points[1].load, "fast");
    let error = chosen.set("load=fats").unwrap_err().to_string();
    assert!(error.contains("did you mean `fast`?"), "{error}");
    assert!(chosen.set("load=fast,fast").is_err());
}

#[test]
fn what_the_user_sets_is_fixed_and_no_load_of_the_file() {
    let mut settings = settings(MachineKind::Sim);
    settings.set("load=slow").unwrap();
    settings.set("seed=9").unwrap();
    assert!(settings.points().unwrap()[0].is_own);
    settings.set("readers=7").unwrap();
    let point = settings.points().unwrap().swap_remove(0);
    assert!(!point.is_own);
    assert_eq!(point.fixed, ["read_interval_ms", "seed", "readers"]);
}

#[test]
fn the_quick_form_is_none_of_the_files_loads() {
    let points = new(experiment(), MachineKind::Sim, true)
        .unwrap()
        .points()
        .unwrap();
    assert_eq!(integers(&points, "readers"), [1, 1]);
    assert_eq!(integers(&points, "read_interval_ms"), [1, 10]);
    assert!(points.iter().all(|point| !point.is_own));
}

#[test]
fn draws_are_for_simulated_machines() {
    assert_eq!(settings(MachineKind::Host).draws, DrawsKind::None);
    let mut sim = settings(MachineKind::Sim);
    assert_eq!(sim.draws, DrawsKind::Accepted);
    sim.set("draws=none").unwrap();
    assert_eq!(sim.draws, DrawsKind::None);
    assert!(sim.set("draws=all").is_err());
    assert!(settings(MachineKind::Host).set("draws=accepted").is_err());
}
